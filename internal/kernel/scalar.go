package kernel

import "math"

// Float is a type that values may have.
type float interface{ float32 | float64 }

const (
	// Epsilon is added to the mean where C divides by it.
	Epsilon = 1e-10
	// tiny is added to ratios so that none is 0, which has no exponent. It is too small to change
	// any other ratio.
	tiny = 0x1p-1000
	// Narrow is the sum over the passes of (p/mean-1)^2 under which Moments computes M from the other
	// moments: the terms left out are below 2^-42 of it.
	Narrow = 0x1p-40
)

// The logarithm is that of a ratio rounded to 16 steps in each power of 2, from tables, plus a
// polynomial for the rest.
const (
	logSteps = 16
	stepBits = 52 - 4 // bits of the mantissa below a step
	stepMask = 1<<stepBits - 1
	// shift is 1 plus half a step. A ratio multiplied by it, with the bits below a step cut off, is
	// rounded to the nearest step near 1, and elsewhere to a step that is relatively no farther
	// away.
	shift = 1 + 1./(2*logSteps)
)

// logs[j] is log(1+j/16).
var logs = [logSteps]float64{
	0,
	0.06062462181643484,
	0.11778303565638346,
	0.17185025692665923,
	0.22314355131420976,
	0.27193371548364176,
	0.3184537311185346,
	0.3629054936893685,
	0.4054651081081644,
	0.44628710262841953,
	0.4855078157817008,
	0.5232481437645479,
	0.5596157879354227,
	0.5947071077466928,
	0.6286086594223741,
	0.6613984822453650,
}

// inverses[j] is bits(1/(1+j/16)) + bits(1+j/16): less the bits of a step, it gives the bits of the
// step's inverse.
var inverses = func() (t [logSteps]uint64) {
	for j := range t {
		c := 1 + float64(j)/logSteps
		t[j] = math.Float64bits(1/c) + math.Float64bits(c)
	}
	return t
}()

// remainder holds the coefficients of a polynomial in t, the constant first, for ((1+t) log(1+t) -
// t)/t^2 with |t| <= 1/32. Its relative error is 1.1e-14.
var remainder = [...]float64{
	0.5000000000000009,
	-0.1666666666678504,
	0.08333333330997438,
	-0.049999989737007505,
	0.033333413809976155,
	-0.023831832549191252,
	0.017797558976899948,
}

// logarithm returns, for r = shift x > 0, the step s below r, log s and 1/s. Then x is within a
// 33rd of s, and with q = x-s and t = q/s
//
//	x log x - x = x log s - s + q t remainder(t).
//
// For x within a 34th of 1, s is 1 and log s is 0. Then x log x - x + 1 is a multiple of q^2, in
// which nothing cancels.
func logarithm(r float64) (s, logS, inverse float64) {
	bits := math.Float64bits(r) &^ stepMask
	j := bits >> stepBits & (logSteps - 1)
	exponent := float64(int64(bits>>52) - 1023)
	return math.Float64frombits(bits), math.FMA(exponent, math.Ln2, logs[j]), math.Float64frombits(inverses[j] - bits)
}

// polynomial returns remainder(t).
func polynomial(t float64) float64 {
	p := math.FMA(remainder[6], t, remainder[5])
	p = math.FMA(p, t, remainder[4])
	p = math.FMA(p, t, remainder[3])
	p = math.FMA(p, t, remainder[2])
	p = math.FMA(p, t, remainder[1])
	return math.FMA(p, t, remainder[0])
}

// xLogX returns x log x for 0 <= x <= 1.
func xLogX(x float64) float64 {
	s, logS, inverse := logarithm(math.FMA(x, shift, tiny))
	q := x + tiny - s
	t := float64(q * inverse)
	return math.FMA(x, logS, math.FMA(float64(q*t), polynomial(t), q))
}

// scalarMoments implements Moments.
func scalarMoments[T float](c *Columns, data []T, passes, width, stride int, divisor float64) {
	n := float64(passes)
	rn, rd := 1/n, 1/divisor
	data = data[:(passes-1)*stride+width]
	for j := range width {
		sum, other := 0.0, 0.0 // in turn, so that an addition need not wait for the one before
		for i := j; i < len(data); i += stride {
			sum, other = other+float64(data[i]), sum
		}
		mu, inv := float64((sum+other)*rn), 0.0
		if mu >= tiny {
			inv = 1 / mu
		}
		shifted := float64(inv * shift)

		var sd, m2, m3, logSum, rest, steps float64
		for i := j; i < len(data); i += stride {
			p := float64(data[i])
			d := p - mu
			d2 := float64(d * d)
			sd += d
			m2 += d2
			m3 = math.FMA(d2, d, m3)

			s, logS, inverse := logarithm(math.FMA(p, shifted, tiny))
			q := math.FMA(p, inv, -s)
			t := float64(q * inverse)
			logSum = math.FMA(p, logS, logSum)
			rest = math.FMA(float64(q*t), polynomial(t), rest)
			steps += s
		}
		c.finish(j, n, rn, rd, mu, inv, sd, m2, m3, logSum, rest, steps)
	}
}

