package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/policy"
)

// sample has 60 uncritical inputs, 30 hits, 6 misses that are retained and 4 that are deferred.
func sample() *traffic {
	t := &traffic{}
	add := func(n int, in input) {
		for range n {
			in.weight = 1
			t.inputs = append(t.inputs, in)
		}
	}
	add(60, input{retained: true, calledSafe: true, propensity: 0.1, paid: true})
	add(30, input{retained: true, critical: true, propensity: 1})
	add(6, input{retained: true, critical: true, calledSafe: true, propensity: 0.2, paid: true})
	add(4, input{critical: true, calledSafe: true, propensity: 1})
	return t
}

func TestTraffic(t *testing.T) {
	s := sample()
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"FNR", s.risk(evidence.FNR), 6. / 36},
		{"miss rate", s.risk(evidence.MissRate), 6. / 40},
		{"another FNR", s.withFNR(0.4).risk(evidence.FNR), 0.4},
		{"critical inputs with another FNR", s.withFNR(0.4).sum(func(in *input) bool { return in.critical }), 40},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, expected %v", c.name, c.got, c.want)
		}
	}
	if s.withFNR(1) != nil {
		t.Error("traffic with an FNR of 1")
	}
}

// TestDrawnReviews draws the reviewed directly: each kind as often as it is reviewed among all.
func TestDrawnReviews(t *testing.T) {
	const draws = 200_000
	rng := rand.New(rand.NewPCG(1, 2))
	r := sample().reviewsOf(evidence.FNR, policy.Audit{Rate: 0.1, M: 1, PredictedCritical: policy.CriticalFree})
	if want := (60*0.1 + 30 + 6*0.2) / 100; math.Abs(r.share-want) > 1e-12 {
		t.Errorf("%v of the inputs are reviewed, expected %v", r.share, want)
	}
	hits, misses, inputs := 0., 0., 0.
	for range draws {
		in := r.draw(rng)
		inputs += r.gap(rng)
		switch {
		case !in.retained:
			t.Fatal("a deferred input is a step of the FNR")
		case in.missed():
			misses++
		case in.critical:
			hits++
		}
	}
	for _, c := range []struct {
		name              string
		got, want, spread float64
	}{
		// Five standard errors of a share, of at most 0.5/sqrt(draws), and of the mean of gaps.
		{"hits", hits / draws, 30 / 37.2, 2.5 / math.Sqrt(draws)},
		{"misses", misses / draws, 1.2 / 37.2, 2.5 / math.Sqrt(draws)},
		{"inputs a review", inputs / draws, 100 / 37.2, 5 * 100 / 37.2 / math.Sqrt(draws)},
	} {
		if math.Abs(c.got-c.want) > c.spread {
			t.Errorf("%s: %v, expected %v", c.name, c.got, c.want)
		}
	}
}
