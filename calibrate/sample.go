package calibrate

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// sample holds a labelled table in the form that every step reads.
type sample struct {
	table *eval.Table
	n     int
	*grouping
	label []int // the true class
	// critical marks inputs whose true class is critical, missed those of them whose predicted class is
	// not, and correct those whose predicted class is the true one.
	critical, missed, correct []bool
	// predictedCritical inputs are never deferred in scope predicted-safe.
	predictedCritical []bool
	// countsReviews says that a coverage is what reviews leave, and that critical calls are reviewed
	// whether they are deferred or not. Only inputs called safe then use up what is to be deferred, and
	// scope all has the thresholds of scope predicted-safe.
	countsReviews bool
	// handled has the action for an input with identical passes, or 0 if its score decides.
	handled []policy.Action
	// order lists the inputs by each score, ascending; nil for an undefined score.
	order [numScores][]int32
	// risk of each input, as fitted to a part: see run.fit. It is nil before that, and where so few
	// critical inputs are called safe that nothing can be fitted.
	risk []float64
	// guard is the largest MI that is not unfamiliar; infinite for no guard.
	guard float64
}

// values returns the values of a score, nil for an undefined one.
func (s *sample) values(score decomp.Score) []float64 {
	if score == riskScore {
		return s.risk
	}
	return s.table.Scores[score]
}

// hasGuard reports whether any input could be unfamiliar.
func (s *sample) hasGuard() bool { return !math.IsInf(s.guard, 1) }

// unfamiliar reports whether a guard defers an input.
func (s *sample) unfamiliar(i int) bool { return s.table.Scores[decomp.MI][i] > s.guard }

func newSample(t *eval.Table, labels []int, degenerate, saturated policy.Handling) *sample {
	n := t.Inputs
	s := &sample{
		table: t, n: n, grouping: newGrouping(nil, n), label: labels, critical: make([]bool, n), missed: make([]bool, n),
		correct: make([]bool, n), predictedCritical: make([]bool, n), handled: make([]policy.Action, n),
	}
	set := make([]bool, t.K)
	for _, k := range t.Spec.Critical {
		set[k] = true
	}
	for i, label := range labels {
		s.critical[i], s.predictedCritical[i], s.correct[i] = set[label], set[t.Predicted[i]], label == t.Predicted[i]
		s.missed[i] = s.critical[i] && !s.predictedCritical[i]
		switch {
		case t.Saturated[i]:
			s.handled[i] = handling(saturated)
		case t.Degenerate[i]:
			s.handled[i] = handling(degenerate)
		}
	}
	for score, values := range t.Scores {
		if values == nil {
			continue
		}
		s.order[score] = ascending(values)
	}
	return s
}

// ascending returns the inputs in the order of their values; nil for nil.
func ascending(values []float64) []int32 {
	if values == nil {
		return nil
	}
	order := make([]int32, len(values))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(values[a], values[b]) })
	return order
}

// handling returns the action of a handling, or 0 if the score decides.
func handling(h policy.Handling) policy.Action {
	switch h {
	case policy.HandleDefer:
		return policy.Defer
	case policy.HandleRetain:
		return policy.Retain
	}
	return 0
}

// fate returns the action for an input that does not depend on its score, by the rules of
// policy.Decide. It returns 0 if the score decides.
func (s *sample) fate(i int, scope policy.Scope, rule candidate) policy.Action {
	switch {
	case rule.guarded && s.unfamiliar(i):
		return policy.Defer
	case (rule.keepsCalls() || scope == policy.PredictedSafe) && s.predictedCritical[i]:
		return policy.Retain
	}
	return s.handled[i]
}

// retains reports whether a candidate retains an input at some thresholds, as the policy made of
// them will.
func (s *sample) retains(i int, scope policy.Scope, r candidate, t thresholds) bool {
	if fate := s.fate(i, scope, r); fate != 0 {
		return fate == policy.Retain
	}
	side := r.side(s.table, i)
	return s.values(r.score(side))[i] <= t[side]
}

// selective counts what a rule that retains the marked inputs retains of a part.
func (s *sample) selective(p part, retained []bool) eval.Selective {
	c := eval.Selective{Inputs: p.n}
	for i, inside := range p.holds {
		if inside && retained[i] {
			c.Retained++
			c.Correct += index(s.correct[i])
			c.Critical += index(s.critical[i])
			c.Missed += index(s.missed[i])
			c.Called += index(s.predictedCritical[i])
			c.FalseCalls += index(s.predictedCritical[i] && !s.critical[i])
		}
	}
	return c
}

// missShares returns the critical miss rate and the critical FNR, with their 95% intervals, of a rule
// that retains the marked inputs of a part. A share of nothing is nil, and so is its interval.
func (s *sample) missShares(p part, retained []bool) (rate *float64, rateInterval *[2]float64, fnr *float64, fnrInterval *[2]float64) {
	missed, kept := make([]bool, s.n), make([]bool, s.n)
	for i := range s.n {
		missed[i], kept[i] = retained[i] && s.missed[i], retained[i] && s.critical[i]
	}
	rate, rateInterval = s.share(p, s.critical, missed)
	fnr, fnrInterval = s.share(p, kept, missed)
	return rate, rateInterval, fnr, fnrInterval
}

// share returns a share of some inputs of a part with its 95% interval: of those that count, how many
// are hits. Both are marks by input. It is nil where none counts.
func (s *sample) share(p part, counts, hits []bool) (*float64, *[2]float64) {
	t := s.newTally()
	for i, inside := range p.holds {
		if inside && counts[i] {
			t.Add(s.group[i], hits[i])
		}
	}
	if t.Cases == 0 {
		return nil, nil
	}
	share, interval := float64(t.Misses)/float64(t.Cases), t.Interval()
	return &share, &interval
}

// constant reports whether a score is the same for all inputs of a part.
func (s *sample) constant(p part, values []float64) bool {
	least, most := math.Inf(1), math.Inf(-1)
	for i, inside := range p.holds {
		if inside {
			least, most = min(least, values[i]), max(most, values[i])
		}
	}
	return !distinct(least, most)
}

func count(marks []bool) int {
	n := 0
	for _, m := range marks {
		n += index(m)
	}
	return n
}
