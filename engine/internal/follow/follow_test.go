package follow_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/engine/internal/follow"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// newPolicy returns a policy of k classes, the first of which are critical.
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

func newPlan(t rapid.TB, p *policy.Policy) *follow.Plan {
	t.Helper()
	plan, err := follow.NewPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func bind(t rapid.TB, p *policy.Policy, o engine.BindOptions) *engine.Model {
	t.Helper()
	m, err := engine.Bind(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// passes draws passes of one input: normal logits, or their softmax.
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

// TestAgrees checks that after every pass scores, gate and decision are those of the engine on the
// passes so far.
func TestAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.OneOf(rapid.IntRange(2, 7), rapid.IntRange(20, 70)).Draw(t, "classes")
		p := newPolicy(k, rapid.IntRange(1, min(k-1, 11)).Draw(t, "critical"))
		if rapid.Bool().Draw(t, "the last class is neither") && len(p.Safe) > 1 {
			p.Safe = p.Safe[:len(p.Safe)-1]
		}
		p.Gate = rapid.SampledFrom([]policy.Gate{policy.AnyCritical, policy.Always, policy.Never}).Draw(t, "gate")
		p.Scope = rapid.SampledFrom([]policy.Scope{policy.AllInputs, policy.PredictedSafe}).Draw(t, "scope")
		p.Variance = rapid.SampledFrom([]policy.Variance{policy.Sample, policy.Population}).Draw(t, "variance")
		p.Kind = rapid.SampledFrom([]policy.Kind{policy.Probabilities, policy.Logits}).Draw(t, "kind")
		score := rapid.SampledFrom([]policy.Score{policy.Entropy, policy.MI, policy.MaxProb, policy.EUVar, policy.VarCrit,
			policy.EUVarCrit, policy.CCritSum, policy.CCritMax, policy.CBEC, policy.PCritical, policy.RiskScore})
		p.Primary.Score, p.Fallback.Score = score.Draw(t, "primary"), score.Draw(t, "fallback")
		p.Risk = &policy.Risk{Quantiles: make([]float64, 65)}
		p.Risk.CalledSafe.Slope = rapid.Float64Range(0.01, 1).Draw(t, "slope")
		if rapid.Bool().Draw(t, "guarded") {
			p.Guard = &policy.Guard{Score: rapid.SampledFrom(policy.GuardScores()).Draw(t, "guard"), Threshold: 0.05}
		}
		if rapid.Bool().Draw(t, "weights") {
			p.PairWeights = []policy.PairWeight{{Safe: p.Safe[0], Critical: p.Critical[0], Weight: 2.5}}
		}
		plan := newPlan(t, p)
		m := bind(t, p, engine.BindOptions{})
		s := rapid.IntRange(2, 12).Draw(t, "passes")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		values := passes(rng, s, k, p.Kind == policy.Logits)
		open, b, o := plan.NewInputs(2), m.NewBatch(), m.NewOutcome()
		patience, again := rapid.SampledFrom([]float64{0, 1, 8}).Draw(t, "patience"), 0
		for pass := range s {
			if err := open.Add(1, values[pass*k:(pass+1)*k]); err != nil {
				t.Fatal(err)
			}
			if pass == 0 {
				continue
			}
			if err := b.Reset(decomp.Tensor{Passes: pass + 1, Inputs: 1, Float32: values[:(pass+1)*k]}); err != nil {
				t.Fatal(err)
			}
			if err := b.Outcome(0, o); err != nil {
				t.Fatal(err)
			}
			e := open.Evidence(1)
			near := func(what string, got, want float64) {
				if !(math.Abs(got-want) <= 1e-9*math.Abs(want)+1e-13) && !(math.IsNaN(got) && math.IsNaN(want)) {
					t.Fatalf("%s after %d passes: %v, expected %v", what, pass+1, got, want)
				}
			}
			if p.Gate.ReachesPrimary() {
				near("primary "+string(p.Primary.Score), e.Primary, o.Primary)
			}
			if p.Gate.ReachesFallback() {
				near("fallback "+string(p.Fallback.Score), e.Fallback, o.Fallback)
			}
			if p.Guard != nil {
				guard, _ := decomp.ParseScore(string(p.Guard.Score))
				near("guard "+string(p.Guard.Score), e.Guard, o.Scores[guard])
			}
			if p.Gate.ReadsSkewness() {
				for _, c := range p.Critical {
					near("skewness", e.Skewness[c], o.Skewness[c])
				}
			}
			got, class := open.Decide(1)
			if class != o.Predicted || got.Action != o.Decision.Action || got.Gate != o.Decision.Gate || got.Class != o.Decision.Class {
				t.Fatalf("after %d passes: %+v of class %d, expected %+v of class %d", pass+1, got, class, o.Decision, o.Predicted)
			}
			// The statistics agree: above 0 the input would be deferred.
			var x earlystop.Statistics
			open.Statistics(1, &x)
			peak := 0.0
			if p.Kind == policy.Probabilities { // the probabilities of logits are not at hand
				for pass := range pass + 1 {
					mass := 0.0
					for _, c := range p.Critical {
						mass += float64(values[pass*k+c])
					}
					peak = max(peak, mass)
				}
				rough(t, "peak", x.Values[earlystop.Peak], (peak+1e-6)/(1-peak+1e-6))
			}
			critical, other := 0.0, 0.0
			for c, mu := range o.Mean {
				if slices.Contains(p.Critical, c) {
					critical = max(critical, mu)
				} else {
					other = max(other, mu)
				}
			}
			rough(t, "doubt", x.Values[earlystop.Doubt], 1-max(critical, other)+1e-6)
			rough(t, "margin", x.Values[earlystop.Margin], (critical+1e-6)/(other+1e-6))
			unfamiliar := o.Decision.Reason == policy.Unfamiliar
			if x.Unfamiliar != unfamiliar {
				t.Fatalf("unfamiliar %v, expected %v", x.Unfamiliar, unfamiliar)
			}
			if p.Scope == policy.AllInputs && !unfamiliar && o.Decision.Score != policy.RiskScore {
				const e = 1e-12
				rough(t, "own", x.Values[earlystop.Own], (o.Decision.Value+e)/(o.Decision.Threshold+e))
			}
			if defers := x.Values[earlystop.Own] > 0; !unfamiliar && defers != (got.Action == policy.Defer) {
				t.Fatalf("own %v, but %v", x.Values[earlystop.Own], got.Action)
			}
			rule := &earlystop.Rule{Passes: s + 1, Fewest: 2, Patience: patience, Steps: make([]earlystop.Step, s-1)}
			for i := range rule.Steps {
				rule.Steps[i] = anyStep(rng)
			}
			quick, slow := open.Settled(1, rule), earlystop.Open
			if pass+1 >= again {
				slow, again = rule.Settled(pass+1, &x)
			}
			if quick != slow {
				t.Fatalf("stopped with %q, expected %q", quick, slow)
			}
			for i, v := range x.Values {
				if !(math.Abs(v) <= earlystop.Bound) {
					t.Fatalf("statistic %d is %v", i, v)
				}
			}
		}
	})
}

