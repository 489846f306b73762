package main

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// dieWithParent ends a process when its parent is gone, however that ended.
func dieWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// sleep waits more exactly than time.Sleep, which rounds up to a millisecond in an idle program.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // cut short, the caller sleeps again
}

// exactSleeps lets this goroutine's sleeps end in time, not up to 50 us later as the kernel allows
// to save power. It returns a function that undoes it.
func exactSleeps() (undo func()) {
	runtime.LockOSThread()
	setSlack(1)
	return func() {
		setSlack(0) // the default
		runtime.UnlockOSThread()
	}
}

func setSlack(ns uintptr) {
	const setTimerSlack = 29                                              // PR_SET_TIMERSLACK
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, ns, 0) // it is only less exact
}
