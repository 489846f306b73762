package kernel

import "math"

// Float is what values come as.
type Float interface{ float32 | float64 }

const (
	// Epsilon is added to the mean where C divides by it.
	Epsilon = 1e-10
	// tiny keeps ratios from being 0, whose exponent is none. It is too small to
	// change any other.
	tiny = 0x1p-1000
	// Narrow is the sum over the passes of (p/mean-1)^2 under which the divergence
	// is taken from the moments: the terms left out are below 2^-42 of it.
	Narrow = 0x1p-40
)

// The logarithm is taken of a ratio rounded to 16 steps in each power of 2, from
// tables, and the rest from a polynomial.
const (
	logSteps = 16
	stepBits = 52 - 4              // of the mantissa, under a step
	halfStep = 1 << (stepBits - 1) // added before the bits under a step are cut off
	stepMask = 1<<stepBits - 1
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

// inverses[j] is bits(1/(1+j/16)) + bits(1+j/16): less the bits of a step, those
// of its inverse.
var inverses = func() (t [logSteps]uint64) {
	for j := range t {
		c := 1 + float64(j)/logSteps
		t[j] = math.Float64bits(1/c) + math.Float64bits(c)
	}
	return t
}()

// remainder is the polynomial in t, from the constant on, for
// ((1+t) log(1+t) - t)/t^2 with |t| <= 1/32; its relative error is 1.1e-14.
var remainder = [...]float64{
	0.5000000000000009,
	-0.1666666666678504,
	0.08333333330997438,
	-0.049999989737007505,
	0.033333413809976155,
	-0.023831832549191252,
	0.017797558976899948,
}

// logarithm splits r > 0 at the nearest step s, of which it gives log s, and
// then, with t = q/s,
//
//	r' log r' - r' = r' log s - s + q t remainder(t)
//
// for the r' = s+q that is q's exact one. For r' within a 64th of 1, s is 1 and
// log s is 0, so that r' log r' - r' + 1 is q^2 times something, in which nothing
// cancels.
func logarithm(r float64) (s, logS float64, inverse uint64) {
	bits := (math.Float64bits(r) + halfStep) &^ stepMask
	j := bits >> stepBits & (logSteps - 1)
	exponent := float64(int64(bits>>52) - 1023)
	return math.Float64frombits(bits), math.FMA(exponent, math.Ln2, logs[j]), inverses[j] - bits
}

// polynomial is remainder(t).
func polynomial(t float64) float64 {
	p := remainder[len(remainder)-1]
	for i := len(remainder) - 2; i >= 0; i-- {
		p = math.FMA(p, t, remainder[i])
	}
	return p
}

// xLogX is x log x for 0 <= x <= 1.
func xLogX(x float64) float64 {
	r := x + tiny
	s, logS, inverse := logarithm(r)
	q := r - s
	t := q * math.Float64frombits(inverse)
	return math.FMA(x, logS, math.FMA(float64(q*t), polynomial(t), q))
}

// lanes is how many columns are worked on together: as many as fit into the
// registers of the other versions, so that all read memory alike.
const lanes = 8

// scalarMoments is Moments.
func scalarMoments[T Float](c *Columns, data []T, passes, width, stride int, divisor float64) {
	n := float64(passes)
	rn, rd := 1/n, 1/divisor
	for from := 0; from < width; from += lanes {
		w := min(lanes, width-from)
		var mu, inv, sd, m2, m3, acc, steps [lanes]float64
		for pass := range passes {
			for j, v := range data[pass*stride+from:][:w] {
				mu[j] += float64(v)
			}
		}
		for j := range w {
			mu[j] *= rn
			if mu[j] >= tiny {
				inv[j] = 1 / mu[j]
			}
		}
		for pass := range passes {
			for j, v := range data[pass*stride+from:][:w] {
				p := float64(v)
				d := p - mu[j]
				d2 := float64(d * d)
				sd[j] += d
				m2[j] += d2
				m3[j] = math.FMA(d2, d, m3[j])

				r := math.FMA(p, inv[j], tiny)
				s, logS, inverse := logarithm(r)
				q := math.FMA(p, inv[j], -s)
				t := float64(q * math.Float64frombits(inverse))
				acc[j] = math.FMA(r, logS, acc[j])
				acc[j] = math.FMA(float64(q*t), polynomial(t), acc[j])
				steps[j] += s
			}
		}
		for j := range w {
			c.finish(from+j, n, rn, rd, mu[j], inv[j], sd[j], m2[j], m3[j], acc[j], steps[j])
		}
	}
}

// finish turns the sums of a column into what they say. The sums are about mu,
// which is the mean but for its rounding: delta is that.
func (c *Columns) finish(j int, n, rn, rd, mu, inv, sd, m2, m3, acc, steps float64) {
	delta := float64(sd * rn)
	delta = math.FMA(math.FMA(-delta, n, sd), rn, delta) // sd/n, correctly rounded
	mean := mu + delta
	w := float64(sd * delta)
	m3 = math.FMA(-delta, math.FMA(-2, w, float64(3*m2)), m3)
	m2 = max(m2-w, 0)

	variance := float64(m2 * rd)
	third := float64(m3 * rn)
	skewness := 0.0
	if spread := float64(float64(3*mean) * variance); spread > 0 {
		skewness = math.Abs(third) / spread
	}

	u2 := float64(float64(m2*inv) * inv)
	u3 := float64(float64(float64(m3*inv)*inv) * inv)
	divergence := acc + (n - steps)
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

// scalarDeviations is Deviations.
func scalarDeviations[T Float](dst []float64, data []T, passes, width, stride int, mean []float64) {
	for pass := range passes {
		to := dst[pass*Padded(width):]
		for j, v := range data[pass*stride:][:width] {
			to[j] = float64(v) - mean[j]
		}
	}
}

// scalarProducts is Products.
func scalarProducts(sums, a, b []float64, passes, width, stride int) {
	for pass := range passes {
		x, y := a[pass*stride:][:width], b[pass*stride:][:width]
		for j := range sums[:width] {
			sums[j] = math.FMA(x[j], y[j], sums[j])
		}
	}
}

// scalarScaled is Scaled.
func scalarScaled(sums, a, b []float64, passes, width, stride int) {
	for pass := range passes {
		x, y := a[pass*stride], b[pass*stride:][:width]
		for j := range sums[:width] {
			sums[j] = math.FMA(x, y[j], sums[j])
		}
	}
}
