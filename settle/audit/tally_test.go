package audit

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestTally: passes are used or saved, whatever happens and in how many shards.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		passes := rapid.IntRange(1, 50).Draw(t, "passes")
		whole, shards := NewTally(passes), [2]*Tally{NewTally(passes), NewTally(passes)}
		inputs, late, forgone := uint64(0), uint64(0), uint64(0)
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			shard := shards[rapid.IntRange(0, 1).Draw(t, "shard")]
			used := rapid.IntRange(0, passes).Draw(t, "used")
			what := rapid.IntRange(0, 3).Draw(t, "what")
			for _, to := range []*Tally{whole, shard} {
				switch what {
				case 0:
					to.Settled(used)
				case 1:
					to.Full()
				case 2:
					to.Audited(used)
				case 3:
					to.Late++
				}
			}
			switch what {
			case 2:
				forgone += uint64(passes - used)
			case 3:
				late++
			}
			if what != 3 {
				inputs++
			}
		}
		sum := NewTally(passes)
		sum.Add(shards[0])
		sum.Add(shards[1])
		if !reflect.DeepEqual(sum, whole) {
			t.Fatalf("shards sum to %+v, expected %+v", sum, whole)
		}
		used, n := uint64(0), uint64(0)
		for passes, inputs := range sum.Used {
			used += uint64(passes) * inputs
			n += inputs
		}
		if n != inputs || used+sum.Saved != inputs*uint64(passes) || sum.Late != late || sum.Forgone != forgone {
			t.Fatalf("%+v of %d inputs of %d passes", sum, inputs, passes)
		}
		if used+late == 0 {
			return
		}
		if expected := float64(inputs*uint64(passes)) / float64(used+late); math.Abs(sum.Factor()-expected) > 1e-12*expected {
			t.Fatalf("factor %v, expected %v", sum.Factor(), expected)
		}
	})
}

// TestTallyFactor: 98 of 100 inputs settle after 5 of 30 passes, and two are audited:
// 3000 passes become 98*5 + 2*30 = 550.
func TestTallyFactor(t *testing.T) {
	tally := NewTally(30)
	if tally.Factor() != 1 {
		t.Errorf("without inputs the factor is %v", tally.Factor())
	}
	for range 98 {
		tally.Settled(5)
	}
	tally.Audited(5)
	tally.Audited(30)
	if tally.Saved != 98*25 || tally.Forgone != 25 || math.Abs(tally.Factor()-3000.0/550) > 1e-12 {
		t.Errorf("%+v, factor %v", tally, tally.Factor())
	}
	tally.Late = 98
	if math.Abs(tally.Factor()-3000.0/648) > 1e-12 {
		t.Errorf("with one late pass each, factor %v", tally.Factor())
	}
}

// TestTallyOutOfRange: passes beyond the last are the last.
func TestTallyOutOfRange(t *testing.T) {
	tally := NewTally(3)
	tally.Settled(9)
	tally.Settled(-1)
	tally.Audited(9)
	if tally.Used[3] != 2 || tally.Used[0] != 1 || tally.Saved != 3 || tally.Forgone != 0 {
		t.Errorf("%+v", tally)
	}
}
