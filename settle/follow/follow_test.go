package follow_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/follow"
)

// newPolicy of k classes, of which the first are critical.
func newPolicy(k, critical int) *policy.Policy {
	p := &policy.Policy{
		Name: "m", Kind: policy.Probabilities, FewestPasses: 2, SumTolerance: 1e-3, Variance: policy.Sample,
		ReliabilityThreshold: 0.3, Gate: policy.AnyCritical, Scope: policy.AllInputs, Pairs: policy.SafeCriticalPairs,
		Primary:    policy.Rule{Score: policy.CCritMax, Threshold: 0.02, HasThreshold: true},
		Fallback:   policy.Rule{Score: policy.CBEC, Threshold: 0.01, HasThreshold: true},
		Degenerate: policy.HandleDefer, Saturated: policy.HandleDefer, TopClasses: 2,
	}
	for j := range k {
		p.Classes = append(p.Classes, fmt.Sprint("class ", j))
		if j < critical {
			p.Critical = append(p.Critical, j)
		} else {
			p.Safe = append(p.Safe, j)
		}
	}
	return p
}

// passes of one input: softmax of normal logits, as float32 or as they are.
func passes(rng *rand.Rand, s, k int, logits bool) []float32 {
	center := make([]float64, k)
	for j := range center {
		center[j] = 2 * rng.NormFloat64()
	}
	var out []float32
	for range s {
		row, sum := make([]float64, k), 0.0
		for j := range row {
			row[j] = center[j] + rng.NormFloat64()
			sum += math.Exp(row[j])
		}
		for _, z := range row {
			if !logits {
				z = math.Exp(z) / sum
			}
			out = append(out, float32(z))
		}
	}
	return out
}

// TestAgrees: after every pass, scores, gate and decision are those of the engine on
// the passes so far.
func TestAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(2, 6).Draw(t, "classes")
		p := newPolicy(k, rapid.IntRange(1, k-1).Draw(t, "critical"))
		p.Gate = rapid.SampledFrom([]policy.Gate{policy.AnyCritical, policy.DecidingClass, policy.Always, policy.Never}).Draw(t, "gate")
		p.Scope = rapid.SampledFrom([]policy.Scope{policy.AllInputs, policy.PredictedSafe}).Draw(t, "scope")
		p.Variance = rapid.SampledFrom([]policy.Variance{policy.Sample, policy.Population}).Draw(t, "variance")
		p.Kind = rapid.SampledFrom([]policy.Kind{policy.Probabilities, policy.Logits}).Draw(t, "kind")
		score := rapid.SampledFrom([]policy.Score{policy.Entropy, policy.MI, policy.MaxProb, policy.EUVar, policy.VarCrit,
			policy.EUVarCrit, policy.CCritSum, policy.CCritMax, policy.CBEC})
		p.Primary.Score, p.Fallback.Score = score.Draw(t, "primary"), score.Draw(t, "fallback")
		p.PairWeights = []policy.PairWeight{{Safe: p.Safe[0], Critical: p.Critical[0], Weight: 2.5}}
		plan, err := follow.NewPlan(p)
		if err != nil {
			t.Fatal(err)
		}
		m, err := engine.New(p)
		if err != nil {
			t.Fatal(err)
		}
		s := rapid.IntRange(2, 12).Draw(t, "passes")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		values := passes(rng, s, k, p.Kind == policy.Logits)
		open, b, o := plan.NewInputs(2), m.NewBatch(), m.NewOutcome()
		for at := range s {
			if err := open.Add(1, values[at*k:(at+1)*k]); err != nil {
				t.Fatal(err)
			}
			if at == 0 {
				continue
			}
			if err := b.Reset(decomp.Tensor{Passes: at + 1, Inputs: 1, Float32: values[:(at+1)*k]}); err != nil {
				t.Fatal(err)
			}
			if err := b.Outcome(0, o); err != nil {
				t.Fatal(err)
			}
			e := open.Evidence(1)
			close := func(what string, got, want float64) {
				if !(math.Abs(got-want) <= 1e-9*math.Abs(want)+1e-13) {
					t.Fatalf("%s after %d passes: %v, expected %v", what, at+1, got, want)
				}
			}
			of := func(name policy.Score) float64 { s, _ := decomp.ParseScore(string(name)); return o.Scores[s] }
			if p.Gate.ReachesPrimary() {
				close("primary "+string(p.Primary.Score), e.Primary, of(p.Primary.Score))
			}
			if p.Gate.ReachesFallback() {
				close("fallback "+string(p.Fallback.Score), e.Fallback, of(p.Fallback.Score))
			}
			if p.Gate.ReadsSkewness() {
				for _, c := range p.Critical {
					close("skewness", e.Skewness[c], o.Skewness[c])
				}
			}
			got, class := open.Decide(1)
			if class != o.Predicted || got.Action != o.Decision.Action || got.Gate != o.Decision.Gate || got.Class != o.Decision.Class {
				t.Fatalf("after %d passes: %+v of class %d, expected %+v of class %d", at+1, got, class, o.Decision, o.Predicted)
			}
			// The statistics say the same: above 0 it would defer.
			var x settle.Statistics
			open.Statistics(1, &x)
			if defers := x.Values[settle.Own] > 0; defers != (got.Action == policy.Defer) {
				t.Fatalf("own %v, but %v", x.Values[settle.Own], got.Action)
			}
			rule := &settle.Rule{Passes: s + 1, Fewest: 2, Steps: make([]settle.Step, s-1)}
			for i := range rule.Steps {
				for j := range rule.Steps[i].Coefficients {
					rule.Steps[i].Coefficients[j] = rng.NormFloat64()
				}
				rule.Steps[i].Defer = 1
			}
			if quick, slow := open.Settled(1, rule), rule.Settled(at+1, &x); quick != slow {
				t.Fatalf("settled to %q, expected %q", quick, slow)
			}
			for i, v := range x.Values {
				if !(math.Abs(v) <= settle.Bound) {
					t.Fatalf("statistic %d is %v", i, v)
				}
			}
		}
	})
}

