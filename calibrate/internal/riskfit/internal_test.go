package riskfit

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
)

// TestFitIsTheMinimum checks the conditions of Karush, Kuhn and Tucker at the fitted weights, also of
// classes that the column separates, and of a constant one.
func TestFitIsTheMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		l := &logistic{rises: rapid.Bool().Draw(t, "rises")}
		kind := rapid.SampledFrom([]string{"noise", "separates", "falls", "constant"}).Draw(t, "kind")
		for i := range rapid.IntRange(4, 80).Draw(t, "rows") {
			l.y = append(l.y, i == 0 || i > 1 && rng.Float64() < 0.3)
			l.x = append(l.x, map[string]float64{"noise": rng.NormFloat64(), "separates": 3 * outcome(l.y[i]), "falls": -3 * outcome(l.y[i])}[kind])
		}
		l.centre[1] = rapid.SampledFrom([]float64{0, 2}).Draw(t, "centre")
		l.penalty[1] = rapid.SampledFrom([]float64{0.1, 1, 10}).Draw(t, "penalty")
		b := l.fit([2]float64{})
		gradient, _ := l.step(b)
		const tolerance = 1e-4 // of a gradient, against terms of about the number of rows
		held := l.rises && b[1] == 0
		if !(math.Abs(gradient[0]) < tolerance) || held && gradient[1] < -tolerance || !held && !(math.Abs(gradient[1]) < tolerance) ||
			l.rises && b[1] < 0 {
			t.Errorf("%s, rises %v: weights %v, gradient %v", kind, l.rises, b, gradient)
		}
	})
}

// drawn returns a problem whose column is higher for critical rows, in groups.
func drawn(n, groups int, seed uint64) *problem {
	rng := rand.New(rand.NewPCG(seed, 2))
	p := &problem{groups: groups}
	for r := range n {
		p.rows, p.group = append(p.rows, r), append(p.group, r%groups)
		p.y = append(p.y, rng.Float64() < 0.2)
		p.x = append(p.x, rng.NormFloat64()+outcome(p.y[r]))
		p.missed += int(outcome(p.y[r]))
	}
	return p
}

// TestHeldOut checks that the log-odds of a fold do not depend on the outcomes in it, and that those
// of other folds do; and that groups are held out together, with critical rows in every fold.
func TestHeldOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(rapid.IntRange(150, 300).Draw(t, "rows"), rapid.IntRange(60, 300).Draw(t, "groups"), rapid.Uint64().Draw(t, "seed"))
		fold := p.folds(rapid.Uint64().Draw(t, "folds"))
		foldOf, critical := map[int]int{}, make([]int, folds)
		for r, g := range p.group {
			if before, seen := foldOf[g]; seen && before != fold[r] {
				t.Fatalf("group %d is in folds %d and %d", g, before, fold[r])
			}
			foldOf[g] = fold[r]
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
		before := p.holdOut(fold)
		for r, f := range fold {
			if f == out {
				p.y[r] = !p.y[r]
			}
		}
		after := p.holdOut(fold)
		for r, f := range fold {
			if (before[r] == after[r]) != (f == out) {
				t.Fatalf("row %d of fold %d: %v, and %v with other outcomes in fold %d", r, f, before[r], after[r], out)
			}
		}
	})
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
