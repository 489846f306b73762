package earlystop_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// rules draws a rule of any numbers.
func rules(t *rapid.T) *earlystop.Rule {
	r := &earlystop.Rule{Passes: rapid.IntRange(3, 12).Draw(t, "passes")}
	r.Fewest = rapid.IntRange(1, r.Passes-1).Draw(t, "fewest")
	r.Patience = rapid.SampledFrom([]float64{0, 0.1, 8}).Draw(t, "patience")
	number := rapid.Float64Range(-20, 20)
	for range r.Passes - r.Fewest {
		var s earlystop.Step
		for _, side := range []*earlystop.Side{&s.Retain, &s.Defer} {
			side.AtMost = number.Draw(t, "at most")
			for j := range side.Coefficients {
				side.Coefficients[j] = number.Draw(t, "coefficient")
			}
		}
		r.Steps = append(r.Steps, s)
	}
	return r
}

func statistics(t *rapid.T) *earlystop.Statistics {
	x := &earlystop.Statistics{Degenerate: rapid.Bool().Draw(t, "degenerate")}
	for i := range x.Values {
		x.Values[i] = rapid.Float64Range(-earlystop.Bound, earlystop.Bound).Draw(t, "value")
	}
	return x
}

// TestLogOdds computes the quadratic form term by term: the sum over i of 0.1 i times the i-th term
// of (1, 2, 3, 4, 5) is 0.1 (1*1+2*2+3*3+4*4+5*5) + 0.1 (6*1+7*2+8*3+9*4+10*5 + 11*4+12*6
// +13*8+14*10 + 15*9+16*12+17*15 + 18*16+19*20 + 20*25) = 229.5.
func TestLogOdds(t *testing.T) {
	var s earlystop.Side
	for j := range s.Coefficients {
		s.Coefficients[j] = 0.1 * float64(j)
	}
	x := earlystop.Statistics{Values: [earlystop.Count]float64{1, 2, 3, 4, 5}}
	if got, want := s.LogOdds(&x), 229.5; math.Abs(got-want) > 1e-9 {
		t.Errorf("LogOdds = %v, expected %v", got, want)
	}
}

func TestSettled(t *testing.T) {
	r := &earlystop.Rule{Passes: 4, Fewest: 2, Steps: make([]earlystop.Step, 2)}
	for i := range r.Steps {
		r.Steps[i].Retain.Coefficients[1+earlystop.Own] = 1 // log-odds = own
		r.Steps[i].Defer.Coefficients[1+earlystop.Own] = -1
		r.Steps[i].Retain.AtMost, r.Steps[i].Defer.AtMost = -2, -1
	}
	nan := math.NaN()
	for _, c := range []struct {
		passes     int
		own        float64
		degenerate bool
		want       earlystop.Action
	}{
		{2, -2, false, earlystop.Retain}, // at the boundary
		{2, -1.9, false, earlystop.Open},
		{2, 0, false, earlystop.Open}, // at the threshold: retained so far
		{2, 0.9, false, earlystop.Open},
		{2, 1, false, earlystop.Defer},
		{3, 1, false, earlystop.Defer},
		{3, -2, true, earlystop.Open}, // identical passes decide nothing
		{3, 1, true, earlystop.Open},
		{1, -9, false, earlystop.Open}, // too few
		{4, -9, false, earlystop.Open}, // all: the policy decides
		{-1, -9, false, earlystop.Open},
		{2, nan, false, earlystop.Open},
		{2, math.Inf(-1), false, earlystop.Open},
	} {
		t.Run(fmt.Sprintf("%d passes, own %v, degenerate %t", c.passes, c.own, c.degenerate), func(t *testing.T) {
			x := earlystop.Statistics{Degenerate: c.degenerate}
			x.Values[earlystop.Own] = c.own
			if got, _ := r.Settled(c.passes, &x); got != c.want {
				t.Errorf("%q, expected %q", got, c.want)
			}
		})
	}
}

