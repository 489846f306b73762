package calibrate

import (
	"math"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

// TestDistinct checks that two scores count as distinct from a relative distance of 1e-9 on.
func TestDistinct(t *testing.T) {
	t.Parallel()
	const least = math.SmallestNonzeroFloat64
	for _, c := range []struct {
		a, b float64
		want bool
	}{
		{0, 0, false}, {1, 1, false}, {0, least, true}, {0, 1e-300, true}, {least, 2 * least, true},
		{1, 1 + 0.9e-9, false}, {1, 1 + 1.1e-9, true}, {1e-200, 1e-200 * (1 + 1e-10), false}, {1e-200, 1e-200 * (1 + 1e-8), true},
	} {
		if got := distinct(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// drawScores draws ascending scores: with ties, neighbours that differ by rounding alone, zeros and
// numbers next to zero.
func drawScores(t *rapid.T, least int) []float64 {
	var scores []float64
	for range rapid.IntRange(least, 20).Draw(t, "scores") {
		v := rapid.SampledFrom([]float64{0, math.SmallestNonzeroFloat64, 1e-300, 1e-9, 0.1, 0.3, 0.7, 1.1}).Draw(t, "score")
		v *= 1 + rapid.SampledFrom([]float64{0, 1e-15, 3e-10, 1e-7, 0.5}).Draw(t, "apart")
		scores = append(scores, v)
	}
	slices.Sort(scores)
	return scores
}

// TestThreshold checks that a threshold retains the first n of a part and no more than it must,
// and that it decides alike on scores that were computed in another way.
func TestThreshold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scores := drawScores(t, 0)
		last := -1.0
		for n := range len(scores) + 1 {
			at := threshold(scores, n)
			retained := sort.Search(len(scores), func(i int) bool { return scores[i] > at })
			// The first place from n on where neighbours are distinct, or an end of the column.
			want := n
			for want < len(scores) && !(want == 0 && scores[0] > 0 || want > 0 && distinct(scores[want-1], scores[want])) {
				want++
			}
			if retained != want {
				t.Fatalf("%v: the threshold %v for %d retains %d, want %d", scores, at, n, retained, want)
			}
			if most := len(scores); retained == most && most > 0 && at > scores[most-1]*1.00001 {
				t.Fatalf("%v: the threshold %v for %d is far above all", scores, at, n)
			}
			if at < last {
				t.Fatalf("%v: the threshold falls from %v to %v at %d", scores, last, at, n)
			}
			last = at
			for _, v := range scores {
				const apart = 4.9e-10 // half of what makes scores distinct
				if v != 0 && math.Abs(at-v) <= apart*v && v > 1e-300 {
					t.Fatalf("%v: the threshold %v is on the score %v", scores, at, v)
				}
				for _, again := range []float64{v * (1 - 1e-12), v * (1 + 1e-12)} {
					if (again <= at) != (v <= at) {
						t.Fatalf("%v: the threshold %v decides %v and %v differently", scores, at, v, again)
					}
				}
			}
		}
	})
}

// TestPath checks that both thresholds rise along the path, so that retained inputs stay retained, and
// that both sides of a gate retain the same share of their own inputs, to within an input.
func TestPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, scope, rule := drawSample(t), drawScope(t), drawRule(t)
		p := drawPart(t, s)
		if p.n == 0 {
			return
		}
		way := s.path(p, scope, rule)
		last := thresholds{-1, -1}
		for step := range p.n + 1 {
			at := way.thresholds(float64(step) / float64(p.n))
			kept, share := 0, [2]float64{}
			for side := range rule.sides() {
				if at[side] < last[side] {
					t.Fatalf("the thresholds fall from %v to %v", last, at)
				}
				n := sort.SearchFloat64s(way.scores[side], math.Nextafter(at[side], math.Inf(1)))
				kept += n
				share[side] = float64(n) / float64(max(len(way.scores[side]), 1))
			}
			last = at
			if wanted := min(p.n-way.fixed, step-way.unseen); kept < wanted {
				t.Fatalf("%d are retained, %d are wanted", kept, wanted)
			}
			tied := func(scores []float64) bool {
				for i := range len(scores) - 1 {
					if !distinct(scores[i], scores[i+1]) {
						return true
					}
				}
				return len(scores) == 0 || scores[0] == 0
			}
			if rule.gate == policy.AnyCritical && !tied(way.scores[0]) && !tied(way.scores[1]) &&
				math.Abs(share[0]-share[1]) > 0.51*(1/float64(len(way.scores[0]))+1/float64(len(way.scores[1]))) {
				t.Fatalf("the sides retain shares of %v, of %d and %d inputs", share, len(way.scores[0]), len(way.scores[1]))
			}
		}
	})
}
