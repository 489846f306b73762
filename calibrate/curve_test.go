package calibrate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

// TestIsotonic compares with the min-max formula (Robertson, Wright and Dykstra 1988, theorem
// 1.4.4): the value at i is the largest over a <= i of the least over b >= i of the mean from a to
// b. Values of tied scores are replaced by their mean first: thresholds rested on the order of hard
// votes in the file, and sorted by class it gave another policy.
func TestIsotonic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Float64Range(-2, 2)
		if rapid.Bool().Draw(t, "few values") {
			value = rapid.SampledFrom([]float64{-0.1, 0, 0.9})
		}
		values := rapid.SliceOfN(value, 0, 25).Draw(t, "values")
		got, scores := slices.Clone(values), make([]float64, len(values))
		tied := rapid.SampledFrom([]int{1, 3}).Draw(t, "tied")
		for i := range scores {
			scores[i] = float64(i / tied)
		}
		isotonic(got, scores)
		for tie := range slices.Chunk(values, tied) {
			sum := 0.0
			for _, v := range tie {
				sum += v
			}
			for i := range tie {
				tie[i] = sum / float64(len(tie))
			}
		}
		if !sort.Float64sAreSorted(got) {
			t.Fatalf("%v descends", got)
		}
		for i := range values {
			want := math.Inf(-1)
			for a := range i + 1 {
				least, sum := math.Inf(1), 0.0
				for b := a; b < len(values); b++ {
					sum += values[b]
					if b >= i {
						least = min(least, sum/float64(b-a+1))
					}
				}
				want = max(want, least)
			}
			if math.Abs(got[i]-want) > 1e-12 {
				t.Fatalf("at %d: %v, want %v", i, got[i], want)
			}
		}
	})
}

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

// TestThreshold checks that a threshold retains the first n of a column and no more than it must,
// and that it decides alike on scores that were computed in another way.
func TestThreshold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &column{score: drawScores(t, 0)}
		last := -1.0
		for n := range len(c.score) + 1 {
			threshold := c.threshold(n)
			retained := c.retained(threshold)
			// The first place from n on where neighbours are distinct, or an end of the column.
			want := n
			for want < len(c.score) && !(want == 0 && c.score[0] > 0 || want > 0 && distinct(c.score[want-1], c.score[want])) {
				want++
			}
			if retained != want {
				t.Fatalf("%v: the threshold %v for %d retains %d, want %d", c.score, threshold, n, retained, want)
			}
			if most := len(c.score); retained == most && most > 0 && threshold > c.score[most-1]*1.00001 {
				t.Fatalf("%v: the threshold %v for %d is far above all", c.score, threshold, n)
			}
			if threshold < last {
				t.Fatalf("%v: the threshold falls from %v to %v at %d", c.score, last, threshold, n)
			}
			last = threshold
			for _, v := range c.score {
				const apart = 4.9e-10 // half of what makes scores distinct
				if v != 0 && math.Abs(threshold-v) <= apart*v && v > 1e-300 {
					t.Fatalf("%v: the threshold %v is on the score %v", c.score, threshold, v)
				}
				for _, again := range []float64{v * (1 - 1e-12), v * (1 + 1e-12)} {
					if (again <= threshold) != (v <= threshold) {
						t.Fatalf("%v: the threshold %v decides %v and %v differently", c.score, threshold, v, again)
					}
				}
			}
		}
	})
}

// TestThresholdOfNothing checks that the threshold is 0 for an empty column, and where the first
// scores are 0, which no threshold defers.
func TestThresholdOfNothing(t *testing.T) {
	t.Parallel()
	for _, scores := range [][]float64{nil, {0}, {0, 0, 1}} {
		if got := (&column{score: scores}).threshold(0); got != 0 {
			t.Errorf("%v: %v, want 0", scores, got)
		}
	}
}

