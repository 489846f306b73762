//go:build linux

package kernel

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// TestGuardPages checks that memory before and after a slice is not touched, even if it is not
// mapped.
func TestGuardPages(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const passes = 5
	for _, v := range versions() {
		for width := 1; width <= 140; width++ {
			for gap := range 2 {
				stride := width + gap
				n := (passes-1)*stride + width
				single, double := atEnd[float32](t, n), atEnd[float64](t, n)
				for i := range single {
					double[i] = r.Float64()
					single[i] = float32(double[i])
				}
				mean, sums := atEnd[float64](t, width), atEnd[float64](t, 11*width)
				fixed := atEnd[float64](t, 3*passes*11)
				c := NewColumns(width)
				c.block = atEnd[float64](t, fields*c.padded)
				c.Mean, c.aside = c.block[:width], atEnd[float64](t, (passes+1)*lanes)
				runVariant(v, func() {
					Moments(c, single, passes, width, stride, 4)
					Moments(c, double, passes, width, stride, 4)
					dst := atEnd[float64](t, passes*width)
					for _, inputs := range []int{1, 2, 3} {
						if classes := width / inputs; classes > 0 {
							guardParts(single, mean, dst, sums, fixed, passes, stride, inputs, classes, stride > width)
							guardParts(double, mean, dst, sums, fixed, passes, stride, inputs, classes, stride > width)
						}
					}
					for k := 2; k <= MaxRotated; k++ {
						if width%k == 0 {
							sums := sums[(11-k/2)*width:]
							Rotated(sums, width, single, passes, width/k, k, stride, mean)
							Rotated(sums, width, double, passes, width/k, k, stride, mean)
						}
					}
				})
				if width > 1 {
					rows := atEnd[float32](t, passes*width)
					copy(rows, goodRows(r, passes, width))
					runVariant(v, func() {
						for n := 1; n <= passes; n++ {
							if !Plain(rows[(passes-n)*width:], width, tolerance) {
								t.Errorf("%v: %d good rows of %d: not plain", v, n, width)
							}
						}
					})
				}
				release()
			}
		}
	}
}

// guardParts runs on the last columns of a panel, and at the ends of all slices.
func guardParts[T float](data []T, mean, dst, sums, fixed []float64, passes, stride, inputs, classes int, first bool) {
	width := inputs * classes
	end := func(x []float64, n int) []float64 { return x[len(x)-n:] }
	p := Part[T]{data[len(mean)-width:], end(mean, width), passes, stride, inputs, classes, classes}
	Deviations(end(dst, passes*width), classes, p)
	Crossed(end(sums, 11*width), classes, p, end(fixed, inputs*passes*11), 11, 11, first)
	InverseRoots(end(dst, width), end(mean, width))
	Confusions(end(fixed, inputs*passes), end(dst, passes*width), Matrix{
		Sums: end(sums, passes*width), Roots: end(mean, width), Scales: end(fixed, inputs*passes), Weights: end(mean, classes),
		Inputs: inputs, Rows: passes, Width: classes, Apart: classes,
	})
}

// pages holds mapped memory until release.
var pages [][]byte

// atEnd returns a slice that ends where readable memory ends. If it fills whole pages, it begins
// where readable memory begins.
func atEnd[T float](t *testing.T, n int) []T {
	t.Helper()
	var zero T
	size, page := n*int(unsafe.Sizeof(zero)), os.Getpagesize()
	whole := (size + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, memory)
	if err := syscall.Mprotect(memory[whole:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&memory[whole-size])), n)
}

func release() {
	for _, memory := range pages {
		_ = syscall.Munmap(memory)
	}
	pages = nil
}
