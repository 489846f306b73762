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
	// MaxCriticalMiss, in (0,1), bounds the critical miss rate: the share of all critical inputs that
	// is retained and called safe.
	MaxCriticalMiss float64
	// MaxCriticalFNR, in (0,1), bounds the critical FNR: the share of the retained critical inputs
	// that is called safe.
	MaxCriticalFNR float64
	// ClassLimits bound the same of single critical classes.
	ClassLimits []ClassLimit
	// Confidence, in (0,1), is that of all bounds together.
	Confidence float64
}

// ClassLimit bounds a figure of a single critical class.
type ClassLimit struct {
	Class  string
	Bounds policy.Figure
	// Most, in (0,1), is the largest share.
	Most float64
}

// coverage returns the share of inputs that nobody looks at, 0 where the objective has none: the
// coverage itself, or what is left of all inputs by a budget of reviews.
func (o *Objective) coverage() float64 {
	if o.Reviews > 0 {
		return 1 - o.Reviews
	}
	return o.Coverage
}

// bounds returns the number of bounds on misses.
func (o *Objective) bounds() int {
	return index(o.MaxCriticalMiss != 0) + index(o.MaxCriticalFNR != 0) + len(o.ClassLimits)
}

// String returns the objective in words.
func (o Objective) String() string {
	var bounds []string
	add := func(flag string, of string, most float64) {
		bounds = append(bounds, fmt.Sprintf("max-%s %s%v", flag, of, most))
	}
	switch {
	case o.Coverage > 0:
		return fmt.Sprintf("coverage %v", o.Coverage)
	case o.Reviews > 0:
		return fmt.Sprintf("reviews-per-1000 %v in all", perMille(o.Reviews))
	case o.CostRatio > 0:
		return fmt.Sprintf("cost-ratio %v", o.CostRatio)
	}
	if o.MaxCriticalMiss > 0 {
		add("critical-miss", "", o.MaxCriticalMiss)
	}
	if o.MaxCriticalFNR > 0 {
		add("critical-fnr", "", o.MaxCriticalFNR)
	}
	for _, c := range o.ClassLimits {
		add(strings.TrimSuffix(string(c.Bounds), "-rate"), c.Class+"=", c.Most)
	}
	return fmt.Sprintf("%s at confidence %v", strings.Join(bounds, ", "), o.Confidence)
}

func (o *Objective) check() error {
	inside := func(x float64) bool { return x > 0 && x < 1 }
	bounds := o.bounds()
	switch {
	case index(o.Coverage != 0)+index(o.Reviews != 0)+index(o.CostRatio != 0)+index(bounds > 0) != 1:
		return errors.New("expected exactly one objective: a coverage, a budget of reviews, a cost ratio, or bounds on the critical miss rate and the critical FNR")
	case o.Coverage != 0 && !(o.Coverage > 0 && o.Coverage <= 1):
		return fmt.Errorf("coverage %v: expected a share above 0 and at most 1", o.Coverage)
	case o.Reviews != 0 && !inside(o.Reviews):
		return fmt.Errorf("reviews %v: expected a share above 0 and below 1", o.Reviews)
	case o.CostRatio != 0 && !(o.CostRatio > 1 && !math.IsInf(o.CostRatio, 1)):
		return fmt.Errorf("cost ratio %v: expected the number of reviews that a miss costs, above 1", o.CostRatio)
	case o.MaxCriticalMiss != 0 && !inside(o.MaxCriticalMiss):
		return fmt.Errorf("max-critical-miss %v: expected a share above 0 and below 1", o.MaxCriticalMiss)
	case o.MaxCriticalFNR != 0 && !inside(o.MaxCriticalFNR):
		return fmt.Errorf("max-critical-fnr %v: expected a share above 0 and below 1", o.MaxCriticalFNR)
	case bounds > 0 && !inside(o.Confidence):
		return fmt.Errorf("confidence %v: expected a share above 0 and below 1", o.Confidence)
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

// checkClasses wants every class with a limit to be critical, with one limit for each figure.
func (o *Objective) checkClasses(base *policy.Policy) error {
	type bound struct {
		class  string
		figure policy.Figure
	}
	seen := make(map[bound]bool)
	for _, c := range o.ClassLimits {
		k := slices.Index(base.Classes, c.Class)
		switch b := (bound{c.Class, c.Bounds}); {
		case c.Bounds != policy.CriticalMissRate && c.Bounds != policy.CriticalFNR:
			return fmt.Errorf("limit of class %q on %q: expected %s or %s", c.Class, c.Bounds, policy.CriticalMissRate, policy.CriticalFNR)
		case !(c.Most > 0 && c.Most < 1):
			return fmt.Errorf("limit %v of class %q: expected a share above 0 and below 1", c.Most, c.Class)
		case k < 0:
			return fmt.Errorf("limit of class %q: model %s has no such class", c.Class, base.Name)
		case !slices.Contains(base.Critical, k):
			return fmt.Errorf("limit of class %q: it is not critical, expected a critical class", c.Class)
		case seen[b]:
			return fmt.Errorf("two limits on the %s of class %q, expected one", c.Bounds, c.Class)
		default:
			seen[b] = true
		}
	}
	return nil
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
