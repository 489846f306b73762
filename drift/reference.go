package drift

import (
	"math"
	"slices"
	"sort"
)

// Reference is what a calibration saw of a model.
type Reference struct {
	Inputs  int // m
	Classes []ClassReference
}

// ClassReference is what it saw of one class.
type ClassReference struct {
	Class     int       // in the model's order
	Epistemic Quantiles // of C_k, nats
	Skewness  Quantiles // of the skewness ratio
	Predicted float64   // share of the inputs whose predicted class this was
}

// Quantiles is a distribution: value i of n is its quantile of level i/(n-1), so
// that the first is the least value that was seen, and the last the greatest.
type Quantiles []float64

// Levels of a reference: enough that what lies between two of them, a 64th of the
// inputs, may be spread evenly without an error that a Monitor could see.
const Levels = 65

// NewQuantiles is the quantiles of values, at least one, none of them NaN: level q
// is the value of rank q(n-1), between two neighbours in proportion.
func NewQuantiles(values []float64) Quantiles {
	sorted := slices.Sorted(slices.Values(values))
	q := make(Quantiles, Levels)
	for i := range q {
		rank := float64(i) / (Levels - 1) * float64(len(sorted)-1)
		at := int(rank)
		q[i] = sorted[at]
		if within := rank - float64(at); within > 0 && sorted[at+1] > sorted[at] { // infinite values may be equal
			q[i] += within * (sorted[at+1] - sorted[at])
		}
	}
	return q
}

// Below is the share of the distribution that is under x, half of what is x
// exactly included: P(Y < x) + P(Y = x)/2, in [0,1].
func (q Quantiles) Below(x float64) float64 {
	under, upTo := q.share(x, false), q.share(x, true)
	return (under + upTo) / 2
}

// share is P(Y < x), or P(Y <= x) with x included.
func (q Quantiles) share(x float64, included bool) float64 {
	n := len(q) - 1
	var at int // of the first quantile that is beyond
	if included {
		at = sort.Search(len(q), func(i int) bool { return q[i] > x })
	} else {
		at = sort.SearchFloat64s(q, x)
	}
	switch {
	case at == 0:
		return 0
	case at > n:
		return 1
	}
	low, high := q[at-1], q[at]
	within := 0.0
	if high > low && !math.IsInf(high, 0) {
		within = (x - low) / (high - low)
	}
	return (float64(at-1) + min(max(within, 0), 1)) / float64(n)
}

// between is the mean of Below over what the distribution has from low up to high,
// which is not in it.
func (q Quantiles) between(low, high float64) float64 {
	return (q.share(low, false) + q.share(high, false)) / 2
}

// Ranks is Below of a distribution as a table: of all values that share their
// exponent and the first bits of their mantissa, on average.
type Ranks [(mostOctave - leastOctave) << perOctave]float32

const (
	perOctave   = 3   // bits: eight cells, each 6 to 12% wide
	leastOctave = -47 // what is under 2^-46, 1e-14, is taken for 0
	mostOctave  = 17  // and from 2^17 on all is the same
	rankShift   = 52 - perOctave
	leastRank   = (1023 + leastOctave) << perOctave
)

// NewRanks makes the table.
func NewRanks(q Quantiles) *Ranks {
	r := new(Ranks)
	low := math.Inf(-1)
	for cell := range r {
		high := math.Inf(1)
		if cell < len(r)-1 {
			high = math.Float64frombits(uint64(leastRank+cell+1) << rankShift)
		}
		r[cell] = float32(q.between(low, high))
		low = high
	}
	return r
}

// Of is the mean of Below over the values like v, which is at least 0. What is not a
// number has moved nowhere.
func (r *Ranks) Of(v float64) float64 {
	if v != v {
		return 0.5
	}
	cell := int(math.Float64bits(v)>>rankShift) - leastRank
	return float64(r[min(max(cell, 0), len(r)-1)])
}