// TestSplit compares with a merge of the two columns one by one.
func TestSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *column {
			cost := rapid.SliceOfN(rapid.SampledFrom([]float64{-0.3, -0.1, 0, 0.2, 0.9}), 0, 12).Draw(t, name)
			slices.Sort(cost)
			return &column{score: make([]float64, len(cost)), cost: cost}
		}
		a, b := draw("a"), draw("b")
		type entry struct {
			cost     float64
			quantile [2]int // middle of the rank, over twice the length
			ofA      bool
		}
		var curve []entry
		for _, c := range []*column{a, b} {
			for rank, cost := range c.cost {
				curve = append(curve, entry{cost, [2]int{2*rank + 1, len(c.cost)}, c == a})
			}
		}
		slices.SortStableFunc(curve, func(x, y entry) int {
			return cmp.Or(cmp.Compare(x.cost, y.cost), x.quantile[0]*y.quantile[1]-y.quantile[0]*x.quantile[1])
		})
		ofA := 0
		for n := range len(curve) + 1 {
			if n > 0 && curve[n-1].ofA {
				ofA++
			}
			if got := split(a, b, n); got != ofA {
				t.Fatalf("a %v, b %v: %d of the first %d are of a, want %d", a.cost, b.cost, got, n, ofA)
			}
		}
	})
}

// TestFit checks that both thresholds rise along the path, so that retained inputs stay retained,
// and that without ties the path retains the n inputs that cost least.
func TestFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, scope, r := drawSample(t), drawScope(t), drawRule(t)
		p := drawPart(t, s)
		c := s.columnsOf(p, scope, []candidate{r}, s.hard(), true, 0.3)
		var costs []float64
		for side := range r.sides() {
			costs = append(costs, c.of[r.group()].by[side][r.score(side)].cost...)
		}
		slices.Sort(costs)
		last, was := thresholds{-1, -1}, map[int]bool{}
		for n := range len(costs) + 2 {
			fitted := c.fit(r, n)
			for side := range fitted {
				if fitted[side] < last[side] {
					t.Fatalf("threshold %d falls from %v to %v at %d", side, last[side], fitted[side], n)
				}
			}
			last = fitted
			for i := range s.n {
				now := s.retains(i, scope, r, fitted)
				if was[i] && !now {
					t.Fatalf("input %d is deferred again at %d", i, n)
				}
				was[i] = now
			}
			got := c.count(r, fitted)
			if got.retained < float64(min(n, len(costs))) {
				t.Fatalf("%v are retained, at least %d should", got.retained, n)
			}
			if int(got.retained) != n {
				continue // ties, or zeros
			}
			sum, least := 0.0, 0.0
			for side := range r.sides() {
				column := c.of[r.group()].by[side][r.score(side)]
				for _, cost := range column.cost[:column.retained(fitted[side])] {
					sum += cost
				}
			}
			for _, cost := range costs[:n] {
				least += cost
			}
			if math.Abs(sum-least) > 1e-9 {
				t.Fatalf("the first %d cost %v, the cheapest %v", n, sum, least)
			}
		}
	})
}

// TestColumns checks that a column has the inputs of a side in the order of its score, ties by
// input order, with sums over them. Costs are [missed] - f [critical], made not to descend.
func TestColumns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const f = 0.3
		s, scope, r := drawSample(t), drawScope(t), drawRule(t)
		p := drawPart(t, s)
		all := s.columnsOf(p, scope, []candidate{r}, s.hard(), true, f).of[r.group()].by
		for side := range r.sides() {
			values := s.table.Scores[r.score(side)]
			var inputs []int
			for _, i := range p.inputs() {
				if s.fate(i, scope, r.treatment()) == 0 && r.side(s.table, i) == side {
					inputs = append(inputs, i)
				}
			}
			slices.SortStableFunc(inputs, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
			want := &column{score: []float64{}, missed: []float64{0}, critical: []float64{0}, cost: []float64{}}
			for j, i := range inputs {
				missed, critical := float64(index(s.missed[i])), float64(index(s.critical[i]))
				want.score = append(want.score, values[i])
				want.missed = append(want.missed, want.missed[j]+missed)
				want.critical = append(want.critical, want.critical[j]+critical)
				want.cost = append(want.cost, missed-f*critical)
			}
			isotonic(want.cost, want.score)
			if got := all[side][r.score(side)]; !reflect.DeepEqual(got, want) {
				t.Fatalf("side %d: %+v, want %+v", side, got, want)
			}
		}
	})
}

