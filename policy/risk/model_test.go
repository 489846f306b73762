package risk_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy/risk"
)

// sets draws disjoint sets of classes; a class may be in neither.
func sets(t *rapid.T, k int) (critical, safe []int) {
	for c := range k {
		switch rapid.IntRange(0, 4).Draw(t, "set") {
		case 0, 1:
			critical = append(critical, c)
		case 2, 3:
			safe = append(safe, c)
		}
	}
	if len(critical) == 0 || len(safe) == 0 {
		t.Skip("a set is empty")
	}
	return critical, safe
}

// models draws a model that passes Check, with every feature that the sets have.
func models(t *rapid.T, critical, safe []int) *risk.Model {
	m := &risk.Model{Intercept: rapid.Float64Range(-9, 9).Draw(t, "intercept")}
	for _, f := range risk.Features() {
		classes := []int{-1}
		switch of, _ := f.Of(); of {
		case risk.CriticalClass:
			classes = critical
		case risk.SafeClass:
			classes = safe
		}
		for _, class := range classes {
			weight := rapid.Float64Range(-2, 2).Draw(t, string(f))
			if f.Rises() {
				weight = math.Abs(weight)
			}
			m.Terms = append(m.Terms, risk.Term{Feature: f, Class: class, Weight: weight})
		}
	}
	if err := m.Check(critical, safe); err != nil {
		t.Fatal(err)
	}
	return m
}

// decompose returns the mean and C of an input, and its predicted class.
func decompose(t *rapid.T, passes [][]float64, critical, safe []int) (risk.Input, int) {
	plan, err := decomp.NewPlan(decomp.Spec{Classes: len(passes[0]), Critical: critical, Safe: safe})
	if err != nil {
		t.Fatal(err)
	}
	b, r := plan.NewBatch(), plan.NewResult()
	var flat []float64
	for _, row := range passes {
		flat = append(flat, row...)
	}
	if err := b.Reset(decomp.Tensor{Passes: len(passes), Inputs: 1, Float64: flat}); err != nil {
		t.Fatal(err)
	}
	if err := b.Result(0, r); err != nil {
		t.Fatal(err)
	}
	return risk.Input{Mean: r.Mean, C: r.C, Critical: critical, Safe: safe}, r.Predicted
}

// TestRiskDoesNotFall moves mass, in every pass, from the safe to the critical classes in proportion
// to what they have, and follows it from the passes over decomp to the risk.
func TestRiskDoesNotFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, passes := rapid.IntRange(2, 8).Draw(t, "K"), make([][]float64, rapid.IntRange(2, 9).Draw(t, "S"))
		critical, safe := sets(t, k)
		sharp := rapid.Float64Range(0.1, 6).Draw(t, "sharp")
		for s := range passes {
			passes[s] = make([]float64, k)
			sum := 0.0
			for c := range k {
				passes[s][c] = math.Exp(sharp * rapid.Float64Range(-2, 2).Draw(t, "logit"))
				sum += passes[s][c]
			}
			for c := range k {
				passes[s][c] /= sum
			}
		}
		share := rapid.Float64Range(0, 0.99).Draw(t, "t")
		moved := make([][]float64, len(passes))
		for s, row := range passes {
			moved[s] = append([]float64(nil), row...)
			c, o := 0.0, 0.0
			for _, class := range critical {
				c += row[class]
			}
			for _, class := range safe {
				o += row[class]
				moved[s][class] *= 1 - share
			}
			for _, class := range critical {
				moved[s][class] = min(1, row[class]*(1+share*o/c)) // 1 but for rounding
			}
		}
		m := models(t, critical, safe)
		before, predicted := decompose(t, passes, critical, safe)
		was := m.LogOdds(before)
		after, moves := decompose(t, moved, critical, safe)
		for _, class := range critical {
			if predicted == class || moves == class {
				t.Skip("it is not called safe, or not any more")
			}
		}
		size := 0.0
		for _, term := range m.Terms {
			size += math.Abs(term.Weight * term.Value(after))
		}
		if is := m.LogOdds(after); is < was-1e-6*size {
			t.Fatalf("log-odds %v fell to %v", was, is)
		}
		if p := m.Probability(after); p < 0 || p > 1 || math.IsNaN(p) {
			t.Fatalf("probability %v", p)
		}
	})
}

