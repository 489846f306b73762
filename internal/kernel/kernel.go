package kernel

// Columns holds what Moments computes: one number for each column.
type Columns struct {
	Mean        []float64 // mu = sum p / S
	Variance    []float64 // sum (p-mu)^2 / divisor
	ThirdMoment []float64 // sum (p-mu)^3 / S
	C           []float64 // Variance / (2 (mu + Epsilon)), nats
	Skewness    []float64 // |ThirdMoment| / (3 mu Variance); 0 for 0/0
	M           []float64 // sum (p log(p/mu) - p + mu) / S, nats
	MeanLogMean []float64 // mu log mu, nats

	block  []float64 // holds the vectors above, one after the other
	padded int
	aside  []float64 // scratch of vectorMoments
}

// lanes is the number of float64 in the largest register.
const lanes = 8

// fields is the number of vectors of Columns.
const fields = 7

// NewColumns returns Columns with room for n columns.
func NewColumns(n int) *Columns {
	c := &Columns{padded: Padded(n)}
	c.block = make([]float64, fields*c.padded)
	for i, to := range []*[]float64{&c.Mean, &c.Variance, &c.ThirdMoment, &c.C, &c.Skewness, &c.M, &c.MeanLogMean} {
		*to = c.block[i*c.padded:][:n:n]
	}
	return c
}

// Padded returns n rounded up to whole registers. The vectors of Columns have this length in
// memory; the padding holds no results.
func Padded(n int) int { return (n + lanes - 1) / lanes * lanes }

// Name returns the version that runs: "avx512", "avx2" or "scalar".
func Name() string { return version.String() }

// Moments computes the columns of a panel into c. Row s, of S = passes >= 1, is
// data[s*stride:][:width], with values in [0,1]. Moments goes over the passes of eight columns at a
// time, twice: for their means, and for sums about the means.
//
// The error is at most 1e-12 relative to the exact result for passes <= 1000, whatever the spread;
// of the third moment it is at most 1e-11 of the sum of its terms' sizes. A spread under 2^-500
// counts as none. A column whose values are all equal has that value as its Mean and exactly zero
// Variance, ThirdMoment, C, Skewness and M.
func Moments[T float](c *Columns, data []T, passes, width, stride int, divisor float64) {
	check(len(data), passes, width, stride)
	_ = c.Mean[:width]
	if width > 0 && !vectorMoments(c, data, passes, width, stride, divisor) {
		scalarMoments(c, data, passes, width, stride, divisor)
	}
	if passes <= 2 { // two values lie symmetrically about their mean: anything but 0 is rounding
		clear(c.ThirdMoment[:width])
		clear(c.Skewness[:width])
	}
}

// MaxRotated is the largest number of classes that Rotated takes.
const MaxRotated = 7

// Rotated writes to sums the sums over the passes of products of deviations within the inputs of a
// panel of few classes. For r = 1 to classes/2, and class c of input i, it is
//
//	sums[(r-1)*apart + i*classes+c] = sum (p_c - mean_c) (p_d - mean_d), d = (c+r) mod classes,
//
// so that every pair of classes is among them. It panics if classes > MaxRotated.
func Rotated[T float](sums []float64, apart int, data []T, passes, inputs, classes, stride int, mean []float64) {
	width := inputs * classes
	check(len(data), passes, width, stride)
	_, _ = sums[:(classes/2-1)*apart+width], mean[:width]
	if classes > MaxRotated {
		panic("kernel: too many classes to be rotated")
	}
	if width > 0 && passes > 0 && !vectorRotated(sums, apart, data, passes, inputs, classes, stride, mean) {
		scalarRotated(sums, apart, data, passes, inputs, classes, stride, mean)
	}
}

// Part describes the same neighbouring columns of each input of a panel: those of input i in pass s
// are Data[s*Stride+i*Classes:][:Width], and their means Mean[i*Classes:][:Width].
type Part[T float] struct {
	Data                   []T
	Mean                   []float64
	Passes, Stride         int
	Inputs, Classes, Width int
}

// Deviations writes p - mean of every value of a part to dst: that of column j of input i in pass s
// to dst[(i*Passes+s)*apart+j].
func Deviations[T float](dst []float64, apart int, p Part[T]) {
	if !p.check() {
		return
	}
	check(len(dst), p.Inputs*p.Passes, p.Width, apart)
	if !vectorDeviations(dst, apart, &p) {
		scalarDeviations(dst, apart, &p)
	}
}

// Crossed multiplies the columns of each input by deviations of n fixed columns, laid out as
// Deviations writes them. For input i, f < n and column j of a part, it adds to
// sums[(i*n+f)*apart+j] the sum over the passes s of fixed[(i*Passes+s)*stride+f] (p_j - mean_j).
// If first, it overwrites sums instead.
func Crossed[T float](sums []float64, apart int, p Part[T], fixed []float64, stride, n int, first bool) {
	if !p.check() || n <= 0 {
		return
	}
	check(len(sums), p.Inputs*n, p.Width, apart)
	check(len(fixed), p.Inputs*p.Passes, n, stride)
	if !vectorCrossed(sums, apart, &p, fixed, stride, n, first) {
		scalarCrossed(sums, apart, &p, fixed, stride, n, first)
	}
}

// Plain reports whether rows of K = classes values, one after the other, are surely good: every
// value is in [0,1], and every sum is within the tolerance of 1. It may reject a good row, because
// its rough float32 sums take something off the tolerance; the caller then has to check the rows
// one by one.
func Plain(rows []float32, classes int, tolerance float64) bool {
	if len(rows) == 0 || len(rows)%classes != 0 {
		return len(rows) == 0
	}
	return vectorPlain(rows, classes, tolerance)
}

// check panics if a panel exceeds its slice, which the assembly would not notice.
func check(values, passes, width, stride int) {
	if passes > 0 && (width > stride || (passes-1)*stride+width > values) {
		panic("kernel: the panel exceeds its values")
	}
}

// check panics if the part exceeds its slices, and reports whether it has columns.
func (p *Part[T]) check() bool {
	if p.Passes <= 0 || p.Inputs <= 0 || p.Width <= 0 {
		return false
	}
	width := (p.Inputs-1)*p.Classes + p.Width
	check(len(p.Data), p.Passes, width, p.Stride)
	_ = p.Mean[:width]
	return true
}
