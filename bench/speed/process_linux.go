package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends a process when its parent is gone, however that ended.
func dieWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
