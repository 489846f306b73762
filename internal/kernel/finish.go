package kernel

import "math"

// InverseRoots writes 1/sqrt(mean + Epsilon) to dst, with a relative error of 4e-16.
func InverseRoots(dst, mean []float64) {
	dst = dst[:len(mean)]
	if len(mean) > 0 && !vectorInverseRoots(dst, mean) {
		scalarInverseRoots(dst, mean)
	}
}

// Matrix describes sums of products for each input in Rows rows of Width columns: that of row f and
// column j of input i is Sums[(i*Rows+f)*Apart+j].
type Matrix struct {
	Sums                []float64
	Roots               []float64 // by column: Roots[i*Apart+j]
	Scales              []float64 // by row: Scales[i*Rows+f]
	Weights             []float64 // the same for all inputs: Weights[f*WeightsApart+j]
	Inputs, Rows, Width int
	Apart, WeightsApart int
}

// Confusions writes max(0, -sum) scale root for every sum to the same index of terms, and for every
// row the weighted sum of its terms to shares[i*Rows+f]. It adds up in the order of Sum for many
// values.
func Confusions(shares, terms []float64, m Matrix) {
	if m.Inputs <= 0 || m.Rows <= 0 || m.Width <= 0 {
		return
	}
	rows := m.Inputs * m.Rows
	check(len(terms), rows, m.Width, m.Apart)
	check(len(m.Sums), rows, m.Width, m.Apart)
	check(len(m.Roots), m.Inputs, m.Width, m.Apart)
	_, _, _ = shares[:rows], m.Scales[:rows], m.Weights[:(m.Rows-1)*m.WeightsApart+m.Width]
	if !vectorConfusions(shares, terms, &m) {
		scalarConfusions(shares, terms, &m)
	}
}

// ManyValues is the number of values from which on Sum adds up in parts.
const ManyValues = 2 * lanes

// Sum returns the sum of values. It adds few values in their order, and many in eight parts, of
// every eighth value each.
func Sum(values []float64) float64 {
	if len(values) < ManyValues {
		total := 0.0
		for _, v := range values {
			total += v
		}
		return total
	}
	var parts [lanes]float64
	done := vectorSum(&parts, values)
	scalarSum(&parts, values[done:])
	return together(&parts)
}

// rootGuess minus half the bits of x, taken as a number, are the bits of a value within 3.5% of
// 1/sqrt(x).
const rootGuess = 0x5fe6eb50c7b537a9

// scalarInverseRoots improves that guess three times by the series about it. A square root and a
// division would take four times as long.
func scalarInverseRoots(dst, mean []float64) {
	for j, mu := range mean {
		x := mu + Epsilon
		y := math.Float64frombits(rootGuess - math.Float64bits(x)>>1)
		for range 3 {
			e := math.FMA(-y, float64(x*y), 1)
			y = math.FMA(float64(y*e), math.FMA(0.375, e, 0.5), y)
		}
		dst[j] = y
	}
}

func scalarConfusions(shares, terms []float64, m *Matrix) {
	for row := range m.Inputs * m.Rows {
		roots, weights := m.Roots[row/m.Rows*m.Apart:], m.Weights[row%m.Rows*m.WeightsApart:]
		terms := terms[row*m.Apart:]
		var parts [lanes]float64
		for j, sum := range m.Sums[row*m.Apart:][:m.Width] {
			terms[j] = float64(float64(max(-sum, 0)*m.Scales[row]) * roots[j])
			parts[j%lanes] = math.FMA(weights[j], terms[j], parts[j%lanes])
		}
		shares[row] = together(&parts)
	}
}

func scalarSum(parts *[lanes]float64, values []float64) {
	for j, v := range values {
		parts[j%lanes] += v
	}
}

// together returns the sum of the parts.
func together(p *[lanes]float64) float64 {
	return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]))
}
