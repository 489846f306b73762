//go:build !purego

package kernel

import (
	"golang.org/x/sys/cpu"
)

//go:generate go -C ../../tools run ./kernel -out ../internal/kernel/kernel_amd64.s -stubs ../internal/kernel/stubs_amd64.go -pkg kernel

// best returns the variant for this processor. GODEBUG=cpu.avx2=off or cpu.fma=off rules out
// AVX-512 as well, which needs both.
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

// halfLanes is the number of columns up to which a register of AVX2 is faster than one of AVX-512.
const halfLanes = 4

// choose returns the function of a version that is not the scalar one.
func choose[F any](v variant, narrow, wide F) F {
	if v == avx512 {
		return wide
	}
	return narrow
}

// vectorMoments implements Moments. Like the other vector functions it returns false if the scalar
// version must run.
func vectorMoments[T float](c *Columns, data []T, passes, width, stride int, divisor float64) bool {
	if version == scalar || passes < 1 {
		return false
	}
	version := version
	if width <= halfLanes {
		version = avx2
	}
	n := float64(passes)
	if room := (passes + 1) * lanes; len(c.aside) < room {
		c.aside = make([]float64, room)
	}
	out, aside, rn, rd := &c.Mean[0], &c.aside[0], 1/n, 1/divisor
	switch data := any(data).(type) {
	case []float32:
		choose(version, momentsFloat32AVX2, momentsFloat32AVX512)(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
	case []float64:
		choose(version, momentsFloat64AVX2, momentsFloat64AVX512)(out, c.padded, aside, &data[0], passes, width, stride, n, rn, rd)
	}
	return true
}

func vectorRotated[T float](sums []float64, apart int, data []T, passes, inputs, classes, stride int, mean []float64) bool {
	version, width := version, inputs*classes
	if version == avx512 && width <= halfLanes {
		version = avx2
	}
	if version == scalar || version == avx2 && classes > 4 {
		return false
	}
	t := &turnsOf[version][classes]
	switch data := any(data).(type) {
	case []float32:
		choose(version, rotatedFloat32AVX2, rotatedFloat32AVX512)(
			&sums[0], apart, &data[0], passes, width, stride, &mean[0], t.each, &t.turns, classes/2)
	case []float64:
		choose(version, rotatedFloat64AVX2, rotatedFloat64AVX512)(
			&sums[0], apart, &data[0], passes, width, stride, &mean[0], t.each, &t.turns, classes/2)
	}
	return true
}

// turns holds the permutations that rotate the inputs in a register by one class, by two and by
// three.
type turns struct {
	each  int // columns of whole inputs in a register
	turns [3][8]uint64
}

// turnsOf holds the turns by version and number of classes.
var turnsOf = func() (t [avx512 + 1][MaxRotated + 1]turns) {
	for v, lanes := range [...]int{avx2: 4, avx512: 8} {
		for classes := 2; classes <= min(MaxRotated, lanes); classes++ {
			x := &t[v][classes]
			x.each = lanes / classes * classes
			for r := range x.turns {
				for lane := range uint64(lanes) {
					from, k := lane, uint64(classes)
					if lane < uint64(x.each) {
						from = lane/k*k + (lane%k+uint64(r)+1)%k
					}
					if v == int(avx2) {
						from = 2*from | (2*from+1)<<32
					}
					x.turns[r][lane] = from
				}
			}
		}
	}
	return t
}()

func vectorDeviations[T float](dst []float64, apart int, p *Part[T]) bool {
	if version == scalar {
		return false
	}
	switch data := any(p.Data).(type) {
	case []float32:
		choose(version, deviationsFloat32AVX2, deviationsFloat32AVX512)(
			&dst[0], apart, &data[0], &p.Mean[0], p.Passes, p.Stride, p.Inputs, p.Classes, p.Width)
	case []float64:
		choose(version, deviationsFloat64AVX2, deviationsFloat64AVX512)(
			&dst[0], apart, &data[0], &p.Mean[0], p.Passes, p.Stride, p.Inputs, p.Classes, p.Width)
	}
	return true
}

func vectorCrossed[T float](sums []float64, apart int, p *Part[T], fixed []float64, stride, n int, first bool) bool {
	if version == scalar {
		return false
	}
	switch data := any(p.Data).(type) {
	case []float32:
		choose(version, crossedFloat32AVX2, crossedFloat32AVX512)(&sums[0], apart, &data[0], &p.Mean[0],
			p.Passes, p.Stride, p.Inputs, p.Classes, p.Width, &fixed[0], stride, n, first)
	case []float64:
		choose(version, crossedFloat64AVX2, crossedFloat64AVX512)(&sums[0], apart, &data[0], &p.Mean[0],
			p.Passes, p.Stride, p.Inputs, p.Classes, p.Width, &fixed[0], stride, n, first)
	}
	return true
}

// fewValues is the number of values up to which a change to wider registers, which takes some time,
// does not pay: their columns may just have run in those of AVX2.
const fewValues = 256

// vectorPlain implements Plain with float32 sums.
func vectorPlain(rows []float32, classes int, tolerance float64) bool {
	// A sum of K values >= 0, added up in depth steps, has a relative error of at most depth/2^24.
	// At least eight lanes are added up separately, and then together.
	depth := float64(classes/8 + 8)
	bound := depth * 0x1p-24 * (1 + tolerance)
	if version == scalar || classes < 2 || !(tolerance > 8*bound) {
		return scalarPlain(rows, classes, tolerance)
	}
	limit, n := float32(tolerance-bound), len(rows)
	version, floats, narrow := version, 16, 5
	if version == avx2 || n <= fewValues {
		version, floats, narrow = avx2, 8, 4
	}
	switch {
	case classes == 2 && n >= 2*floats:
		return choose(version, plainTwoAVX2, plainTwoAVX512)(&rows[0], n, limit)
	case classes == 4 && n >= 4*floats:
		return choose(version, plainFourAVX2, plainFourAVX512)(&rows[0], n, limit)
	case classes <= narrow && n < classes+floats-1:
		return scalarPlain(rows, classes, tolerance)
	case classes <= narrow:
		begin, step := &begins[version][classes], floats/classes*classes
		return choose(version, plainNarrowAVX2, plainNarrowAVX512)(&rows[0], n, classes, step, &begin.first, &begin.last, limit)
	case version == avx512 && classes >= 48: // shorter rows would leave too much of a register empty
		return plainWideAVX512(&rows[0], n/classes, classes, limit)
	case classes < 8 || n < 8*classes:
		return plainWideAVX2(&rows[0], n/classes, classes, limit)
	}
	return choose(version, plainEightAVX2, plainEightAVX512)(&rows[0], n/classes, classes, limit)
}

// lanesOfRows says in which lanes of a register rows begin, as masks of the bits of an absolute
// value: first if a row begins in the first lane, last if one begins in the last lane.
type lanesOfRows struct{ first, last [16]uint32 }

// begins holds lanesOfRows by version and number of classes.
var begins = func() (b [avx512 + 1][6]lanesOfRows) {
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

func vectorInverseRoots(dst, mean []float64) bool {
	if version == scalar {
		return false
	}
	version := version
	if len(mean) <= halfLanes {
		version = avx2
	}
	choose(version, inverseRootsAVX2, inverseRootsAVX512)(&dst[0], &mean[0], len(mean))
	return true
}

func vectorConfusions(shares, terms []float64, m *Matrix) bool {
	if version == scalar {
		return false
	}
	choose(version, confusionsAVX2, confusionsAVX512)(&shares[0], &terms[0], &m.Sums[0], &m.Scales[0], &m.Roots[0], &m.Weights[0],
		m.Inputs, m.Rows, m.Width, m.Apart, m.WeightsApart)
	return true
}

// vectorSum adds up the first values in groups of eight, and returns how many they are.
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
