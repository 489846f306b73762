//go:build !cgo || !amd64

package ckernel

// Kernels returns nil: this build has no C.
func Kernels() []Kernel { return nil }

// Run does nothing; there is no kernel to run.
func (k Kernel) Run(Panel, *Columns, int) { _ = k.number }
