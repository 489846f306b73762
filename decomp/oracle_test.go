package decomp_test

import (
	"math"
	"math/big"
)

// This oracle computes in 400-bit arithmetic, from the definitions of the paper and from nothing in
// this package.

const oracleBits = 400

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(oracleBits).SetFloat64(x) }

func newBig() *big.Float { return new(big.Float).SetPrec(oracleBits) }

func toFloat(x *big.Float) float64 {
	f, _ := x.Float64()
	return f
}

// bigLog returns the natural logarithm of x > 0: log x = 2^r log(x^(1/2^r)). The root is near 1,
// where log y = 2 atanh((y-1)/(y+1)) converges fast.
func bigLog(x *big.Float) *big.Float {
	const roots = 40
	y := newBig().Set(x)
	for range roots {
		y.Sqrt(y)
	}
	r := newBig().Quo(newBig().Sub(y, bigOf(1)), newBig().Add(y, bigOf(1)))
	sq := newBig().Mul(r, r)
	sum, power := newBig(), newBig().Set(r)
	for i := 1; i < 80; i += 2 {
		sum.Add(sum, newBig().Quo(power, bigOf(float64(i))))
		power.Mul(power, sq)
	}
	sum.Mul(sum, bigOf(2))
	return sum.SetMantExp(sum, roots)
}

// xlogx returns x log x, and 0 for 0.
func xlogx(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return newBig()
	}
	return newBig().Mul(x, bigLog(x))
}

// oracleResult holds what the definitions give for one input.
type oracleResult struct {
	mean, variance, m3, absM3, c, skewness, m []float64
	entropy, expected, mi                     float64
	cov                                       [][]float64
	ova                                       []float64 // binary MI of each class
}

// oracle computes an input from passes[s][k]. Logarithms are slow, and computed only if withLogs.
func oracle(passes [][]float64, withLogs bool) oracleResult {
	s, k := len(passes), len(passes[0])
	n, n1 := bigOf(float64(s)), bigOf(float64(s-1))
	r := oracleResult{
		mean: make([]float64, k), variance: make([]float64, k), m3: make([]float64, k), absM3: make([]float64, k),
		c: make([]float64, k), skewness: make([]float64, k), m: make([]float64, k), ova: make([]float64, k),
		cov: make([][]float64, k),
	}
	mean := make([]*big.Float, k)
	dev := make([][]*big.Float, k)
	entropy, mi := newBig(), newBig()
	for j := range k {
		mean[j] = newBig()
		for _, p := range passes {
			mean[j].Add(mean[j], bigOf(p[j]))
		}
		mean[j].Quo(mean[j], n)
		m2, m3, abs3 := newBig(), newBig(), newBig()
		dev[j] = make([]*big.Float, s)
		for i, p := range passes {
			d := newBig().Sub(bigOf(p[j]), mean[j])
			dev[j][i] = d
			d2 := newBig().Mul(d, d)
			d3 := newBig().Mul(d2, d)
			m2.Add(m2, d2)
			m3.Add(m3, d3)
			abs3.Add(abs3, newBig().Abs(d3))
		}
		m2.Quo(m2, n1)
		m3.Quo(m3, n)
		r.mean[j], r.variance[j], r.m3[j] = toFloat(mean[j]), toFloat(m2), toFloat(m3)
		r.absM3[j] = toFloat(abs3.Quo(abs3, n))
		if mean[j].Sign() > 0 {
			r.c[j] = toFloat(newBig().Quo(m2, newBig().Mul(bigOf(2), newBig().Add(mean[j], bigOf(1e-10)))))
			if m2.Sign() > 0 {
				den := newBig().Mul(bigOf(3), newBig().Mul(mean[j], m2))
				r.skewness[j] = toFloat(newBig().Quo(newBig().Abs(m3), den))
			}
		}
		if withLogs {
			mk, rest := newBig(), newBig()
			for _, p := range passes {
				mk.Add(mk, xlogx(bigOf(p[j])))
				rest.Add(rest, xlogx(newBig().Sub(bigOf(1), bigOf(p[j]))))
			}
			r.expected -= toFloat(newBig().Quo(mk, n))
			mk.Sub(newBig().Quo(mk, n), xlogx(mean[j]))
			rest.Sub(newBig().Quo(rest, n), xlogx(newBig().Sub(bigOf(1), mean[j])))
			r.m[j] = toFloat(mk)
			r.ova[j] = toFloat(newBig().Add(mk, rest))
			mi.Add(mi, mk)
			entropy.Sub(entropy, xlogx(mean[j]))
		}
	}
	r.entropy, r.mi = toFloat(entropy), toFloat(mi)
	for a := range k {
		r.cov[a] = make([]float64, k)
		for b := range k {
			sum := newBig()
			for i := range s {
				sum.Add(sum, newBig().Mul(dev[a][i], dev[b][i]))
			}
			r.cov[a][b] = toFloat(sum.Quo(sum, n1))
		}
	}
	return r
}

// relative returns the relative error of got; it is 0 if both agree exactly, 0 included.
func relative(got, want float64) float64 {
	if got == want {
		return 0
	}
	return math.Abs(got-want) / math.Abs(want)
}

// within reports whether |got-want| <= rel*|want| or <= abs. NaN is within nothing.
func within(got, want, rel, abs float64) bool {
	d := math.Abs(got - want)
	return d <= rel*math.Abs(want) || d <= abs
}
