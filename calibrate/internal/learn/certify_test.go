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
			k := Counts{Inputs: 400, Passes: 10, Deferred: 100, CriticalRetained: 60, CriticalDeferred: 100}
			k.Released = draw(k.Deferred, sequence[i].released)
			k.CriticalReleased = k.Released
			k.Disagreements = k.Released + draw(300, sequence[i].deferred)
			k.CriticalMissed = draw(k.CriticalRetained, sequence[i].missed)
			return Evidence{Counts: k}
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
	counts := func(disagreements, missed int) Counts {
		return Counts{Inputs: 1000, Passes: 10, Disagreements: disagreements, Deferred: 100, CriticalDeferred: 40, CriticalRetained: 100,
			CriticalMissed: missed}
	}
	// scipy 1.10: binom.cdf(4, 100, 0.1) = 0.0237, binom.cdf(5, 100, 0.1) = 0.0576;
	// beta.ppf(0.9, k+1, 1000-k): 0.00925 of k = 5, 0.0105 of 6.
	good, risky, wrong := counts(5, 4), counts(5, 5), counts(6, 4)
	// beta.ppf(0.9, k+1, 100-k): 0.0383 of k = 1, 0.0523 of 2.
	few, releases := good, good
	few.Released, releases.Released = 1, 2
	for _, c := range []struct {
		sequence []Counts
		chosen   int
	}{{[]Counts{good, good, good}, 2}, {[]Counts{good, risky, good}, 0}, {[]Counts{good, good, wrong, good}, 1},
		{[]Counts{few, few, good}, 2}, {[]Counts{good, releases, good}, 0}} {
		chosen, got, err := q.choose(len(c.sequence), func(i int) Evidence { return Evidence{Counts: c.sequence[i]} })
		if err != nil || chosen != c.chosen {
			t.Fatalf("rule %d, %v: expected %d", chosen, err, c.chosen)
		}
		if r := got.RiskTest; r.Cases != 100 || r.Misses != 4 || math.Abs(r.PValue-0.02371) > 1e-5 {
			t.Errorf("risk %+v", r)
		}
		if want := binomial.Upper(0, 100, 0.9); got.ReleasedUpper != want {
			t.Errorf("released at most %v, expected %v", got.ReleasedUpper, want)
		}
		if want := binomial.Upper(0, 40, 1-0.1/float64(len(c.sequence))); got.CriticalReleasedUpper != want {
			t.Errorf("critical released at most %v, expected %v", got.CriticalReleasedUpper, want)
		}
	}
	refusal := func(q *Request, c Counts) error {
		_, _, err := q.choose(1, func(int) Evidence { return Evidence{Counts: c} })
		return err
	}
	var refused *RefusedError
	var risk *RiskError
	if err := refusal(q, counts(6, 99)); !errors.As(err, &refused) || errors.As(err, &risk) {
		t.Errorf("%v: expected a *RefusedError", err)
	}
	if err := refusal(q, releases); !errors.As(err, &refused) || !strings.Contains(err.Error(), "2 of 100 inputs deferred by all passes are retained") {
		t.Errorf("%v: expected a *RefusedError of released inputs", err)
	}
	if err := refusal(q, risky); !errors.As(err, &risk) || errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "5 of 100 retained critical inputs are missed") {
		t.Errorf("%v: expected a *RiskError", err)
	}
	if risk.Cases != 100 || risk.Misses != 5 || risk.Target != 0.1 || math.Abs(risk.PValue-0.05758) > 1e-5 {
		t.Errorf("%+v", risk)
	}
	all := risky
	all.Critical = 200
	none := good
	none.CriticalRetained, none.CriticalMissed = 0, 0
	if err := refusal(q, none); !errors.As(err, &risk) || !strings.Contains(err.Error(), "no retained critical inputs with a label") {
		t.Errorf("%v: expected a *RiskError of no cases", err)
	}
	q.Risk.OfAll = true // 5 of 200 critical inputs: binom.cdf(5, 200, 0.1) is 0.0000375
	if err := refusal(q, all); err != nil {
		t.Errorf("5 of 200 are refused: %v", err)
	}
	q.Risk = nil
	if err := refusal(q, risky); err != nil {
		t.Errorf("%v: no risk is asked for", err)
	}
}
