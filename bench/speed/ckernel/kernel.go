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

// paths numbers the kernels by instruction set, as ckd's kernels are called.
var paths = map[string]C.int{"avx2": 1, "avx512": 2}

// Runs reports whether this processor can run a path: "avx2" or "avx512".
func Runs(path string) bool { return paths[path] > 0 && paths[path] <= C.ckernel_path() }

// Run runs the kernel of a path the given number of times over values laid out [passes][width], of
// two passes or more.
func Run(path string, values []float32, passes, width int, out *Columns, times int) {
	if passes < 2 || width < 1 {
		return
	}
	_ = values[passes*width-1]
	if room := 8*passes + 8; len(out.aside) < room {
		out.aside = make([]float64, room)
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	at := func(s []float64) *C.double {
		to := unsafe.SliceData(s[:width])
		pinner.Pin(to)
		return (*C.double)(to)
	}
	C.ckernel_run(paths[path], (*C.float)(unsafe.SliceData(values)), C.size_t(passes), C.size_t(width),
		(*C.double)(unsafe.SliceData(out.aside)), C.columns{
			mean: at(out.Mean), variance: at(out.Variance), third: at(out.ThirdMoment), c: at(out.C),
			skewness: at(out.Skewness), m: at(out.M), plogp: at(out.PLogP),
		}, C.long(times))
}