// TestAgain checks how long the rule waits before it looks again: an input as far from settled as
// the rule has patience waits for twice the passes; half as far, for half as many more.
func TestAgain(t *testing.T) {
	r := &earlystop.Rule{Passes: 40, Fewest: 2, Patience: 8, Steps: make([]earlystop.Step, 38)}
	for i := range r.Steps {
		r.Steps[i].Retain = earlystop.Side{AtMost: -10}
		r.Steps[i].Retain.Coefficients[1+earlystop.Other] = 1
		r.Steps[i].Defer.AtMost = -earlystop.Never
	}
	at := func(own, logOdds float64) *earlystop.Statistics {
		return &earlystop.Statistics{Values: [earlystop.Count]float64{earlystop.Own: own, earlystop.Other: logOdds}}
	}
	for _, c := range []struct {
		patience float64
		passes   int
		x        *earlystop.Statistics
		want     int
	}{
		{8, 12, at(-1, -9.99), 13},
		{8, 12, at(-1, -6), 18},
		{8, 12, at(-1, -5), 19}, // 7.5 more: rather too early
		{8, 12, at(-1, -2), 24},
		{8, 12, at(-1, 9), 24},
		{8, 2, at(-1, -6), 3},
		{16, 12, at(-1, -6), 15},
		{0, 12, at(-1, 9), 13},
		{8, 12, at(1, -9.99), 24}, // would be deferred, which is never decided early
		{8, 12, at(-1, math.NaN()), 24},
		{8, 12, &earlystop.Statistics{Degenerate: true}, 13},
		{8, 1, at(-1, 9), 2}, // before the rule begins
		{8, 50, at(-1, 9), 51},
	} {
		r.Patience = c.patience
		if a, again := r.Settled(c.passes, c.x); a != earlystop.Open || again != c.want {
			t.Errorf("patience %v, after %d passes, %+v: %q, again after %d, expected after %d", c.patience, c.passes, *c.x, a, again, c.want)
		}
	}
}

func TestSettledProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, x := rules(t), statistics(t)
		after := rapid.IntRange(-2, 15).Draw(t, "t")
		got, again := r.Settled(after, x)
		own := x.Values[earlystop.Own]
		switch {
		case got == earlystop.Retain && (x.Degenerate || own > 0):
			t.Fatalf("settled to retain: degenerate %v, own %v", x.Degenerate, own)
		case got == earlystop.Defer && own <= 0:
			t.Fatalf("settled to defer where own is %v", own)
		case got != earlystop.Open && (after < r.Fewest || after >= r.Passes):
			t.Fatalf("settled after %d passes by a rule from %d to below %d", after, r.Fewest, r.Passes)
		case got == earlystop.Open && (again <= after || again > max(2*after, after+1)):
			t.Fatalf("looks again after %d passes, expected more than %d and at most twice that", again, after)
		}
		// One statistic that is NaN decides nothing.
		x.Values[rapid.IntRange(0, earlystop.Count-1).Draw(t, "which")] = math.NaN()
		if got, _ := r.Settled(after, x); got != earlystop.Open {
			t.Fatalf("settled to %v on a NaN", got)
		}
	})
}

func TestSettledAllocatesNothing(t *testing.T) {
	r := &earlystop.Rule{Passes: 4, Fewest: 2, Steps: make([]earlystop.Step, 2)}
	x := &earlystop.Statistics{}
	if n := testing.AllocsPerRun(100, func() { r.Settled(2, x) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSettled(b *testing.B) {
	r := &earlystop.Rule{Passes: 4, Fewest: 2, Steps: make([]earlystop.Step, 2)}
	x := &earlystop.Statistics{Values: [earlystop.Count]float64{-1, 0, -3, -4, -2}}
	for b.Loop() {
		if a, _ := r.Settled(2, x); a == earlystop.Defer {
			b.Fatal("deferred")
		}
	}
}

func TestLast(t *testing.T) {
	r := &earlystop.Rule{Passes: 6, Fewest: 2, Steps: make([]earlystop.Step, 4)}
	for i := range r.Steps {
		r.Steps[i] = earlystop.NoStep()
	}
	if got := r.Last(); got != 0 {
		t.Errorf("a rule that settles nothing: %d, expected 0", got)
	}
	r.Steps[0].Retain.AtMost, r.Steps[1].Defer.AtMost = -1, 1
	if got := r.Last(); got != 3 {
		t.Errorf("%d, expected 3", got)
	}
}