// TestValues compares each feature with its formula, computed by hand.
func TestValues(t *testing.T) {
	in := risk.Input{
		Mean: []float64{0.5, 0.25, 0.15, 0.1}, C: []float64{0.02, 0.01, 0.03, 0.04},
		Critical: []int{2, 3}, Safe: []int{0, 1},
	}
	flat := risk.Input{Mean: []float64{0, 0, 1, 0}, C: make([]float64, 4), Critical: []int{2, 3}, Safe: []int{0, 1}}
	for _, c := range []struct {
		feature     risk.Feature
		class       int
		want, empty float64 // of in, and of flat
	}{
		{risk.PCritical, -1, math.Log(0.25 / 0.75), math.Log((1 - 1e-6) / 1e-6)},
		{risk.LargestCriticalMean, -1, math.Log(0.15 / 0.85), math.Log((1 - 1e-6) / 1e-6)},
		{risk.CriticalMean, 3, math.Log(0.1 / 0.9), math.Log(1e-6 / (1 - 1e-6))},
		{risk.SafeShare, 0, math.Log(2), 0},
		{risk.SafeShare, 1, math.Log(0.5), 0},
		{risk.SafeEntropy, -1, math.Log(3) - 2./3*math.Log(2), math.Log(2)},
		{risk.PredictedVariation, -1, math.Log(1e-6 + 0.04), math.Log(1e-6)},
		{risk.SafeVariation, -1, math.Log(1e-6 + 0.04), math.Log(1e-6)},
	} {
		t.Run(fmt.Sprint(c.feature, c.class), func(t *testing.T) {
			term := risk.Term{Feature: c.feature, Class: c.class, Weight: 1}
			m := risk.Model{Intercept: 2, Terms: []risk.Term{term}}
			if err := m.Check(in.Critical, in.Safe); err != nil {
				t.Fatal(err)
			}
			const tolerance = 1e-9 // of rounding, where a mean is near 1
			if got := term.Value(in); math.Abs(got-c.want) > tolerance {
				t.Errorf("%v, expected %v", got, c.want)
			}
			if got := m.LogOdds(in); math.Abs(got-2-c.want) > tolerance {
				t.Errorf("log-odds %v, expected 2 more than %v", got, c.want)
			}
			if got := term.Value(flat); math.Abs(got-c.empty) > tolerance {
				t.Errorf("all mass on one critical class: %v, expected %v", got, c.empty)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		model risk.Model
		want  string
	}{
		{risk.Model{Intercept: math.NaN()}, "intercept NaN"},
		{risk.Model{Terms: []risk.Term{{"p_critcal", -1, 1}}}, `term 0: feature "p_critcal": expected one of`},
		{risk.Model{Terms: []risk.Term{{risk.PCritical, 2, 1}}}, "class 2, expected none"},
		{risk.Model{Terms: []risk.Term{{risk.CriticalMean, 0, 1}}}, "class 0, expected a critical class"},
		{risk.Model{Terms: []risk.Term{{risk.SafeShare, -1, 1}}}, "class -1, expected a safe class"},
		{risk.Model{Terms: []risk.Term{{risk.SafeEntropy, -1, math.Inf(1)}}}, "weight +Inf, expected a finite number"},
		{risk.Model{Terms: []risk.Term{{risk.SafeEntropy, -1, -1}, {risk.PCritical, -1, -0.1}}}, "term 1: feature p_critical: weight -0.1, expected at least 0"},
		{risk.Model{Terms: []risk.Term{{risk.CriticalMean, 2, 1}, {risk.CriticalMean, 1, 1}, {risk.CriticalMean, 2, 1}}}, "term 2: feature critical_mean is that of term 0"},
	} {
		t.Run(c.want, func(t *testing.T) {
			if err := c.model.Check([]int{1, 2}, []int{0}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, expected an error with %q", err, c.want)
			}
		})
	}
}

func TestLogOddsAllocatesNothing(t *testing.T) {
	in := risk.Input{Mean: []float64{0.7, 0.2, 0.1}, C: []float64{0.1, 0.1, 0.1}, Critical: []int{1, 2}, Safe: []int{0}}
	m := risk.Model{}
	for _, f := range risk.Features() {
		of, _ := f.Of()
		m.Terms = append(m.Terms, risk.Term{Feature: f, Class: map[risk.Set]int{risk.NoClass: -1, risk.CriticalClass: 1}[of], Weight: 1})
	}
	if err := m.Check(in.Critical, in.Safe); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { m.LogOdds(in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLogOdds(b *testing.B) {
	in := risk.Input{Mean: []float64{0.7, 0.2, 0.1}, C: []float64{0.1, 0.1, 0.1}, Critical: []int{1, 2}, Safe: []int{0}}
	m := risk.Model{Intercept: -1, Terms: []risk.Term{{risk.PCritical, -1, 0.9}, {risk.CriticalMean, 2, 0.3}, {risk.SafeVariation, -1, 0.1}}}
	for b.Loop() {
		m.LogOdds(in)
	}
}

// A policy holds two numbers: the risk is the model's own p_critical, corrected.
func ExampleModel() {
	m := risk.Model{Intercept: -1.25, Terms: []risk.Term{{Feature: risk.PCritical, Class: -1, Weight: 0.93}}}
	critical, safe := []int{1, 2}, []int{0}
	if err := m.Check(critical, safe); err != nil {
		fmt.Println(err)
	}
	for _, mean := range [][]float64{{0.98, 0.01, 0.01}, {0.6, 0.3, 0.1}} {
		in := risk.Input{Mean: mean, C: []float64{0, 0, 0}, Critical: critical, Safe: safe}
		fmt.Printf("mean %v: risk %.4f\n", mean, m.Probability(in))
	}
	// Output:
	// mean [0.98 0.01 0.01]: risk 0.0076
	// mean [0.6 0.3 0.1]: risk 0.1642
}
