package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

// TestGroupsStayTogether checks that folds and the two parts of a split divide the inputs between
// them, and no group.
func TestGroupsStayTogether(t *testing.T) {
	t.Parallel()
	o := options(t, Objective{Coverage: 0.5}, policy.AllInputs, 0)
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		given := make([]int, s.n)
		for i := range given {
			given[i] = rapid.IntRange(-3, 20).Draw(t, "group")
		}
		s.grouping = newGrouping(given, s.n)
		whole := func(parts []part, of part) {
			in := make(map[int]int)
			sum := 0
			for f, p := range parts {
				sum += p.n
				for _, i := range p.inputs() {
					if before, seen := in[given[i]]; seen && before != f {
						t.Fatalf("group %d is in parts %d and %d", given[i], before, f)
					}
					in[given[i]] = f
				}
			}
			if sum != of.n {
				t.Fatalf("the parts have %d inputs of %d", sum, of.n)
			}
		}
		p := drawPart(t, s)
		whole(s.foldsOf(p, rapid.IntRange(2, 6).Draw(t, "k"), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))), p)
		r := &run{sample: s, Options: o}
		r.Seed = rapid.Uint64Range(0, math.MaxInt64).Draw(t, "seed of the split")
		chooses, certifies := r.split()
		whole([]part{chooses, certifies}, s.all())
		groups := make(map[int]bool)
		for _, i := range chooses.inputs() {
			groups[given[i]] = true
		}
		if want := math.Round(float64(s.groups) / 3); float64(len(groups)) != want {
			t.Fatalf("%d groups choose, want %v of %d", len(groups), want, s.groups)
		}
	})
}
