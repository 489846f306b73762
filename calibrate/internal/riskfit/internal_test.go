package riskfit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/policy/risk"
)

// TestFitIsTheMinimum checks the conditions of Karush, Kuhn and Tucker at the fitted weights, also of
// classes that a column separates, of columns that are equal, and of constant ones.
func TestFitIsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n, columns := rapid.IntRange(4, 80).Draw(t, "rows"), rapid.IntRange(1, 5).Draw(t, "columns")
		l := logistic{centre: []float64{0}, penalty: []float64{0}, atLeast0: []bool{false}}
		for i := range n {
			l.y = append(l.y, i == 0 || i > 1 && rng.Float64() < 0.3)
		}
		kind := rapid.SampledFrom([]string{"noise", "separates", "equal", "constant"})
		for j := range columns {
			column, k := make([]float64, n), kind.Draw(t, "kind")
			for i := range column {
				switch {
				case k == "separates" && l.y[i]:
					column[i] = 3
				case k == "equal" && j > 0:
					column[i] = l.columns[0][i]
				case k != "constant":
					column[i] = rng.NormFloat64()
				}
			}
			l.columns = append(l.columns, column)
			l.centre = append(l.centre, rapid.SampledFrom([]float64{0, 2}).Draw(t, "centre"))
			l.penalty = append(l.penalty, rapid.SampledFrom([]float64{0.1, 1, 10}).Draw(t, "penalty"))
			l.atLeast0 = append(l.atLeast0, rapid.Bool().Draw(t, "at least 0"))
		}
		b := l.fit(make([]float64, columns+1))
		z, gradient := make([]float64, n), make([]float64, columns+1)
		l.loss(b, z)
		l.derive(b, z, gradient, mat.NewSymDense(columns+1, nil))
		const tolerance = 1e-4 // of a gradient, against terms of about the number of rows
		for j, g := range gradient {
			switch {
			case l.atLeast0[j] && b[j] < 0:
				t.Errorf("weight %d is %v, expected at least 0", j, b[j])
			case l.atLeast0[j] && b[j] == 0 && g < -tolerance:
				t.Errorf("weight %d is held at 0, but the gradient is %v", j, g)
			case !(l.atLeast0[j] && b[j] == 0) && !(math.Abs(g) < tolerance):
				t.Errorf("weight %d is %v, but the gradient is %v", j, b[j], g)
			}
		}
	})
}

// drawn returns a problem of one column p_critical and some without meaning, in groups.
func drawn(n, groups int, seed uint64) *problem {
	rng := rand.New(rand.NewPCG(seed, 2))
	p := &problem{groups: groups, columns: make([][]float64, 3), terms: []risk.Term{{Feature: risk.PCritical, Class: -1}, {Feature: risk.SafeEntropy, Class: -1}, {Feature: risk.SafeVariation, Class: -1}}}
	for r := range n {
		p.rows, p.group = append(p.rows, r), append(p.group, r%groups)
		p.y = append(p.y, rng.Float64() < 0.2)
		for j := range p.columns {
			p.columns[j] = append(p.columns[j], rng.NormFloat64())
		}
		if p.y[r] {
			p.columns[0][r]++
			p.missed++
		}
	}
	return p
}

// TestHeldOut checks that the log-odds of a fold do not depend on the outcomes in it, and that those
// of other folds do; and that groups are held out together, with critical rows in every fold.
func TestHeldOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(rapid.IntRange(150, 300).Draw(t, "rows"), rapid.IntRange(60, 300).Draw(t, "groups"), rapid.Uint64().Draw(t, "seed"))
		fold := p.folds(rapid.Uint64().Draw(t, "folds"))
		of, critical := map[int]int{}, make([]int, folds)
		for r, g := range p.group {
			if before, seen := of[g]; seen && before != fold[r] {
				t.Fatalf("group %d is in folds %d and %d", g, before, fold[r])
			}
			of[g] = fold[r]
			if p.y[r] {
				critical[fold[r]]++
			}
		}
		for f, n := range critical {
			if n == 0 && p.missed >= 60 {
				t.Errorf("fold %d has no critical row, of %d", f, p.missed)
			}
		}
		out := rapid.IntRange(0, folds-1).Draw(t, "out")
		before := p.holdOut(fold, 3)
		for r, f := range fold {
			if f == out {
				p.y[r] = !p.y[r]
			}
		}
		after := p.holdOut(fold, 3)
		for s := range before {
			for r, f := range fold {
				if (before[s][r] == after[s][r]) != (f == out) {
					t.Fatalf("size %d, row %d of fold %d: %v, and %v with other outcomes in fold %d", s, r, f, before[s][r], after[s][r], out)
				}
			}
		}
	})
}

