package eval

import (
	"cmp"
	"math"
	"slices"
)

// Selective counts what a deferral rule retained of labelled inputs (appendix "Evaluation Metrics
// for Selective Prediction").
type Selective struct {
	Inputs   int // all of them
	Retained int
	Correct  int // retained, predicted class = true class
	Critical int // retained, true class critical
	Missed   int // of Critical, those predicted not critical
	// Called counts the retained inputs whose predicted class is critical, FalseCalls the calls
	// whose true class is not.
	Called, FalseCalls int
}

// Select counts inputs that have a true class, a predicted class and a mark whether they are
// retained. The three slices must have equal length. Predicting one critical class for another is
// no miss.
func Select(labels, predicted []int, retained []bool, critical []int) Selective {
	s := Selective{Inputs: len(labels)}
	for i, label := range labels {
		if !retained[i] {
			continue
		}
		s.Retained++
		if label == predicted[i] {
			s.Correct++
		}
		isCritical, called := slices.Contains(critical, label), slices.Contains(critical, predicted[i])
		s.Critical += index(isCritical)
		s.Missed += index(isCritical && !called)
		s.Called += index(called)
		s.FalseCalls += index(called && !isCritical)
	}
	return s
}

// Coverage returns the share of inputs retained.
func (s Selective) Coverage() float64 { return share(s.Retained, s.Inputs) }

// Accuracy returns the share of retained inputs that are predicted right (app-acc).
func (s Selective) Accuracy() float64 { return share(s.Correct, s.Retained) }

// CriticalFNR returns the share of the retained critical inputs that are predicted not critical
// (app-cfnr).
func (s Selective) CriticalFNR() float64 { return share(s.Missed, s.Critical) }

// share returns n/of, and 0 of nothing. Print the counts beside it.
func share(n, whole int) float64 {
	return ratio(float64(n), float64(whole))
}

// Kept returns how many of n inputs a coverage keeps: ceil(coverage*n). Where rounding alone lifts
// the product above a whole number, that number is kept.
func Kept(coverage float64, n int) int {
	return min(max(int(math.Ceil(coverage*float64(n)-1e-9)), 0), n)
}

// Lowest marks the n inputs with the lowest scores. Ties go to the earlier input.
func Lowest(scores []float64, n int) []bool {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	retained := make([]bool, len(scores))
	for _, i := range order[:n] {
		retained[i] = true
	}
	return retained
}

// Threshold returns a threshold that retains at least Kept(coverage, n) of n scores, when scores up
// to it are retained. It is the lowest middle of two neighbouring scores that does, so that no
// score is decided by rounding; the highest score where everything is retained. There must be at
// least one score.
func Threshold(scores []float64, coverage float64) float64 {
	sorted := slices.Sorted(slices.Values(scores))
	last := max(Kept(coverage, len(sorted)), 1) - 1
	for next := last + 1; next < len(sorted); next++ {
		if sorted[next] > sorted[last] {
			middle := sorted[last] + (sorted[next]-sorted[last])/2
			if middle == sorted[next] { // neighbouring numbers: nothing is between them
				return sorted[last]
			}
			return middle
		}
	}
	return sorted[last]
}