// rough checks that a statistic is the logarithm of a number, to 0.01.
func rough(t *rapid.T, what string, got, of float64) {
	t.Helper()
	if want := min(max(math.Log(of), -earlystop.Bound), earlystop.Bound); want > -13 && math.Abs(got-want) > 0.01 {
		t.Fatalf("%s %v, expected %v", what, got, want)
	}
}

// TestBytes checks Bytes and SharedBytes against the memory that is allocated.
func TestBytes(t *testing.T) {
	for _, k := range []int{3, 100} {
		p := newPolicy(k, 2)
		p.Fallback.Score = policy.EUVar
		p.Primary.Score = policy.CBEC
		plan := newPlan(t, p)
		const n = 1 << 12
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		open := plan.NewInputs(n)
		runtime.ReadMemStats(&after)
		got, want := float64(after.TotalAlloc-before.TotalAlloc)/n, float64(plan.Bytes())
		if !(got >= 0.95*want && got <= 1.05*want+10) || open.Room() != n {
			t.Errorf("%d classes: %v bytes, expected %v", k, got, want)
		}
		const groups = 200
		runtime.ReadMemStats(&before)
		for range groups {
			open = plan.NewInputs(1)
		}
		runtime.ReadMemStats(&after)
		got, want = float64(after.TotalAlloc-before.TotalAlloc)/groups, float64(plan.Bytes()+plan.SharedBytes())
		if !(got >= 0.95*want && got <= 1.2*want+100) || open.Room() != 1 {
			t.Errorf("%d classes: %v bytes of an input alone, expected %v", k, got, want)
		}
	}
}

