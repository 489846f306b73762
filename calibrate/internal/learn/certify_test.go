package learn

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/binomial"
)

// rates holds the true error rates of a rule: the share of retained inputs that it wrongly defers,
// of deferred inputs that it releases, and of retained critical inputs that it misses.
type rates struct{ deferred, released, missed float64 }

// fates counts inputs: deferred by all passes, released of them, both first of the critical ones;
// retained by all passes, deferred of them by the rule, and critical ones retained and missed by both.
type fates struct{ deferred, released, criticalDeferred, retained, wronglyDeferred, critical, missed int }

func (f fates) evidence() Evidence {
	e := Evidence{passes: 10}
	for i := range f.deferred {
		e.outcomes = append(e.outcomes, Outcome{early: verdict{i >= f.released, true}, full: verdict{true, true}, critical: i < f.criticalDeferred})
	}
	for i := range f.retained {
		called := verdict{false, i >= f.missed}
		o := Outcome{early: called, full: called, critical: i < f.critical}
		o.early.defers = i >= f.retained-f.wronglyDeferred
		e.outcomes = append(e.outcomes, o)
	}
	return e
}

// simulate certifies many times on drawn counts, and returns how often the certified rule breaks
// its claims about disagreements, released inputs, critical ones among them, and risk. All passes defer 100 of 400 inputs; 60
// critical ones are retained. Counts of different rules are independent, which is the worst case
// for choosing among them.
func simulate(q *Request, sequence []rates) (disagreement, released, criticalReleased, risk float64) {
	const repeats = 3000
	rng := rand.New(rand.NewPCG(11, 12))
	draw := func(n int, p float64) (k int) {
		for range n {
			if rng.Float64() < p {
				k++
			}
		}
		return k
	}
	for range repeats {
		chosen, c, err := q.choose(len(sequence), func(i int) Evidence {
			r := sequence[i]
			return fates{100, draw(100, r.released), 100, 300, draw(300, r.deferred), 60, draw(60, r.missed)}.evidence()
		})
		if err != nil {
			continue
		}
		r := sequence[chosen]
		if 0.25*r.released+0.75*r.deferred > q.Epsilon {
			disagreement += 1. / repeats
		}
		if r.released > q.Released {
			released += 1. / repeats
		}
		if r.released > c.CriticalReleasedUpper {
			criticalReleased += 1. / repeats
		}
		if q.Risk != nil && r.missed > q.Risk.Target {
			risk += 1. / repeats
		}
	}
	return disagreement, released, criticalReleased, risk
}

// TestClaimsHold checks that a certified rule breaks each claim no more often than its confidence
// allows. The sequences are built to break a claim as often as possible, so the test also checks
// that the bounds are not much too cautious.
func TestClaimsHold(t *testing.T) {
	const noise = 0.016 // three standard errors of 10% in 3000
	for _, c := range []struct {
		name        string
		q           Request
		sequence    []rates
		of          int // which result of simulate is checked
		least, most float64
	}{
		// The second rule disagrees a little too often: it passes with 14 disagreements or
		// fewer, which has the chance 9.6%.
		{"disagreement", Request{Epsilon: 0.05, Released: 0.99, Confidence: 0.9}, []rates{{0.001, 0.01, 0}, {0.05001, 0.05001, 0}, {0.08, 0.08, 0}},
			0, 0.08, 0.1},
		// The second rule releases a little too often: it passes with 5 of 100 or fewer, which has
		// the chance 9.7% at 0.0908.
		{"released", Request{Epsilon: 0.05, Released: 0.0908, Confidence: 0.9}, []rates{{0, 0.01, 0}, {0, 0.09081, 0}, {0, 0.15, 0}}, 1, 0.08, 0.1},
		// Both claims are broken by the second rule: each test alone would pass it too often, and
		// both together pass it less often than either.
		{"both", Request{Epsilon: 0.05, Released: 0.0908, Confidence: 0.9}, []rates{{0, 0.01, 0}, {0.0365, 0.09081, 0}}, 1, 0, 0.1},
		// The first rule's bound is too low if none is released (10%), the second's if it
		// passes (10%): 19% together, were it not for the correction.
		{"critical released", Request{Epsilon: 0.05, Released: 0.99, Confidence: 0.9}, []rates{{0, 0.0228, 0}, {0, 0.198, 0}}, 2, 0.02, 0.1},
		// At 10%, 2 or fewer misses of 60 have the chance 5.3%, 3 or fewer 13.7%.
		{"risk", Request{Epsilon: 0.05, Released: 0.99, Confidence: 0.9, Risk: &Risk{Target: 0.0999, Confidence: 0.9}}, []rates{{0, 0.01, 0.01}, {0, 0.01, 0.1}}, 3, 0.03, 0.1},
	} {
		disagreement, released, criticalReleased, risk := simulate(&c.q, c.sequence)
		if got := [4]float64{disagreement, released, criticalReleased, risk}[c.of]; got < c.least-noise || got > c.most+noise {
			t.Errorf("%s: false of %.3g of the rules returned, expected %v to %v", c.name, got, c.least, c.most)
		}
	}
}

