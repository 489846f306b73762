package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/policy"
)

// Objective says what a calibration is for: a coverage, a budget of reviews, a ratio of costs, or bounds
// on misses. Several bounds hold at the same time.
type Objective struct {
	// Coverage, in (0,1], is the share of inputs to be retained, with as few misses as possible.
	Coverage float64
	// Reviews, in (0,1], is the share of inputs that people look at in all, where they review critical
	// calls whatever the policy says: the inputs deferred, and those called critical that are kept.
	// What critical calls leave of it goes to inputs called safe. It takes the place of Coverage, and
	// needs Options.CriticalCalls to be eval.Reviewed.
	Reviews float64 `json:",omitempty"`
	// CostRatio, above 1, says how many reviews a miss costs. An input called safe is deferred when
	// its risk is above 1/CostRatio, which makes the expected cost least if a review finds the miss.
	CostRatio float64
	// Limits bound misses, with the confidence of all together, in (0,1).
	Limits     []Limit
	Confidence float64
}

// Limit bounds a share of critical inputs: the critical miss rate, of all critical inputs, or the
// critical FNR, of the retained ones.
type Limit struct {
	Class  string // the only true class that counts; empty for all critical ones
	Bounds policy.Figure
	// Most, in (0,1), is the largest share.
	Most float64
}

// String returns a limit as flags have it.
func (l Limit) String() string {
	class := ""
	if l.Class != "" {
		class = l.Class + "="
	}
	return fmt.Sprintf("max-%s %s%v", strings.TrimSuffix(string(l.Bounds), "-rate"), class, l.Most)
}

// coverage returns the share of inputs that nobody looks at, 0 where the objective has none: the
// coverage itself, or what is left of all inputs by a budget of reviews.
func (o *Objective) coverage() float64 {
	if o.Reviews > 0 {
		return 1 - o.Reviews
	}
	return o.Coverage
}

// String returns the objective in words.
func (o Objective) String() string {
	switch {
	case o.Coverage > 0:
		return fmt.Sprintf("coverage %v", o.Coverage)
	case o.Reviews > 0:
		return fmt.Sprintf("reviews-per-1000 %v in all", perMille(o.Reviews))
	case o.CostRatio > 0:
		return fmt.Sprintf("cost-ratio %v", o.CostRatio)
	}
	var limits []string
	for _, l := range o.Limits {
		limits = append(limits, l.String())
	}
	return fmt.Sprintf("%s at confidence %v", strings.Join(limits, ", "), o.Confidence)
}

func (o *Objective) check() error {
	inside := func(x float64) bool { return x > 0 && x < 1 }
	switch {
	case index(o.Coverage != 0)+index(o.Reviews != 0)+index(o.CostRatio != 0)+index(len(o.Limits) > 0) != 1:
		return errors.New("expected exactly one objective: a coverage, a budget of reviews, a cost ratio, or bounds on the critical miss rate and the critical FNR")
	case o.Coverage != 0 && !(o.Coverage > 0 && o.Coverage <= 1):
		return fmt.Errorf("coverage %v: expected a share above 0 and at most 1", o.Coverage)
	case o.Reviews != 0 && !inside(o.Reviews):
		return fmt.Errorf("reviews %v: expected a share above 0 and below 1", o.Reviews)
	case o.CostRatio != 0 && !(o.CostRatio > 1 && !math.IsInf(o.CostRatio, 1)):
		return fmt.Errorf("cost ratio %v: expected the number of reviews that a miss costs, above 1", o.CostRatio)
	case len(o.Limits) > 0 && !inside(o.Confidence):
		return fmt.Errorf("confidence %v: expected a share above 0 and below 1", o.Confidence)
	}
	return nil
}

// checkLimits wants every limit to be a share, of all critical classes or of one of them, and only one
// for each.
func checkLimits(limits []Limit, base *policy.Policy) error {
	figures := []policy.Figure{policy.CriticalMissRate, policy.CriticalFNR}
	for i, l := range limits {
		k := slices.Index(base.Classes, l.Class)
		switch {
		case !slices.Contains(figures, l.Bounds):
			return fmt.Errorf("limit on %q: expected one of %v", l.Bounds, figures)
		case !(l.Most > 0 && l.Most < 1):
			return fmt.Errorf("limit of %v: expected a share above 0 and below 1", l.Most)
		case l.Class != "" && k < 0:
			return fmt.Errorf("limit of class %q: model %s has no such class", l.Class, base.Name)
		case l.Class != "" && !slices.Contains(base.Critical, k):
			return fmt.Errorf("limit of class %q: it is not critical, expected a critical class", l.Class)
		case slices.ContainsFunc(limits[:i], func(before Limit) bool { return before.Class == l.Class && before.Bounds == l.Bounds }):
			return fmt.Errorf("%s: given twice, expected once", l)
		}
	}
	return nil
}

// budget names the coverage or the reviews that the objective asks for.
func (o *Objective) budget() string {
	if o.Reviews == 0 {
		return fmt.Sprintf("coverage %v", o.Coverage)
	}
	return fmt.Sprintf("%v reviews per 1,000 inputs in all", perMille(o.Reviews))
}

// perMille returns a share of inputs per 1,000, without the last digits that division leaves.
func perMille(share float64) float64 { return math.Round(1e9*share) / 1e6 }

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
