//go:build cgo && amd64

package ckernel

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -lm
// #include "kernel.h"
import "C"

import (
	"runtime"
	"unsafe"
)

// all holds the kernels by their number in C.
var all = func() []Kernel {
	var k []Kernel
	for _, way := range []string{"aside, 1 vector", "aside, 2 vectors", "aside, 3 vectors", "ahead, 1 vector", "ahead, 2 vectors"} {
		k = append(k, Kernel{Path: AVX512, Name: way})
	}
	for _, how := range []string{"1/s, ", "q/s, "} {
		for _, way := range []string{"aside, 1 vector", "aside, 2 vectors", "ahead, 1 vector"} {
			k = append(k, Kernel{Path: AVX2, Name: how + way})
		}
	}
	return k
}()

// Kernels returns the kernels that this processor can run.
func Kernels() []Kernel {
	var found []Kernel
	path := C.ckernel_path()
	for i, k := range all {
		if k.Path == AVX512 && path < 2 || path < 1 {
			continue
		}
		k.number = i
		found = append(found, k)
	}
	return found
}

// Run runs the kernel the given number of times over a panel of two passes or more.
func (k Kernel) Run(p Panel, out *Columns, times int) {
	if p.Passes < 2 || p.Width < 1 {
		return
	}
	_ = p.Values[(p.Passes-1)*p.Stride+p.Width-1] // the panel is as large as it says
	if room := 24*p.Passes + 8; len(out.aside) < room {
		out.aside = make([]float64, room)
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	at := func(s []float64) *C.double {
		to := unsafe.SliceData(s[:p.Width])
		pinner.Pin(to)
		return (*C.double)(to)
	}
	C.ckernel_run(C.int(k.number), (*C.float)(unsafe.SliceData(p.Values)), C.size_t(p.Passes), C.size_t(p.Width),
		C.size_t(p.Stride), (*C.double)(unsafe.SliceData(out.aside)), C.columns{
			mean: at(out.Mean), variance: at(out.Variance), third: at(out.ThirdMoment), c: at(out.C),
			skewness: at(out.Skewness), m: at(out.M), plogp: at(out.PLogP),
		}, C.long(times))
}