func TestDegenerate(t *testing.T) {
	plan := newPlan(t, newPolicy(3, 1))
	open, row := plan.NewInputs(1), []float32{0.1, 0.3, 0.6}
	var x earlystop.Statistics
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
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: expected an error with %q", err, c.want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	plan := newPlan(t, newPolicy(5, 2))
	values := passes(rand.New(rand.NewPCG(1, 2)), 10, 5, false)
	open := plan.NewInputs(1)
	var x earlystop.Statistics
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

// anyStep draws coefficients and boundaries. A quarter of the boundaries are never reached.
func anyStep(rng *rand.Rand) (s earlystop.Step) {
	for _, side := range []*earlystop.Side{&s.Retain, &s.Defer} {
		if side.AtMost = rng.NormFloat64(); rng.IntN(4) == 0 {
			side.AtMost = -earlystop.Never
		}
		for j := range side.Coefficients {
			side.Coefficients[j] = rng.NormFloat64()
		}
	}
	return s
}

// TestResize checks that nothing of earlier inputs is left in memory that is used again.
func TestResize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.OneOf(rapid.IntRange(2, 7), rapid.IntRange(45, 55)).Draw(t, "classes")
		p := newPolicy(k, rapid.IntRange(1, min(k-1, 4)).Draw(t, "critical"))
		p.Gate = rapid.SampledFrom([]policy.Gate{policy.AnyCritical, policy.Always, policy.Never}).Draw(t, "gate")
		p.Primary.Score = rapid.SampledFrom([]policy.Score{policy.CCritMax, policy.EUVar, policy.MI}).Draw(t, "primary")
		p.Kind = rapid.SampledFrom([]policy.Kind{policy.Probabilities, policy.Logits}).Draw(t, "kind")
		plan := newPlan(t, p)
		const n, s = 5, 6
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		rule := &earlystop.Rule{Passes: s + 1, Fewest: 2, Steps: make([]earlystop.Step, s-1)}
		for i := range rule.Steps {
			rule.Steps[i] = anyStep(rng)
		}
		all, each := plan.NewInputs(2*n), plan.NewInputs(n)
		patient := *rule
		patient.Patience = 1e-9
		for i := range 2 * n { // to be forgotten
			for range 2 {
				_ = all.Add(i, passes(rng, 1, k, p.Kind == policy.Logits))
			}
			all.Settled(i, &patient)
		}
		all.Resize(n)
		for range s {
			values := passes(rng, n, k, p.Kind == policy.Logits)
			for i := range n {
				for _, in := range []*follow.Inputs{all, each} {
					if err := in.Add(i, values[i*k:][:k]); err != nil {
						t.Fatal(err)
					}
				}
				var x, y earlystop.Statistics
				all.Statistics(i, &x)
				each.Statistics(i, &y)
				a, b := all.Settled(i, rule), each.Settled(i, rule)
				if want, _ := rule.Settled(all.Passes(i), &x); x != y || a != b || a != want {
					t.Fatalf("input %d: %v, %v, expected %v, %v, %v", i, x, a, y, b, want)
				}
			}
		}
		if all.Add(0, make([]float32, k-1)) == nil {
			t.Error("no error for a value too few, expected one")
		}
	})
}

// FuzzSettled checks that no rows cause a panic, and that an input whose passes are all identical
// is never retained before the last.
func FuzzSettled(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, uint8(3), uint8(0), false)
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 0, 0, 0, 128, 63, 0, 0, 0, 0}, uint8(2), uint8(1), true)
	f.Add([]byte{0, 0, 192, 127, 0, 0, 128, 255, 0, 0, 128, 127, 255, 255, 127, 127}, uint8(50), uint8(2), false)
	f.Fuzz(func(t *testing.T, data []byte, classes, gate uint8, logits bool) {
		k := 2 + int(classes)%60
		p := newPolicy(k, 1+k/8)
		p.Gate = []policy.Gate{policy.AnyCritical, policy.Always, policy.Never}[gate%3]
		if logits {
			p.Kind = policy.Logits
		}
		plan := newPlan(t, p)
		const most = 20
		rule := &earlystop.Rule{Passes: most + 2, Fewest: 1, Steps: make([]earlystop.Step, most+1)}
		for i := range rule.Steps {
			rule.Steps[i].Retain.AtMost = earlystop.Never // always reached
		}
		open, row, first, x := plan.NewInputs(2), make([]float32, k), make([]float32, k), earlystop.Statistics{}
		for pass := range most {
			for j := range row {
				if at := 4 * (pass*k + j); at+4 <= len(data) {
					row[j] = math.Float32frombits(binary.LittleEndian.Uint32(data[at:]))
				}
			}
			// Input 0 gets every row. Input 1 gets the first again and again.
			if err := open.Add(0, row); err != nil {
				t.Fatal(err)
			}
			if pass == 0 {
				copy(first, row)
			}
			if err := open.Add(1, first); err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				open.Statistics(i, &x)
				quick := open.Settled(i, rule)
				if slow, _ := rule.Settled(pass+1, &x); quick != slow {
					t.Fatalf("stopped with %q, expected %q of %v", quick, slow, x)
				}
			}
			if open.Settled(1, rule) == earlystop.Retain && pass > 0 {
				t.Fatalf("retained after %d identical passes", pass+1)
			}
		}
	})
}
