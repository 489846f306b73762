package earlystop

import (
	"fmt"
	"math"
	"slices"
)

// Statistic names a statistic, as a policy does.
type Statistic string

// StatisticNames are the names of the statistics, by their places.
var StatisticNames = [Count]Statistic{Own: "own", Other: "other", Peak: "peak", Doubt: "doubt", Margin: "margin"}

func (s Statistic) place() int { return slices.Index(StatisticNames[:], s) }

// Form is a rule in numbers that a person can read. Between two numbers of passes with a boundary,
// everything is interpolated linearly in log(passes). There are two sums of terms, one for inputs
// that would be retained and one for those that would be deferred; an input is decided if the sum
// is at most the boundary.
type Form struct {
	// The rule, after rising numbers of passes. Between two boundaries, they and the weights are
	// interpolated linearly in the logarithm of the passes; before the first and after the last nothing
	// is decided.
	Boundaries []Boundary `key:"boundaries,required"`
	// The terms of the sum for inputs that would be retained: it is low where later passes hardly change
	// that. No product of statistics stands in a sum twice.
	Retain []Term `key:"retain"`
	// The same for inputs that would be deferred.
	Defer []Term `key:"defer"`
}

// Boundary holds the largest sums that decide after so many passes; -Never for none.
type Boundary struct {
	// The passes that the input has: at least passes.fewest, fewer than passes.expected.
	Passes int `key:"passes,required" range:"2..999"`
	// The largest sum of the terms of retain at which an input that would be retained is decided early;
	// -1e6 for never.
	Retain float64 `key:"retain,required" range:"-1e6..1e6"`
	// The same for defer, and inputs that would be deferred.
	Defer float64 `key:"defer,required" range:"-1e6..1e6"`
}

// Term is a weight times one statistic, or times the product of two.
type Term struct {
	// The statistic, as the Go package policy/earlystop defines it.
	Of Statistic `key:"of,required"`
	// The statistic that it is multiplied by; none for none.
	Times Statistic `key:"times"`
	// The weight at the first boundary.
	Weight float64 `key:"weight,required" range:"-1e6..1e6"`
	// The weight at the last boundary, if it is another.
	Last *float64 `key:"last,spelled" range:"-1e6..1e6"`
}

// AtLast returns the weight at the last boundary.
func (t *Term) AtLast() float64 {
	if t.Last == nil {
		return t.Weight
	}
	return *t.Last
}

// Numbers returns how many numbers were fitted: weights and boundaries.
func (f *Form) Numbers() (n int) {
	for _, terms := range [][]Term{f.Retain, f.Defer} {
		n += len(terms)
		for _, t := range terms {
			if t.Last != nil {
				n++
			}
		}
	}
	for _, b := range f.Boundaries {
		for _, at := range []float64{b.Retain, b.Defer} {
			if at > -Never {
				n++
			}
		}
	}
	return n
}

// Place returns the place of the term of two statistics among the coefficients of a Side, in either
// order; times is negative for none.
func Place(place, times int) int {
	if times < 0 {
		return 1 + place
	}
	i, j := min(place, times), max(place, times)
	at := 1 + Count
	for a := range i {
		at += Count - a
	}
	return at + j - i
}

// Place returns the place of the term among the coefficients of a Side; 0 if it names no statistics.
func (t *Term) Place() int {
	of, times := t.Of.place(), t.Times.place()
	if of < 0 || t.Times != "" && times < 0 {
		return 0
	}
	return Place(of, times)
}

// Check reports what is wrong with a form whose numbers are each within their range.
func (f *Form) Check() error {
	for i, b := range f.Boundaries {
		if i > 0 && b.Passes <= f.Boundaries[i-1].Passes {
			return fmt.Errorf("boundary after %d passes: expected more than at the one before, %d", b.Passes, f.Boundaries[i-1].Passes)
		}
	}
	for _, terms := range [][]Term{f.Retain, f.Defer} {
		var seen [Terms]bool
		for _, t := range terms {
			if seen[t.Place()] {
				return fmt.Errorf("term of %q and %q: expected it once", t.Of, t.Times)
			}
			seen[t.Place()] = true
		}
	}
	return nil
}

// Rule returns the rule in the form, for inputs of the given number of passes, which has to be
// above that of the last boundary. The form has to be one that Check accepts.
func (f *Form) Rule(passes int, patience float64) Rule {
	bounds := f.Boundaries
	first, last := bounds[0].Passes, bounds[len(bounds)-1].Passes
	r := Rule{Passes: passes, Fewest: first, Patience: patience, Steps: make([]Step, passes-first), Form: f}
	at := 0
	for i := range r.Steps {
		s, t := &r.Steps[i], first+i
		*s = NoStep()
		if t > last {
			continue
		}
		for at+1 < len(bounds) && t >= bounds[at+1].Passes {
			at++
		}
		low, high := bounds[at], bounds[min(at+1, len(bounds)-1)]
		s.Retain.AtMost = between(low.Retain, high.Retain, part(t, low.Passes, high.Passes))
		s.Defer.AtMost = between(low.Defer, high.Defer, part(t, low.Passes, high.Passes))
		whole := part(t, first, last)
		s.Retain.weigh(f.Retain, whole)
		s.Defer.weigh(f.Defer, whole)
	}
	return r
}

// weigh sets the coefficients of the terms at a part of the way from the first boundary to the
// last. A side without a boundary needs none.
func (s *Side) weigh(terms []Term, part float64) {
	if s.AtMost == -Never {
		return
	}
	for _, t := range terms {
		s.Coefficients[t.Place()] = between(t.Weight, t.AtLast(), part)
	}
}

// part returns how far log(t) is from log(low) to log(high), from 0 to 1.
func part(t, low, high int) float64 {
	switch {
	case t <= low:
		return 0
	case t >= high:
		return 1
	}
	return math.Log(float64(t)/float64(low)) / math.Log(float64(high)/float64(low))
}

// between interpolates. Nothing lies between a boundary and none.
func between(low, high, part float64) float64 {
	switch {
	case part == 0 || low == high:
		return low
	case part == 1:
		return high
	case low == -Never || high == -Never:
		return -Never
	}
	return low + float64(part*(high-low)) // the conversion forbids a fused product, which rounds otherwise
}
