package eval

import (
	"encoding/json"
	"math"
)

// Figure is a share, a mean, a correlation or an area. Where nothing is below its line it is NaN,
// which JSON has as null and reports show as n/a. It is never 0 there, and it must enter no mean,
// comparison or ranking: see Defined.
type Figure float64

// undefined is the figure of nothing.
var undefined = Figure(math.NaN())

// Defined reports whether there is something below the line.
func (f Figure) Defined() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON returns the number, or null where nothing is below the line.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Defined() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// less reports whether a figure is defined and lower than another. A defined figure is lower than
// an undefined one, so that the latter never wins.
func (f Figure) less(than Figure) bool { return f < than || f.Defined() && !than.Defined() }

// per returns the share n/of.
func per[N int | float64](n, of N) Figure { return quotient(float64(n), float64(of)) }

// quotient returns a/b, undefined where b is 0 or the result is no finite number.
func quotient(a, b float64) Figure {
	if r := a / b; b != 0 && !math.IsInf(r, 0) {
		return Figure(r)
	}
	return undefined
}

// defined returns the figures that are defined, as numbers.
func defined(figures []Figure) []float64 {
	var all []float64
	for _, f := range figures {
		if f.Defined() {
			all = append(all, float64(f))
		}
	}
	return all
}
