//go:build !cgo || !amd64

package ckernel

// Runs reports whether a path can run: this build has no C.
func Runs(string) bool { return false }

// Run does nothing; there is no kernel to run.
func Run(string, []float32, int, int, *Columns, int) {}
