package main

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// dieWithParent ends a process when the one that started it is gone, whatever ended that.
func dieWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// sleep is more exact than time.Sleep, which an idle program rounds up to a millisecond.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // cut short, the caller sleeps again
}

// exactSleeps lets this goroutine's sleeps end when they should, and not the 50 us later that the kernel takes to save
// power. What it returns undoes it.
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
