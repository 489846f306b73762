package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// These tests draw recordings from a population whose truth is known, and compare what is claimed
// of the policies with it. Seeds are fixed; margins are three standard errors of the draws, so that
// another seed passes too.

// population holds inputs from which recordings are drawn with replacement.
type population struct {
	table  *eval.Table
	labels []int
}

func newPopulation(m made) population {
	table, labels := m.table(rand.New(rand.NewPCG(11, 12)))
	return population{table, labels}
}

// draw draws a recording of n inputs in groups of copies.
func (p population) draw(n, size int, seed uint64) (table *eval.Table, labels, groups []int) {
	rng := rand.New(rand.NewPCG(seed, 13))
	var inputs []int
	for len(inputs) < n {
		i := rng.IntN(p.table.Inputs)
		for range size {
			inputs, labels, groups = append(inputs, i), append(labels, p.labels[i]), append(groups, i)
		}
	}
	return p.table.Select(inputs), labels, groups
}

// TestCertificatesAreKept checks that a certificate, of all critical inputs and of a class too, is
// violated at most as often as the confidence allows: where inputs are independent, and where they
// come in groups of five copies if calibration is told of them. If it is not told, it fails. Noise
// whose critical FNR is just above the target is the worst case: every certificate is then a
// violation, and some of many rules and points look safe.
func TestCertificatesAreKept(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const confidence = 0.9
	misses, fnr := missesUpTo(0.12, confidence), fnrUpTo(0.2, confidence)
	for _, c := range []struct {
		name           string
		objective      Objective
		missed, signal float64
		passes         int // with 2 no gate can open
		recordings, n  int
		size           int // of groups
		told, fails    bool
		leastCoverage  float64 // certified on average, so that refusing everything does not pass
	}{
		{"noise", fnr, 0.21, 0, 2, 80, 400, 1, false, false, 0},
		{"noise and gates", fnr, 0.21, 0, 10, 10, 400, 1, false, false, 0},
		{"signal", fnr, 0.35, 1.5, 2, 40, 400, 1, false, false, 0.3},
		{"miss rate", misses, 0.35, 1, 2, 60, 500, 1, false, false, 0.1},
		{"a class too", missesUpTo(0.12, confidence, Limit{"2", policy.CriticalMissRate, 0.12}), 0.35, 1, 2, 60, 500, 1, false, false, 0.1},
		{"groups", misses, 0.35, 1, 2, 60, 500, 5, true, false, 0.1},
		{"groups that nobody tells of", misses, 0.35, 1, 2, 60, 500, 5, false, true, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPopulation(made{n: 4000, passes: c.passes, critical: []int{1, 2}, share: 0.4, missed: c.missed, signal: c.signal})
			whole := newSample(p.table, p.labels, policy.HandleByScore, policy.HandleByScore)
			violated, covered := 0, 0.0
			for seed := range uint64(c.recordings) {
				table, labels, groups := p.draw(c.n, c.size, seed)
				o := options(t, c.objective, policy.AllInputs, seed)
				if c.told {
					o.Groups = groups
				}
				found := calibrated(t, table, labels, o)
				if found.Policy == nil {
					continue
				}
				retained, exceeded := retainedBy(found.Policy, p.table), false
				for _, l := range o.Objective.limits(o.Base) {
					e := l.test(whole, whole.all(), retained)
					exceeded = exceeded || float64(e.Misses) > l.target*float64(e.Cases)
				}
				violated += index(exceeded)
				covered += whole.selective(whole.all(), retained).Coverage() / float64(c.recordings)
			}
			t.Logf("%d of %d violated, mean coverage %.3f", violated, c.recordings, covered)
			n := float64(c.recordings)
			most := n*(1-confidence) + 3*math.Sqrt(n*confidence*(1-confidence))
			if failed := float64(violated) > most; failed != c.fails {
				t.Errorf("%d of %d certificates are violated, at most %.1f may be", violated, c.recordings, most)
			}
			if covered < c.leastCoverage {
				t.Errorf("mean certified coverage %v, want at least %v", covered, c.leastCoverage)
			}
		})
	}
}