// finish computes the results of a column from its sums about mu. mu is the mean but for its
// rounding; delta corrects it.
func (c *Columns) finish(j int, n, rn, rd, mu, inv, sd, m2, m3, logSum, rest, steps float64) {
	delta := float64(sd * rn)
	delta = math.FMA(math.FMA(-delta, n, sd), rn, delta) // sd/n, correctly rounded
	mean := mu + delta
	w := float64(sd * delta)
	m3 = math.FMA(-delta, math.FMA(-2, w, float64(3*m2)), m3)
	m2 -= w
	if !(m2 >= tiny) { // the values are equal up to rounding
		m2, m3 = 0, 0
	}

	variance := float64(m2 * rd)
	third := float64(m3 * rn)
	skewness := 0.0
	if spread := float64(float64(3*mean) * variance); spread > 0 {
		skewness = math.Abs(third) / spread
	}

	u2 := float64(float64(m2*inv) * inv)
	u3 := float64(float64(float64(m3*inv)*inv) * inv)
	divergence := math.FMA(logSum, inv, rest) + (n - steps)
	if u2 < Narrow {
		divergence = math.FMA(u3, -1./6, float64(0.5*u2))
	}

	c.Mean[j] = mean
	c.Variance[j] = variance
	c.ThirdMoment[j] = third
	c.C[j] = float64(0.5*variance) / (mean + Epsilon)
	c.Skewness[j] = skewness
	c.M[j] = float64(max(float64(mean*divergence), 0) * rn)
	c.MeanLogMean[j] = xLogX(mean)
}

// scalarRotated implements Rotated.
func scalarRotated[T float](sums []float64, apart int, data []T, passes, inputs, classes, stride int, mean []float64) {
	for r := 1; r <= classes/2; r++ {
		for i := range inputs {
			for c := range classes {
				a, b := i*classes+c, i*classes+(c+r)%classes
				sum := 0.0
				for at := 0; at < passes*stride; at += stride {
					sum = math.FMA(float64(data[at+b])-mean[b], float64(data[at+a])-mean[a], sum)
				}
				sums[(r-1)*apart+a] = sum
			}
		}
	}
}

// row returns the columns of input i in a pass.
func (p *Part[T]) row(i, pass int) []T { return p.Data[pass*p.Stride+i*p.Classes:][:p.Width] }

// scalarDeviations implements Deviations.
func scalarDeviations[T float](dst []float64, apart int, p *Part[T]) {
	for i := range p.Inputs {
		mean := p.Mean[i*p.Classes:][:p.Width]
		for pass := range p.Passes {
			to := dst[(i*p.Passes+pass)*apart:][:p.Width]
			for j, v := range p.row(i, pass) {
				to[j] = float64(v) - mean[j]
			}
		}
	}
}

// scalarCrossed implements Crossed.
func scalarCrossed[T float](sums []float64, apart int, p *Part[T], fixed []float64, stride, n int, first bool) {
	for i := range p.Inputs {
		mean := p.Mean[i*p.Classes:][:p.Width]
		for f := range n {
			out := sums[(i*n+f)*apart:][:p.Width]
			if first {
				clear(out)
			}
			for pass := range p.Passes {
				x := fixed[(i*p.Passes+pass)*stride+f]
				for j, v := range p.row(i, pass) {
					out[j] = math.FMA(x, float64(v)-mean[j], out[j])
				}
			}
		}
	}
}

// scalarPlain implements Plain with float64 sums, so that it takes nothing off the tolerance.
func scalarPlain(rows []float32, classes int, tolerance float64) bool {
	for ; len(rows) > 0; rows = rows[classes:] {
		sum := 0.0
		for _, p := range rows[:classes] {
			if !(p >= 0 && p <= 1) {
				return false
			}
			sum += float64(p)
		}
		if !(math.Abs(sum-1) <= tolerance) {
			return false
		}
	}
	return true
}