// TestRisingColumns checks that a column whose weight must not be negative is not added where it
// would be, and that a column which another one makes superfluous is dropped.
func TestRisingColumns(t *testing.T) {
	p := drawn(400, 400, 1)
	p.terms, p.columns = slices.Clone(p.terms[:2]), p.columns[:2]
	p.terms[1].Feature = risk.LargestCriticalMean
	for r, y := range p.y {
		p.columns[1][r] -= 2 * outcome(y)
	}
	if forms := p.path(p.everything(), 3, 3); len(forms) != 1 {
		t.Errorf("%+v, expected the form of two numbers alone", forms)
	}
	for r, y := range p.y { // the first column is the second with more noise of the same kind
		noise := p.columns[1][r] + 2*outcome(y)
		p.columns[0][r], p.columns[1][r] = 2*outcome(y)+2*noise, 2*outcome(y)+noise
	}
	forms := p.path(p.everything(), 3, 3)
	if last := forms[len(forms)-1]; len(forms) != 2 || !slices.Equal(last.columns, []int{1}) {
		t.Errorf("%+v, expected the second column alone at last", forms)
	}
}

// TestMeanOf compares the standard error by group with that of the means of equal groups, and that of
// single rows with the textbook's.
func TestMeanOf(t *testing.T) {
	p := &problem{groups: 3, group: []int{0, 1, 2, 0, 1, 2}}
	values := []float64{1, 2, 6, 3, 2, 4}
	mean, se := p.meanOf(values) // of groups: 2, 2, 5; standard deviation sqrt(3)
	if math.Abs(mean-3) > 1e-12 || math.Abs(se-1) > 1e-12 {
		t.Errorf("%v ± %v, expected 3 ± 1", mean, se)
	}
	p = &problem{groups: 4, group: []int{0, 1, 2, 3}}
	mean, se = p.meanOf([]float64{0, 0, 4, 4})
	if want := math.Sqrt(16.0 / 3 / 4); mean != 2 || math.Abs(se-want) > 1e-12 {
		t.Errorf("%v ± %v, expected 2 ± %v", mean, se, want)
	}
}

// TestDeciles checks that bins cover all rows once, in order, and differ by one row at most, but for
// rows of one risk, which stay together.
func TestDeciles(t *testing.T) {
	for _, c := range []struct {
		n, tied int
		want    []int
	}{
		{0, 1, nil}, {3, 1, []int{1, 1, 1}}, {10, 1, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, {25, 1, []int{2, 3, 2, 3, 2, 3, 2, 3, 2, 3}},
		{10, 3, []int{3, 3, 3, 1}}, {25, 4, []int{4, 4, 4, 4, 4, 4, 1}}, {7, 7, []int{7}},
	} {
		q := make([]float64, c.n)
		for i := range q {
			q[i] = float64(i / c.tied)
		}
		var sizes []int
		at := 0
		for _, part := range deciles(q) {
			if part[0] != at {
				t.Errorf("%d rows: a bin begins at %d, expected %d", c.n, part[0], at)
			}
			at += len(part)
			sizes = append(sizes, len(part))
		}
		if diff := cmp.Diff(c.want, sizes); diff != "" || at != c.n {
			t.Errorf("%d rows: ends at %d, sizes (-want +got)\n%s", c.n, at, diff)
		}
	}
}

// TestReliabilityOfTheTruth measures risks that outcomes were drawn from, and such that are twice as
// far apart in log-odds.
func TestReliabilityOfTheTruth(t *testing.T) {
	const n = 4000
	rng := rand.New(rand.NewPCG(3, 3))
	p := &problem{groups: n}
	z, wide := make([]float64, n), make([]float64, n)
	for r := range n {
		z[r] = -2 + 1.5*rng.NormFloat64()
		wide[r] = -2 + 2*(z[r]+2)
		y := rng.Float64() < 1/(1+math.Exp(-z[r]))
		p.y, p.group = append(p.y, y), append(p.group, r)
		if y {
			p.missed++
		}
	}
	good, bad := p.reliability(z), p.reliability(wide)
	holds := func(f Figure, v float64) bool {
		return f.Low <= v && v <= f.High && f.Low < f.Value && f.Value < f.High
	}
	if !holds(good.ObservedOverExpected, 1) || !holds(good.Slope, 1) {
		t.Errorf("the truth: %+v", good)
	}
	if holds(bad.Slope, 1) || !holds(bad.Slope, 0.5) || bad.Brier.Value < good.Brier.Value {
		t.Errorf("twice as far apart: %+v", bad)
	}
	inputs, critical, expected := 0, 0, 0.0
	for _, b := range good.Bins {
		inputs, critical, expected = inputs+b.Inputs, critical+b.Critical, expected+b.Risk*float64(b.Inputs)
	}
	if inputs != n || critical != good.Critical || math.Abs(expected-good.Expected) > 1e-6 {
		t.Errorf("bins have %d inputs, %d critical and %v expected, of %d, %d and %v", inputs, critical, expected, n, good.Critical, good.Expected)
	}
}