func TestDegenerate(t *testing.T) {
	plan, err := follow.NewPlan(newPolicy(3, 1))
	if err != nil {
		t.Fatal(err)
	}
	open, row := plan.NewInputs(1), []float32{0.1, 0.3, 0.6}
	var x settle.Statistics
	for n := 1; n <= 20; n++ {
		_ = open.Add(0, row)
		if open.Statistics(0, &x); x.Degenerate != (n > 1) {
			t.Fatalf("degenerate %v after %d identical passes", x.Degenerate, n)
		}
	}
	_ = open.Add(0, []float32{0.1, 0.2, 0.7})
	if open.Statistics(0, &x); x.Degenerate {
		t.Error("degenerate after a pass that differs")
	}
	open.Reset(0)
	if open.Passes(0) != 0 {
		t.Error("passes after Reset")
	}
	if open.Add(0, row[:2]) == nil {
		t.Error("no error for a row of 2 classes, expected one")
	}
}

func TestUnsupported(t *testing.T) {
	for _, c := range []struct {
		spoil func(*policy.Policy)
		want  string
	}{
		{func(p *policy.Policy) { p.Kind = policy.Dirichlet }, "kind dirichlet"},
		{func(p *policy.Policy) { p.Primary.HasThreshold, p.Fallback.HasThreshold = false, false }, "no thresholds"},
		{func(p *policy.Policy) { p.Primary.Score = policy.OvAMI }, "score ova_mi"},
	} {
		p := newPolicy(3, 1)
		c.spoil(p)
		_, err := follow.NewPlan(p)
		var unsupported *follow.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: expected an *UnsupportedError with %q", err, c.want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	plan, err := follow.NewPlan(newPolicy(5, 2))
	if err != nil {
		t.Fatal(err)
	}
	values := passes(rand.New(rand.NewPCG(1, 2)), 10, 5, false)
	open := plan.NewInputs(1)
	var x settle.Statistics
	if n := testing.AllocsPerRun(100, func() {
		open.Reset(0)
		for s := range 10 {
			_ = open.Add(0, values[s*5:][:5])
			open.Statistics(0, &x)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkPass is the cost of a pass: what the accumulator takes to check and keep it,
// that with its share of the result, following it, and asking.
func BenchmarkPass(b *testing.B) {
	for _, size := range []struct{ k, critical int }{{3, 2}, {10, 2}, {100, 5}} {
		const s, n = 30, 64
		for _, gate := range []policy.Gate{policy.Never, policy.Always, policy.AnyCritical} {
			p := newPolicy(size.k, size.critical)
			p.Gate = gate
			rng := rand.New(rand.NewPCG(1, 2))
			values := make([][]float32, n)
			for i := range values {
				values[i] = passes(rng, s, size.k, false)
			}
			name := fmt.Sprintf("K=%d/%s/", size.k, gate)
			per := func(b *testing.B) { b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(s*n), "ns/pass") }
			m, err := engine.NewLean(p)
			if err != nil {
				b.Fatal(err)
			}
			for _, finish := range []bool{false, true} {
				b.Run(name+map[bool]string{false: "keep", true: "keep+finish"}[finish], func(b *testing.B) {
					batch, o := m.NewBatch(), m.NewOutcome()
					for b.Loop() {
						in := m.Open(n, s)
						for t := range s {
							for i := range n {
								if err := in.Add(batch, i, values[i][t*size.k:][:size.k]); err != nil {
									b.Fatal(err)
								}
							}
						}
						if finish {
							if err := in.Finish(batch, 0, n); err != nil {
								b.Fatal(err)
							}
							for i := range n {
								_ = batch.Outcome(i, o)
							}
						}
						in.Release()
					}
					per(b)
				})
			}
			plan, err := follow.NewPlan(p)
			if err != nil {
				b.Fatal(err)
			}
			rule := &settle.Rule{Passes: s, Fewest: 1, Steps: make([]settle.Step, s-1)}
			for i := range rule.Steps {
				rule.Steps[i].Retain, rule.Steps[i].Defer = -1, 100 // never reached, and never known before
			}
			for _, ask := range []bool{false, true} {
				b.Run(name+map[bool]string{false: "follow", true: "follow+ask"}[ask], func(b *testing.B) {
					open := plan.NewInputs(n)
					for b.Loop() {
						for i := range n {
							open.Reset(i)
						}
						for t := range s {
							for i := range n {
								_ = open.Add(i, values[i][t*size.k:][:size.k])
								if ask {
									if open.Settled(i, rule) != settle.Open {
										b.Fatal("settled")
									}
								}
							}
						}
					}
					per(b)
				})
			}
		}
	}
}
