//go:build !purego

package kernel

import (
	"golang.org/x/sys/cpu"
)

//go:generate go -C ../../../tools run ./kernel -out ../decomp/internal/kernel/kernel_amd64.s -stubs ../decomp/internal/kernel/stubs_amd64.go -pkg kernel

// best is the version for this processor. What GODEBUG=cpu.avx2=off or cpu.fma=off
// takes away, AVX-512 goes with: it is the greater of the two.
func best() variant {
	has := &cpu.X86
	switch {
	case !has.HasAVX2 || !has.HasFMA:
		return scalar
	case has.HasAVX512F && has.HasAVX512DQ && has.HasAVX512VL && has.HasAVX512BW:
		return avx512
	}
	return avx2
}

// vectorMoments is Moments, or false where the scalar version is to run, as the
// others are.
func vectorMoments[T Float](c *Columns, data []T, passes, width, stride int, divisor float64) bool {
	if version == scalar || passes < 1 {
		return false
	}
	n := float64(passes)
	if room := (passes + 1) * lanes; len(c.aside) < room {
		c.aside = make([]float64, room)
	}
	out, aside, rn, rd := &c.Mean[0], &c.aside[0], 1/n, 1/divisor
	switch data := any(data).(type) {
	case []float32:
		if version == avx512 {
			momentsFloat32AVX512(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
		} else {
			momentsFloat32AVX2(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
		}
	case []float64:
		if version == avx512 {
			momentsFloat64AVX512(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
		} else {
			momentsFloat64AVX2(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
		}
	}
	return true
}

func vectorDeviations[T Float](dst []float64, data []T, passes, width, stride int, mean []float64) bool {
	if version == scalar {
		return false
	}
	switch data := any(data).(type) {
	case []float32:
		if version == avx512 {
			deviationsFloat32AVX512(&dst[0], &data[0], passes, width, stride, &mean[0])
		} else {
			deviationsFloat32AVX2(&dst[0], &data[0], passes, width, stride, &mean[0])
		}
	case []float64:
		if version == avx512 {
			deviationsFloat64AVX512(&dst[0], &data[0], passes, width, stride, &mean[0])
		} else {
			deviationsFloat64AVX2(&dst[0], &data[0], passes, width, stride, &mean[0])
		}
	}
	return true
}

func vectorProducts(sums, a, b []float64, passes, width, stride int) bool {
	switch version {
	case avx512:
		productsAVX512(&sums[0], &a[0], &b[0], passes, width, stride)
	case avx2:
		productsAVX2(&sums[0], &a[0], &b[0], passes, width, stride)
	}
	return version != scalar
}

func vectorScaled(sums, a, b []float64, passes, width, stride int) bool {
	switch version {
	case avx512:
		scaledAVX512(&sums[0], &a[0], &b[0], passes, width, stride)
	case avx2:
		scaledAVX2(&sums[0], &a[0], &b[0], passes, width, stride)
	}
	return version != scalar
}

// vectorPlain is Plain, by float32 sums.
func vectorPlain(rows []float32, classes int, tolerance float64) bool {
	// A sum of K values >= 0, added up in depth steps, is off by at most depth/2^24
	// of itself. Eight lanes at least are added up apart, and then together.
	depth := float64(classes/8 + 8)
	bound := depth * 0x1p-24 * (1 + tolerance)
	if version == scalar || classes < 2 || !(tolerance > 8*bound) {
		return scalarPlain(rows, classes, tolerance)
	}
	limit := float32(tolerance - bound)
	lanes, narrow := 16, 7
	if version == avx2 {
		lanes, narrow = 8, 4
	}
	switch {
	case classes > narrow && version == avx512:
		return plainWideAVX512(&rows[0], len(rows)/classes, classes, limit)
	case classes > narrow:
		return plainWideAVX2(&rows[0], len(rows)/classes, classes, limit)
	case len(rows) < classes+lanes-1:
		return scalarPlain(rows, classes, tolerance)
	}
	begin, step := &begins[version][classes], lanes/classes*classes
	if version == avx512 {
		return plainNarrowAVX512(&rows[0], len(rows), classes, step, &begin.first, &begin.last, limit)
	}
	return plainNarrowAVX2(&rows[0], len(rows), classes, step, &begin.first, &begin.last, limit)
}

// lanesOfRows says in which lanes of a register rows begin, by the bits that leave
// the absolute of what is there: if one begins in the first lane, and if one
// begins in the last.
type lanesOfRows struct{ first, last [16]uint32 }

// begins has them by version and classes.
var begins = func() (b [avx512 + 1][8]lanesOfRows) {
	for v, lanes := range [...]int{avx2: 8, avx512: 16} {
		for classes := 2; classes < len(b[v]); classes++ {
			for lane := 0; lane < lanes; lane += classes {
				b[v][classes].first[lane] = 1<<31 - 1
				b[v][classes].last[lanes-1-lane] = 1<<31 - 1
			}
		}
	}
	return b
}()

// vectorInverseRoots does the first numbers, in groups of eight, and says how
// many; so do the next two.
func vectorInverseRoots(dst, mean []float64) int {
	n := len(dst) &^ 7
	switch {
	case n == 0 || version == scalar:
		return 0
	case version == avx512:
		inverseRootsAVX512(&dst[0], &mean[0], n)
	default:
		inverseRootsAVX2(&dst[0], &mean[0], n)
	}
	return n
}

func vectorConfusion(parts *[lanes]float64, terms, sums, roots, weights []float64, scale float64) int {
	n := len(terms) &^ 7
	switch {
	case n == 0 || version == scalar:
		return 0
	case version == avx512:
		confusionAVX512(&parts[0], &terms[0], &sums[0], &roots[0], &weights[0], n, scale)
	default:
		confusionAVX2(&parts[0], &terms[0], &sums[0], &roots[0], &weights[0], n, scale)
	}
	return n
}

func vectorSum(parts *[lanes]float64, values []float64) int {
	n := len(values) &^ 7
	switch {
	case n == 0 || version == scalar:
		return 0
	case version == avx512:
		sumAVX512(&parts[0], &values[0], n)
	default:
		sumAVX2(&parts[0], &values[0], n)
	}
	return n
}