// TestCount checks that counts over columns equal what the policy retains input by input, also with
// soft labels and with the inputs that no score decides.
func TestCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, scope, r := drawSample(t), drawScope(t), drawRule(t)
		p := drawPart(t, s)
		rng := rand.New(rand.NewPCG(1, 2))
		soft := &labels{make([]float64, s.n), make([]float64, s.n)}
		for i := range s.n {
			soft.critical[i] = rng.Float64()
			soft.missed[i] = rng.Float64() * soft.critical[i]
		}
		at := thresholds{rapid.Float64Range(0, 5).Draw(t, "primary threshold"), rapid.Float64Range(0, 5).Draw(t, "fallback threshold")}
		if r.sides() == 1 {
			at[byFallback] = at[byPrimary]
		}
		got := s.columnsOf(p, scope, []candidate{r}, soft, false, 0).count(r, at)
		fixed := s.fixedOf(p, scope, r.treatment(), soft)
		got.add(fixed.retained)
		var want counts
		decided := 0
		for _, i := range p.inputs() {
			if s.fate(i, scope, r.treatment()) == 0 {
				decided++
			}
			if s.retains(i, scope, r, at) {
				want.add(counts{1, soft.missed[i], soft.critical[i]})
			}
		}
		if got.retained != want.retained || math.Abs(got.missed-want.missed) > 1e-9 || math.Abs(got.critical-want.critical) > 1e-9 {
			t.Fatalf("counted %+v, want %+v", got, want)
		}
		if fixed.inputs != p.n-decided {
			t.Fatalf("%d inputs are decided by no score, want %d", fixed.inputs, p.n-decided)
		}
		if hard := s.count(p, scope, r, at); float64(hard.Retained) != want.retained || hard.Inputs != p.n {
			t.Fatalf("counted %+v, want %v retained of %d", hard, want.retained, p.n)
		}
	})
}

// TestDecided checks that inputs that no score decides are subtracted from the requested coverage.
func TestDecided(t *testing.T) {
	t.Parallel()
	p := part{n: 100}
	for _, c := range []struct {
		inputs, retained int
		coverage         float64
		want             int
	}{
		{0, 0, 0.8, 80}, {0, 0, 0.001, 1}, {0, 0, 0.801, 81}, {0, 0, 1, 100},
		{30, 30, 0.8, 50}, {30, 30, 0.2, 0}, {30, 0, 0.8, 70}, {30, 10, 0.8, 70}, {30, 10, 0.5, 40}, {100, 100, 0.5, 0},
	} {
		f := fixed{inputs: c.inputs, unseen: c.retained}
		if got := f.decided(c.coverage, p); got != c.want {
			t.Errorf("%+v: %d, want %d", c, got, c.want)
		}
	}
}

// TestSide checks that a gate hands an input to the fallback exactly when policy.Decide does: when
// the skewness that it reads is above the threshold, and not when it equals it.
func TestSide(t *testing.T) {
	t.Parallel()
	s := &sample{table: tableOf(3)}
	s.table.CriticalSkewness = []float64{0.3, 0.31, 0.9}
	for gate, want := range map[policy.Gate][]int{
		policy.Never: {0, 0, 0}, policy.AnyCritical: {0, 1, 1},
	} {
		for i := range 3 {
			if got := (candidate{gate: gate, reliability: 0.3}).side(s.table, i); got != want[i] {
				t.Errorf("%s, input %d: side %d, want %d", gate, i, got, want[i])
			}
		}
	}
}