// TestChoose checks that the first rule that fails ends the sequence, and that the reason names the
// failed claim.
func TestChoose(t *testing.T) {
	q := &Request{Epsilon: 0.01, Released: 0.05, Confidence: 0.9, Risk: &Risk{Target: 0.1, Confidence: 0.95}}
	// scipy 1.10: binom.cdf(4, 100, 0.1) = 0.0237, binom.cdf(5, 100, 0.1) = 0.0576;
	// beta.ppf(0.9, k+1, 1000-k): 0.00925 of k = 5, 0.0105 of 6.
	good, risky, wrong := fates{100, 0, 40, 900, 5, 100, 4}, fates{100, 0, 40, 900, 5, 100, 5}, fates{100, 0, 40, 900, 6, 100, 4}
	// beta.ppf(0.9, k+1, 100-k): 0.0383 of k = 1, 0.0523 of 2.
	few, releases := fates{100, 1, 0, 900, 4, 100, 4}, fates{100, 2, 0, 900, 3, 100, 4}
	for _, c := range []struct {
		sequence []fates
		chosen   int
	}{{[]fates{good, good, good}, 2}, {[]fates{good, risky, good}, 0}, {[]fates{good, good, wrong, good}, 1},
		{[]fates{few, few, good}, 2}, {[]fates{good, releases, good}, 0}} {
		chosen, got, err := q.choose(len(c.sequence), func(i int) Evidence { return c.sequence[i].evidence() })
		if err != nil || chosen != c.chosen {
			t.Fatalf("rule %d, %v: expected %d", chosen, err, c.chosen)
		}
		if m := got.Missed; m.Cases != 100 || m.Misses != 4 || math.Abs(got.RiskPValue-0.02371) > 1e-5 {
			t.Errorf("risk %+v, p-value %v", m, got.RiskPValue)
		}
		if want := binomial.Upper(0, 40, 1-0.1/float64(len(c.sequence))); got.CriticalReleasedUpper != want {
			t.Errorf("critical released at most %v, expected %v", got.CriticalReleasedUpper, want)
		}
	}
	for name, c := range map[string]struct {
		fates
		risk Risk
		of   bool // refused for the risk
		says string
	}{
		"disagreements":  {fates{100, 0, 40, 900, 6, 100, 99}, Risk{0.1, 0.95, false}, false, "6 of 1000 inputs disagree"},
		"released":       {releases, Risk{0.1, 0.95, false}, false, "2 of 100 inputs deferred by all passes are retained"},
		"missed":         {risky, Risk{0.1, 0.95, false}, true, "5 of 100 retained critical inputs are missed under the most cautious rule, which a critical FNR of 0.1 would bring about with chance 0.0576"},
		"no cases":       {fates{100, 0, 40, 900, 5, 0, 0}, Risk{0.1, 0.95, false}, true, "no retained critical inputs with a label"},
		"missed of all":  {fates{100, 0, 40, 900, 5, 20, 4}, Risk{0.1, 0.95, true}, true, "4 of 60 critical inputs are missed under the most cautious rule, which a critical miss rate of 0.1"},
		"few of all":     {fates{100, 0, 100, 900, 5, 100, 5}, Risk{0.1, 0.95, true}, false, ""}, // binom.cdf(5, 200, 0.1) is 0.0000375
		"nothing, risky": {risky, Risk{1, 0, false}, false, ""},
	} {
		q.Risk = &c.risk
		_, _, err := q.choose(1, func(int) Evidence { return c.evidence() })
		if refused := (*RefusedError)(nil); c.says == "" && err != nil ||
			c.says != "" && (!errors.As(err, &refused) || refused.OfRisk != c.of || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, expected %q, for the risk: %v", name, err, c.says, c.of)
		}
	}
}
