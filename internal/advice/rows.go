package advice

import (
	"fmt"
	"math"
	"slices"
)

// Rows holds what some rows look like. Its zero value has seen none.
type Rows struct {
	looks     [looks]int // rows that have each look
	off       float64    // how far rounded rows are from a sum of 1, and values from [0,1], at most
	low, high float64    // of the sums of counts and other positive rows
	within    bool       // every value is in [0,1]
	seen      bool
}

// look is what a row looks like.
type look int

const (
	notFinite   look = iota
	rounded          // probabilities that were rounded
	sigmoids         // values in [0,1] with another sum
	logs             // logarithms of probabilities
	signed           // sums to 1 with negative values
	logits           // has other negative values
	percentages      // sums to 100
	counts           // whole numbers
	positive         // other values that are not negative
	looks
)

const (
	// near is how far the sums of rounded rows may be from 1. It is the widest tolerance that policies
	// accept.
	near = 0.1
	// outside is how far rounding may take a probability out of [0,1].
	outside = 0.02
	// alike is by which share the sums of rows may differ that are all meant to be the same.
	alike = 0.01
)

// Add adds a row of at least one value.
func (r *Rows) Add(row []float64) {
	sum, exps, whole := 0.0, 0.0, true
	for _, v := range row {
		sum += v
		exps += math.Exp(v)
		whole = whole && v == math.Trunc(v)
	}
	least, most := slices.Min(row), slices.Max(row)
	look := positive
	switch {
	case math.IsNaN(sum) || math.IsInf(sum, 0):
		look = notFinite
	case least >= -outside && most <= 1+outside:
		if look = sigmoids; math.Abs(sum-1) <= near {
			look = rounded
			r.off = max(r.off, math.Abs(sum-1), -least, most-1)
		}
	case least < 0 && most <= 0 && math.Abs(exps-1) <= near:
		look = logs
	case least < 0 && math.Abs(sum-1) <= near:
		look = signed
	case least < 0:
		look = logits
	case math.Abs(sum-100) <= 1:
		look = percentages
	case whole:
		look = counts
	}
	if look == counts || look == positive {
		if r.looks[counts]+r.looks[positive] == 0 {
			r.low, r.high = sum, sum
		}
		r.low, r.high = min(r.low, sum), max(r.high, sum)
	}
	r.looks[look]++
	r.within = (r.within || !r.seen) && least >= -outside && most <= 1+outside
	r.seen = true
}

// Advice says what most of the rows may be, and what to do. It is a question and an instruction, such
// as "percentages? divide by 100"; empty where no row was added.
func (r *Rows) Advice() string {
	if !r.seen {
		return ""
	}
	const declare = "these may be logits (--kind logits, or kind: logits in the policy)"
	switch r.usual() {
	case notFinite:
		return "NaN or infinite? look for overflow in the model, and at masks"
	case rounded:
		return r.rounding()
	case sigmoids:
		return "sigmoids of separate labels? send rows [1-p, p] for each (numpy: np.stack([1-a[..., k], a[..., k]], axis=-1))"
	case logs:
		return "log-probabilities? declare kind logits, whose softmax gives the probabilities"
	case signed:
		return "they sum to 1 with values below 0, which no softmax gives: look at what is done after it"
	case percentages:
		return "percentages? divide by 100"
	case counts:
		return "votes or counts? divide each row by its sum"
	case positive:
		if r.looks[positive] > 1 && r.sumsAlike() {
			return fmt.Sprintf("all rows sum to about %.4g? divide by it", (r.low+r.high)/2)
		}
		return declare + " or concentrations (kind dirichlet)"
	}
	return declare
}

// usual returns what most of the rows look like.
func (r *Rows) usual() look { return look(slices.Index(r.looks[:], slices.Max(r.looks[:]))) }

// NotLogits reports whether the rows are surely no logits, though each of them might be: sigmoids,
// percentages, votes of equally many voters, or probabilities too coarsely rounded to be found input by
// input. Their softmax would be wrong without a word.
func (r *Rows) NotLogits() bool {
	if !r.seen {
		return false
	}
	switch r.usual() {
	case sigmoids:
		return r.within
	case rounded:
		return r.within && r.off > outside
	case counts:
		return r.looks[counts] > 1 && r.sumsAlike()
	case percentages:
		return true
	}
	return false
}

// sumsAlike reports whether all rows that are counts, or otherwise positive, have about the same sum.
func (r *Rows) sumsAlike() bool { return r.high <= (1+alike)*r.low }

// Row returns the advice on one row; empty if the row says too little, as one that may be of logits.
func Row(row []float64) string {
	var r Rows
	if r.Add(row); r.looks[logits]+r.looks[positive] > 0 {
		return ""
	}
	return r.Advice()
}

// rounding advises on rows of values in [0,1] that nearly sum to 1.
func (r *Rows) rounding() string {
	const question = "rounded? send float32"
	off := 2 * r.off // other rows may be farther off than those seen
	if off > near || off == 0 {
		return question
	}
	digit := math.Pow10(int(math.Floor(math.Log10(off))))
	return fmt.Sprintf("%s, or set sum_tolerance (--sum-tolerance) to %.1g", question, math.Ceil(off/digit-1e-9)*digit)
}

// Single advises on arrays that have one value for each pass and input in place of a row. join is the
// function of NumPy that makes rows of two such arrays: stack or concatenate.
func (r *Rows) Single(join string) string {
	if !r.seen || r.looks[notFinite] > 0 {
		return r.Advice()
	}
	if r.within {
		return fmt.Sprintf("sigmoids? give both classes: np.%s([1-a, a], axis=-1)", join)
	}
	return fmt.Sprintf("logits of one class against another? give both, with kind logits: np.%s([np.zeros_like(a), a], axis=-1)", join)
}
