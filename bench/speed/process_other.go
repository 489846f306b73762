//go:build !linux

package main

import (
	"os/exec"
	"time"
)

func dieWithParent(*exec.Cmd) {}

func sleep(d time.Duration) { time.Sleep(d) }

func exactSleeps() (undo func()) { return func() {} }
