package kernel

// Columns is what Moments computes, one number for each column.
type Columns struct {
	Mean        []float64 // mu = sum p / S
	Variance    []float64 // sum (p-mu)^2 / divisor
	ThirdMoment []float64 // sum (p-mu)^3 / S
	C           []float64 // Variance / (2 (mu + Epsilon)), nats
	Skewness    []float64 // |ThirdMoment| / (3 mu Variance); 0 where that is 0/0
	M           []float64 // sum (p log(p/mu) - p + mu) / S, nats
	MeanLogMean []float64 // mu log mu, nats

	block  []float64 // what they are cut from, one after the other
	padded int
	aside  []float64 // room for vectorMoments
}

// lanes of the largest register.
const lanes = 8

// fields of Columns, in their order.
const fields = 7

// NewColumns makes room for n columns.
func NewColumns(n int) *Columns {
	c := &Columns{padded: Padded(n)}
	c.block = make([]float64, fields*c.padded)
	for i, to := range []*[]float64{&c.Mean, &c.Variance, &c.ThirdMoment, &c.C, &c.Skewness, &c.M, &c.MeanLogMean} {
		*to = c.block[i*c.padded:][:n:n]
	}
	return c
}

// Padded is n rounded up to whole registers. The results of Moments are
// padded so; what is in the padding is nothing.
func Padded(n int) int { return (n + lanes - 1) / lanes * lanes }

// Name of the version that runs: "avx512", "avx2" or "scalar".
func Name() string { return version.String() }

// Moments computes the columns of a panel: row s, of S = passes >= 1, is
// data[s*stride:][:width], of values in [0,1]. It goes over the passes of eight
// columns at a time, twice: for their means, and for sums about those.
//
// Error: relative to the exact result 1e-12 for passes <= 1000 (of the third
// moment 1e-11 of the sum of its terms' sizes), whatever the spread; but one under 2^-500 is taken for none. Columns whose values are all equal have
// exactly zero Variance, ThirdMoment, C, Skewness and M, and that value as their
// Mean.
func Moments[T Float](c *Columns, data []T, passes, width, stride int, divisor float64) {
	check(len(data), passes, width, stride)
	_ = c.Mean[:width]
	if width > 0 && !vectorMoments(c, data, passes, width, stride, divisor) {
		scalarMoments(c, data, passes, width, stride, divisor)
	}
	if passes <= 2 { // which lie on both sides of their mean alike: what is there is rounding
		clear(c.ThirdMoment[:width])
		clear(c.Skewness[:width])
	}
}

// MostRotated is for how many classes at most Rotated is.
const MostRotated = 7

// Rotated is the sums over the passes of products of deviations within the inputs
// of a panel of few classes: for r = 1 to classes/2, and class c of input i,
//
//	sums[(r-1)*apart + i*classes+c] = sum (p_c - mean_c) (p_d - mean_d), d = (c+r) mod classes,
//
// so that every pair of classes is among them.
func Rotated[T Float](sums []float64, apart int, data []T, passes, inputs, classes, stride int, mean []float64) {
	width := inputs * classes
	check(len(data), passes, width, stride)
	_, _ = sums[:(classes/2-1)*apart+width], mean[:width]
	if classes > MostRotated {
		panic("kernel: too many classes to be rotated")
	}
	if width > 0 && passes > 0 && !vectorRotated(sums, apart, data, passes, inputs, classes, stride, mean) {
		scalarRotated(sums, apart, data, passes, inputs, classes, stride, mean)
	}
}

// Part is the same neighbouring columns of each input of a panel: those of input
// i in pass s are Data[s*Stride+i*Classes:][:Width], and their means
// Mean[i*Classes:][:Width].
type Part[T Float] struct {
	Data                   []T
	Mean                   []float64
	Passes, Stride         int
	Inputs, Classes, Width int
}

// Deviations writes p - mean of every value of a part to dst: of column j of input
// i in pass s to dst[(i*Passes+s)*apart+j].
func Deviations[T Float](dst []float64, apart int, p Part[T]) {
	if !p.check() {
		return
	}
	check(len(dst), p.Inputs*p.Passes, p.Width, apart)
	if !vectorDeviations(dst, apart, &p) {
		scalarDeviations(dst, apart, &p)
	}
}

// Crossed multiplies the columns of each input with deviations of n fixed ones,
// which lie as Deviations writes them: it adds to sums[(i*n+f)*apart+j], for input
// i, f < n and column j of a part, the sum over the passes s of
// fixed[(i*Passes+s)*stride+f] (p_j - mean_j); of the first passes it writes it there.
func Crossed[T Float](sums []float64, apart int, p Part[T], fixed []float64, stride, n int, first bool) {
	if !p.check() || n <= 0 {
		return
	}
	check(len(sums), p.Inputs*n, p.Width, apart)
	check(len(fixed), p.Inputs*p.Passes, n, stride)
	if !vectorCrossed(sums, apart, &p, fixed, stride, n, first) {
		scalarCrossed(sums, apart, &p, fixed, stride, n, first)
	}
}

// Plain reports whether rows of K = classes values, one after the other, are
// surely good: every value in [0,1], and every sum within the tolerance of 1. It
// may say no to a good row: its sums are rough, so that it takes some off the
// tolerance. Where it says no, the rows have to be looked at one by one.
func Plain(rows []float32, classes int, tolerance float64) bool {
	if len(rows) == 0 || len(rows)%classes != 0 {
		return len(rows) == 0
	}
	return vectorPlain(rows, classes, tolerance)
}

// check panics where a panel is not inside its slice: the versions in assembly
// would not notice.
func check(values, passes, width, stride int) {
	if passes > 0 && (width > stride || (passes-1)*stride+width > values) {
		panic("kernel: the panel exceeds its values")
	}
}

// check panics where the part is not inside its slices, and reports whether it
// has columns.
func (p *Part[T]) check() bool {
	if p.Passes <= 0 || p.Inputs <= 0 || p.Width <= 0 {
		return false
	}
	width := (p.Inputs-1)*p.Classes + p.Width
	check(len(p.Data), p.Passes, width, p.Stride)
	_ = p.Mean[:width]
	return true
}
