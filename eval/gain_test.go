package eval_test

import (
	"math"
	"testing"

	"github.com/ckd-project/ckd/eval"
)

// TestGain compares with scipy.stats.hypergeom.sf(without-missed-1, eligible, without, deferred) of
// scipy 1.10.1.
func TestGain(t *testing.T) {
	for _, c := range []struct {
		name                                string
		without, missed, deferred, eligible int
		p                                   float64
		supports                            bool
	}{
		{"a clear gain", 85, 9, 423, 1635, 4.6592560657489776e-37, true},
		{"one miss of twenty saved", 20, 19, 4, 100, 0.5966617574864999, false},
		{"three of three still missed", 3, 3, 40, 200, 1, false},
		{"three of three saved", 3, 0, 40, 200, 0.007522460788792446, true},
		{"at the level", 1, 0, 20, 400, 0.05, true},
		{"over the level", 1, 0, 21, 400, 0.0525, false},
		{"four of seven saved", 7, 3, 200, 1000, 0.03282728557429326, true},
		{"everything deferred", 5, 0, 10, 10, 1, false},
		{"as many as by chance", 40, 30, 2000, 10000, 0.267899505812154, false},
		{"a large recording", 500, 380, 200000, 1000000, 0.016069712891818303, true},
		{"nothing missed without review", 0, 0, 20, 100, 1, false},
		{"nothing deferred", 5, 5, 0, 100, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := eval.NewGain(c.without, c.missed, c.deferred, c.eligible)
			if !(math.Abs(got.P-c.p) <= 1e-7*c.p) || got.Supports != c.supports { // 1e-7: Lgamma of a million
				t.Errorf("%+v, want p %v, supports %v", got, c.p, c.supports)
			}
		})
	}
}

// TestGainOfBest expects the p-value of the best of several rules to be multiplied by their number,
// once.
func TestGainOfBest(t *testing.T) {
	gain := eval.NewGain(7, 3, 200, 1000)
	if got := gain.OfBest(3).OfBest(2); got.P != 2*gain.P || got.Supports || got.Compared != 2 {
		t.Errorf("%+v after %+v", got, gain)
	}
	if got := gain.OfBest(1000); got.P != 1 {
		t.Errorf("p %v, want 1 at most", got.P)
	}
}

// TestGainByGroups expects misses of one group to be one piece of evidence, and groups of one input
// each to say about what independent inputs say: P(Bin(10,0.8) <= 3) = 0.0008643584 by
// scipy.stats.binom.cdf.
func TestGainByGroups(t *testing.T) {
	const inputs, without, saved = 1000, 10, 7
	missed, eligible, deferred := make([]bool, inputs), make([]bool, inputs), make([]bool, inputs)
	own, shared := make([]int, inputs), make([]int, inputs)
	for i := range inputs {
		missed[i], eligible[i] = i < without, true
		deferred[i] = i < saved || i >= inputs-(200-saved)
		own[i], shared[i] = i, max(i, without) // all that is missed is of one group
	}
	free := eval.GainOf(missed, eligible, deferred, nil)
	if want := eval.NewGain(without, without-saved, 200, inputs); free != want {
		t.Errorf("%+v, want %+v", free, want)
	}
	if got := eval.GainOf(missed, eligible, deferred, own); math.Abs(got.P-0.0008643584) > 1e-9 || !got.Supports {
		t.Errorf("groups of one: %+v", got)
	}
	if got := eval.GainOf(missed, eligible, deferred, shared); got.P < 0.2 || got.Supports {
		t.Errorf("one group: %+v, want no evidence", got)
	}
}

// TestGainNeeds expects the needed number to be just enough: of 7 misses 4 are saved, of 6 misses 3, and
// P(Bin(7,0.2) >= 4) = 0.033344, P(Bin(6,0.2) >= 3) = 0.09888 by scipy.stats.binom.sf.
func TestGainNeeds(t *testing.T) {
	if got := eval.NewGain(1, 1, 20_000, 100_000).Needed; got != 7 {
		t.Errorf("%d needed, want 7", got)
	}
	if got := eval.NewGain(1, 1, 20_000, 100_000).OfBest(10).Needed; got <= 7 {
		t.Errorf("%d needed of the best of ten, want more than of one", got)
	}
	if got := eval.NewGain(1, 1, 0, 100).Needed; got != 0 {
		t.Errorf("%d needed where nothing is deferred, want 0", got)
	}
}
