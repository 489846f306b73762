//go:build !linux

package turns

import "runtime"

// Yield lets other goroutines go first that are ready to run. On Linux it lets those go first, too,
// that have something to read by now.
func Yield() { runtime.Gosched() }
