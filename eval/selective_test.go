package eval_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/eval"
)

func TestSelect(t *testing.T) {
	labels := []int{0, 0, 1, 2, 2, 1, 2}
	predicted := []int{0, 1, 1, 1, 0, 0, 0}
	retained := []bool{true, true, true, true, true, true, false}
	got := eval.Select(labels, predicted, retained, []int{1, 2})
	// Counted by hand: 6 are retained. Inputs 0 and 2 are right. Inputs 2 to 5 are critical; of
	// them 4 and 5 are predicted 0, and 3 is predicted as the other critical class, which is no
	// miss. Inputs 1 to 3 are called critical, 1 of them falsely.
	want := eval.Selective{Inputs: 7, Retained: 6, Correct: 2, Critical: 4, Missed: 2, Called: 3, FalseCalls: 1}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.CriticalFNR() != 0.5 || got.Accuracy() != 2./6 || got.Coverage() != 6./7 {
		t.Errorf("shares %v, %v, %v", got.CriticalFNR(), got.Accuracy(), got.Coverage())
	}
	if none := (eval.Selective{}); none.CriticalFNR() != 0 || none.Accuracy() != 0 || none.Coverage() != 0 {
		t.Error("a share of nothing is not 0")
	}
}

func TestKept(t *testing.T) {
	for _, c := range []struct {
		coverage float64
		n, want  int
	}{{0.8, 1063, 851}, {0.8, 10, 8}, {0.1 + 0.2, 10, 3}, {0, 10, 0}, {1, 10, 10}, {0.81, 10, 9}} {
		if got := eval.Kept(c.coverage, c.n); got != c.want {
			t.Errorf("coverage %v of %d keeps %d, want %d", c.coverage, c.n, got, c.want)
		}
	}
}

func TestThreshold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 60).Draw(t, "scores")
		scores := make([]float64, len(whole))
		for i, v := range whole {
			scores[i] = float64(v)
		}
		coverage := rapid.Float64Range(0.01, 1).Draw(t, "coverage")
		threshold := eval.Threshold(scores, coverage)
		kept, below, ties := 0, -1.0, false
		for _, s := range scores {
			if s <= threshold {
				kept++
				below = max(below, s)
			}
			ties = ties || s == threshold
		}
		want := max(eval.Kept(coverage, len(scores)), 1)
		if kept < want {
			t.Errorf("%d retained, want at least %d", kept, want)
		}
		without := 0 // retained if the highest retained score were deferred too
		for _, s := range scores {
			if s < below {
				without++
			}
		}
		if without >= want {
			t.Errorf("%d retained, though %d would do for %d", kept, without, want)
		}
		if ties && kept < len(scores) {
			t.Errorf("threshold %v is itself a score", threshold)
		}
	})
}
