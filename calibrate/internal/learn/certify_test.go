package learn

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/binomial"
)

// rates holds the true error rates of a rule: the share of retained inputs that it wrongly defers, and
// of deferred inputs that it releases.
type rates struct{ deferred, released float64 }

// fates counts inputs: deferred by all passes, released of them, the first of them critical; retained by
// all passes, and deferred of them by the rule.
type fates struct{ deferred, released, critical, retained, wronglyDeferred int }

func (f fates) evidence() Evidence {
	e := Evidence{passes: 10}
	for i := range f.deferred {
		e.outcomes = append(e.outcomes, Outcome{early: verdict{defers: i >= f.released}, full: verdict{defers: true}, critical: i < f.critical})
	}
	for i := range f.retained {
		e.outcomes = append(e.outcomes, Outcome{early: verdict{defers: i < f.wronglyDeferred}})
	}
	return e
}

// simulate certifies many times on drawn counts, and returns how often the certified rule breaks
// its claims about disagreements, released inputs, and critical ones among them. All passes defer 100 of 400 inputs. Counts of different rules are independent, which is the worst case
// for choosing among them.
func simulate(q *Request, sequence []rates) (disagreement, released, criticalReleased float64) {
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
			return fates{100, draw(100, r.released), 100, 300, draw(300, r.deferred)}.evidence()
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
	}
	return disagreement, released, criticalReleased
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
		{"disagreement", Request{Epsilon: 0.05, Released: 0.99, Confidence: 0.9}, []rates{{0.001, 0.01}, {0.05001, 0.05001}, {0.08, 0.08}},
			0, 0.08, 0.1},
		// The second rule releases a little too often: it passes with 5 of 100 or fewer, which has
		// the chance 9.7% at 0.0908.
		{"released", Request{Epsilon: 0.05, Released: 0.0908, Confidence: 0.9}, []rates{{0, 0.01}, {0, 0.09081}, {0, 0.15}}, 1, 0.08, 0.1},
		// Both claims are broken by the second rule: each test alone would pass it too often, and
		// both together pass it less often than either.
		{"both", Request{Epsilon: 0.05, Released: 0.0908, Confidence: 0.9}, []rates{{0, 0.01}, {0.0365, 0.09081}}, 1, 0, 0.1},
		// The first rule's bound is too low if none is released (10%), the second's if it
		// passes (10%): 19% together, were it not for the correction.
		{"critical released", Request{Epsilon: 0.05, Released: 0.99, Confidence: 0.9}, []rates{{0, 0.0228}, {0, 0.198}}, 2, 0.02, 0.1},
	} {
		disagreement, released, criticalReleased := simulate(&c.q, c.sequence)
		if got := [3]float64{disagreement, released, criticalReleased}[c.of]; got < c.least-noise || got > c.most+noise {
			t.Errorf("%s: false of %.3g of the rules returned, expected %v to %v", c.name, got, c.least, c.most)
		}
	}
}

// TestChoose checks that the first rule that fails ends the sequence, and that the reason names the
// failed claim.
func TestChoose(t *testing.T) {
	q := &Request{Epsilon: 0.01, Released: 0.05, Confidence: 0.9}
	// scipy 1.10, beta.ppf(0.9, k+1, 1000-k): 0.00925 of k = 5, 0.0105 of 6.
	good, wrong := fates{100, 0, 40, 900, 5}, fates{100, 0, 40, 900, 6}
	// beta.ppf(0.9, k+1, 100-k): 0.0383 of k = 1, 0.0523 of 2.
	few, releases := fates{100, 1, 0, 900, 4}, fates{100, 2, 0, 900, 3}
	for _, c := range []struct {
		sequence []fates
		chosen   int
		critical int
	}{{[]fates{good, good, good}, 2, 40}, {[]fates{good, good, wrong, good}, 1, 40}, {[]fates{good, releases, good}, 0, 40}, {[]fates{few, few}, 1, 0}} {
		chosen, got, err := q.choose(len(c.sequence), func(i int) Evidence { return c.sequence[i].evidence() })
		if err != nil || chosen != c.chosen {
			t.Fatalf("rule %d, %v: expected %d", chosen, err, c.chosen)
		}
		if want := binomial.Upper(0, c.critical, 1-0.1/float64(len(c.sequence))); got.CriticalReleasedUpper != want {
			t.Errorf("critical released at most %v, expected %v", got.CriticalReleasedUpper, want)
		}
	}
	for says, f := range map[string]fates{
		"6 of 1000 inputs disagree": wrong, "2 of 100 inputs deferred by all passes are retained": releases,
	} {
		_, _, err := q.choose(1, func(int) Evidence { return f.evidence() })
		if refused := (*RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, expected %q", err, says)
		}
	}
}
