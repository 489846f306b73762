package earlystop_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// TestFormRule checks that the sum of the terms, less the boundary, is what a step of the rule
// computes: interpolated in log(passes), and nothing outside.
func TestFormRule(t *testing.T) {
	last := 3.0
	f := &earlystop.Form{
		Boundaries: []earlystop.Boundary{
			{Passes: 2, Retain: -4, Defer: -earlystop.Never}, {Passes: 8, Retain: -6, Defer: -3}, {Passes: 32, Retain: -7, Defer: -5},
		},
		Retain: []earlystop.Term{{Of: "own", Weight: 1, Last: &last}, {Of: "doubt", Times: "own", Weight: 0.5}},
		Defer:  []earlystop.Term{{Of: "margin", Weight: 2}},
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	if got := f.Numbers(); got != 9 {
		t.Errorf("%d numbers, expected 9", got)
	}
	r := f.Rule(40, 8)
	if r.Fewest != 2 || r.Last() != 32 || r.Patience != 8 || r.Passes != 40 || r.Form != f {
		t.Errorf("rule from %d to %d of %d passes, patience %v", r.Fewest, r.Last(), r.Passes, r.Patience)
	}
	x := &earlystop.Statistics{Values: [earlystop.Count]float64{earlystop.Own: -2, earlystop.Doubt: 5, earlystop.Margin: 7, earlystop.Peak: 99}}
	for _, c := range []struct {
		passes                      int
		own, retain, defers, margin float64 // weight of own; boundaries; weight of margin
	}{
		{2, 1, -4, -earlystop.Never, 0},
		{4, 1.5, -5, -earlystop.Never, 0}, // a quarter of the way, half of that to the next boundary; none on one side of it
		{8, 2, -6, -3, 2},
		{16, 2.5, -6.5, -4, 2},
		{32, 3, -7, -5, 2},
	} {
		s := r.Step(c.passes)
		want := c.own*-2 + 0.5*5*-2
		if got := s.Retain.LogOdds(x); math.Abs(got-want) > 1e-12 || math.Abs(s.Retain.AtMost-c.retain) > 1e-12 {
			t.Errorf("after %d passes: %v against %v, expected %v against %v", c.passes, got, s.Retain.AtMost, want, c.retain)
		}
		if got := s.Defer.LogOdds(x); got != c.margin*7 || math.Abs(s.Defer.AtMost-c.defers) > 1e-12 {
			t.Errorf("after %d passes: %v against %v, expected %v against %v", c.passes, got, s.Defer.AtMost, c.margin*7, c.defers)
		}
	}
	if r.Step(33) != nil {
		t.Error("decides after the last boundary")
	}
}

// TestFormCheck checks the faults of a form.
func TestFormCheck(t *testing.T) {
	bounds := []earlystop.Boundary{{Passes: 2}, {Passes: 3}}
	nan := math.NaN()
	for want, f := range map[string]earlystop.Form{
		"no boundaries":                {},
		"more than at the one before":  {Boundaries: []earlystop.Boundary{{Passes: 2}, {Passes: 2}}},
		"expected at least 1":          {Boundaries: []earlystop.Boundary{{}}},
		"NaN and 0, expected numbers":  {Boundaries: []earlystop.Boundary{{Passes: 2, Retain: nan}}},
		`term of "peek" and ""`:        {Boundaries: bounds, Retain: []earlystop.Term{{Of: "peek"}}},
		`term of "own" and "owns"`:     {Boundaries: bounds, Defer: []earlystop.Term{{Of: "own", Times: "owns"}}},
		"expected it once":             {Boundaries: bounds, Defer: []earlystop.Term{{Of: "own", Times: "peak"}, {Of: "peak", Times: "own"}}},
		"weight 1 to NaN, expected nu": {Boundaries: bounds, Retain: []earlystop.Term{{Of: "own", Weight: 1, Last: &nan}}},
	} {
		t.Run(want, func(t *testing.T) {
			if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, expected %q", err, want)
			}
		})
	}
}

// TestPlace checks that every term has a place of its own among the coefficients, where LogOdds
// looks for it.
func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &earlystop.Statistics{}
		for j := range x.Values {
			x.Values[j] = rapid.Float64Range(-earlystop.Bound, earlystop.Bound).Draw(t, "statistic")
		}
		of, times := rapid.IntRange(0, earlystop.Count-1).Draw(t, "of"), rapid.IntRange(-1, earlystop.Count-1).Draw(t, "times")
		want := x.Values[of]
		if times >= 0 {
			want *= x.Values[times]
		}
		var s earlystop.Side
		s.Coefficients[earlystop.Place(of, times)] = 1
		if got := s.LogOdds(x); math.Abs(got-want) > 1e-12*math.Abs(want) {
			t.Fatalf("%d times %d: %v, expected %v", of, times, got, want)
		}
	})
}
