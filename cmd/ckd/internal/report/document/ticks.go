package document

import (
	"math"
	"strconv"
)

// tick is a labelled mark of an axis.
type tick struct {
	value float64
	label string
}

// marks returns the ticks of an axis, in ascending order.
func (a *Axis) marks() []tick { return a.Ticks.round(a.Min, a.Max) }

// round returns about t.About round numbers from low to high.
func (t Ticks) round(low, high float64) (ticks []tick) {
	step := roundStep((high - low) * t.Unit / float64(t.About))
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := math.Ceil(low*t.Unit/step - 1e-9); i*step <= high*t.Unit+1e-9*step; i++ {
		ticks = append(ticks, tick{value: i * step / t.Unit,
			label: strconv.FormatFloat(i*step+0, 'f', decimals, 64) + t.Sign}) // +0: never "-0"
	}
	return ticks
}

// roundStep returns the smallest of 1, 2, 5, 10 and so on, times a power of ten, that is at least
// step; 1 where step is no positive number.
func roundStep(step float64) float64 {
	if !(step > 0) || math.IsInf(step, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= step*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// RoundUp returns the end of an axis from 0 that has room for x, with about n ticks.
func RoundUp(x float64, n int) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 1
	}
	step := roundStep(x / float64(n))
	return step * math.Ceil(x/step-1e-9)
}
