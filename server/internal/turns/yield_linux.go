package turns

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookAround waits until those can go that have something to read or write by now. runtime.Gosched alone
// does not do that, since whoever calls it goes on before Go looks at the network. So lookAround makes an
// event of its own, and waits for it as if it had come by the network. Go finds those that came before
// together with it, in any order. It returns what to wait with the next time.
func lookAround(w *wait) *wait {
	if w == nil {
		w = newWait()
	}
	if w != nil {
		w.once()
	}
	return w
}

// wait is a file descriptor that can be waited for as for a connection.
type wait struct {
	raw     syscall.RawConn
	written bool
	try     func(fd uintptr) (done bool)
	buffer  [8]byte
}

// newWait returns nil if there is no file descriptor left.
func newWait() *wait {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil
	}
	w := &wait{}
	file := os.NewFile(uintptr(fd), "turns")
	if w.raw, err = file.SyscallConn(); err != nil {
		_ = file.Close()
		return nil
	}
	w.try = w.tried
	return w
}

// once waits until Go has looked at the network.
func (w *wait) once() {
	w.written = false
	_ = w.raw.Read(w.try) // without an event there is nothing to wait for
}

// tried makes the event when it is called first. Whatever wakes the goroutine then, it has only come
// to its turn once it can read the event.
func (w *wait) tried(fd uintptr) (done bool) {
	if !w.written {
		w.written = true
		w.buffer = [8]byte{1}
		_, err := unix.Write(int(fd), w.buffer[:])
		return err != nil
	}
	_, err := unix.Read(int(fd), w.buffer[:])
	return !errors.Is(err, unix.EAGAIN)
}
