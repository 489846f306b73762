package app

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

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
