package calibrate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

// TestParts checks that folds, and the two parts of a split, divide the inputs between them but no
// group; that folds spread missed and other critical inputs evenly; and that a third chooses, whatever
// the labels are: otherwise the parts of a split would not be independent.
func TestParts(t *testing.T) {
	t.Parallel()
	o := options(t, Objective{Coverage: 0.5}, policy.AllInputs, 0)
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		if rapid.Bool().Draw(t, "grouped") {
			given := make([]int, s.n)
			for i := range given {
				given[i] = rapid.IntRange(-3, 20).Draw(t, "group")
			}
			s.grouping = newGrouping(given, s.n)
		}
		divided := func(parts []part, whole part) {
			partOf, inputs := map[int]int{}, 0
			for at, p := range parts {
				for _, i := range p.inputs() {
					inputs++
					if before, seen := partOf[s.group[i]]; seen && before != at || !whole.holds[i] {
						t.Fatalf("input %d of group %d is in parts %d and %d", i, s.group[i], before, at)
					}
					partOf[s.group[i]] = at
				}
			}
			if inputs != whole.n {
				t.Fatalf("the parts have %d inputs of %d", inputs, whole.n)
			}
		}
		p, k := drawPart(t, s), rapid.IntRange(1, 7).Draw(t, "folds")
		parts := s.foldsOf(p, k, newRand(rapid.Uint64().Draw(t, "seed"), streamOuter))
		divided(parts, p)
		for _, fold := range parts {
			for _, share := range []struct{ got, all int }{
				{fold.n, p.n}, {fold.count(s.missed), p.count(s.missed)}, {fold.count(s.critical) - fold.count(s.missed), p.count(s.critical) - p.count(s.missed)},
			} {
				if !s.grouped && math.Abs(float64(share.got)-float64(share.all)/float64(k)) >= 1 {
					t.Fatalf("a fold of %d has %d, of %d", k, share.got, share.all)
				}
			}
		}

		r := &run{sample: s, Options: o}
		r.Seed = rapid.Uint64Range(0, math.MaxInt64).Draw(t, "seed of the split")
		chooses, certifies := r.split()
		divided([]part{chooses, certifies}, s.all())
		groups := map[int]bool{}
		for _, i := range chooses.inputs() {
			groups[s.group[i]] = true
		}
		if want := math.Round(float64(s.groups) / 3); float64(len(groups)) != want {
			t.Fatalf("%d groups choose, want %v of %d", len(groups), want, s.groups)
		}
		for i := range s.n {
			s.critical[i], s.missed[i] = !s.critical[i], !s.critical[i]
		}
		if again, _ := r.split(); !slices.Equal(again.holds, chooses.holds) {
			t.Fatal("the split depends on the labels")
		}
	})
}
