package app

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// listen opens HOST:PORT or unix:PATH. A socket file that nobody listens on any
// more is what a daemon that was killed leaves behind, and is replaced.
func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", path)
	if err == nil || !isStale(path) {
		return l, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// isStale reports whether path is a socket that nobody listens on.
func isStale(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close() // somebody answers
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// target is a listener's address as a client dials it.
func target(address net.Addr) string {
	if address.Network() == "unix" {
		return "unix:" + address.String()
	}
	return address.String()
}

// isLoopback reports whether only this machine reaches an address by TCP.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
