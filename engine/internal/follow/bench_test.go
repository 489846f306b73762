package follow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// neverReached returns a rule that stops no input, and looks at each as often as learned rules look
// at real inputs that they do not stop: 10 times in 30 passes.
func neverReached() *earlystop.Rule {
	r := &earlystop.Rule{Passes: 30, Fewest: 2, Patience: 8, Steps: make([]earlystop.Step, 28)}
	for i := range r.Steps {
		for _, side := range []*earlystop.Side{&r.Steps[i].Retain, &r.Steps[i].Defer} {
			side.AtMost = -3
			for j := range side.Coefficients {
				side.Coefficients[j] = 1e-9 * float64(j)
			}
		}
	}
	return r
}

// BenchmarkPass measures the cost of a pass, in groups of 64 inputs that all take 30 passes:
//   - keep: check the pass and keep it;
//   - accumulate: keep it and compute its share of the result;
//   - follow: follow it, until the rule asks no more;
//   - follow-ask: follow it and ask the rule, where no input stops and none would be deferred,
//     which takes longest.
//
// The four take turns, so that the ratios to accumulate hold at one time.
func BenchmarkPass(b *testing.B) {
	for _, size := range []struct{ k, critical int }{{3, 1}, {3, 2}, {10, 1}, {10, 2}, {10, 5}, {100, 5}, {100, 10}} {
		for _, gate := range gates {
			p := newPolicy(size.k, size.critical)
			p.Gate, p.Primary.Threshold, p.Fallback.Threshold = gate.Gate, 10, 10
			b.Run(fmt.Sprintf("K=%d/critical=%d/%s", size.k, size.critical, gate.name), func(b *testing.B) {
				const s = 30
				rng, values := rand.New(rand.NewPCG(1, 2)), make([]float32, s*group*size.k)
				for i := range group {
					for j, v := range passes(rng, s, size.k, false) {
						values[(j/size.k*group+i)*size.k+j%size.k] = v
					}
				}
				benchmark(b, p, neverReached(), [][]float32{values}, s)
			})
		}
	}
}

// BenchmarkRecording measures the same with real passes, and with a rule that was learned from one
// half of the inputs and certified on the other. Inputs that stop take no more passes.
func BenchmarkRecording(b *testing.B) {
	r, err := recordings.CTGMCDropout()
	if err != nil {
		b.Fatal(err)
	}
	for _, gate := range gates {
		b.Run(gate.name, func(b *testing.B) {
			p := newPolicy(len(r.Classes), 1)
			p.Critical, p.Safe, p.Gate, p.Primary.Threshold, p.Fallback.Threshold = r.Critical, r.Safe, gate.Gate, 0.06, 0.06
			s, n, k := r.Passes.S, r.Passes.N, len(r.Classes)
			p.ExpectedPasses = s
			if gate.ReadsSkewness() {
				p.FewestPasses = 4
			}
			found, err := calibrate.Run(b.Context(), eval.Recording{Classes: k, Passes: decomp.Tensor{Passes: s, Inputs: n, Float32: r.Passes.Float32}},
				calibrate.Options{Base: p, Seed: 1, EarlyStop: &calibrate.EarlyStopOptions{Disagreement: 0.01, Confidence: 0.9}})
			if err != nil || found.Refused() {
				b.Fatal(err, found)
			}
			rule := found.Policy.EarlyStop()
			perm := rand.New(rand.NewPCG(1, 2)).Perm(n)
			var groups [][]float32
			for inputs := range slices.Chunk(perm[n/2:], group) {
				if len(inputs) < group {
					break
				}
				var values []float32
				for t := range s {
					for _, i := range inputs {
						values = append(values, r.Passes.Float32[(t*n+i)*k:][:k]...)
					}
				}
				groups = append(groups, values)
			}
			benchmark(b, p, rule, groups, s)
		})
	}
}

// group is the number of inputs in a group.
const group = 64

var gates = []struct {
	name string
	policy.Gate
}{{"c_crit_max", policy.Never}, {"cbec", policy.Always}, {"any-critical", policy.AnyCritical}}

// benchmark measures groups of inputs with up to s passes each: [passes][inputs][classes].
func benchmark(b *testing.B, p *policy.Policy, rule *earlystop.Rule, groups [][]float32, s int) {
	m := bind(b, p, engine.BindOptions{Lean: true})
	plan := newPlan(b, p)
	k, open := len(p.Classes), plan.NewInputs(group)
	// Count how many passes each input takes, and how often the rule looks at it.
	total, asked, used := 0, 0, make([][group]int, len(groups))
	unsettled, askedOfThem := 0, 0
	var x earlystop.Statistics
	for g, values := range groups {
		open.Resize(group)
		for i := range group {
			action, again, asks := earlystop.Open, rule.Fewest, 0
			for used[g][i] < s && action == earlystop.Open {
				_ = open.Add(i, values[(used[g][i]*group+i)*k:][:k])
				if used[g][i]++; used[g][i] >= again && used[g][i] < s {
					open.Statistics(i, &x)
					action, again = rule.Settled(used[g][i], &x)
					asks++
				}
			}
			total, asked = total+used[g][i], asked+asks
			if action == earlystop.Open {
				unsettled, askedOfThem = unsettled+1, askedOfThem+asks
			}
		}
	}
	last := rule.Last()
	following := func(g int, ask bool) {
		open.Resize(group)
		for t := range last {
			for i := range group {
				if t < used[g][i] {
					_ = open.Add(i, groups[g][(t*group+i)*k:][:k])
					if ask {
						open.Settled(i, rule)
					}
				}
			}
		}
	}
	batch, o := m.Plan().NewBatch(), m.Plan().NewResult()
	passes := decomp.NewAccumulator[float32](m.Plan(), group, s)
	keeping := func(g int, finish bool) {
		passes.Reset(group, s)
		for t := range s {
			for i := range group {
				if t < used[g][i] {
					if err := passes.Add(batch, i, groups[g][(t*group+i)*k:][:k]); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		for i := 0; finish && i < group; {
			count := 1 // neighbours with equally many
			for i+count < group && used[g][i+count] == used[g][i] {
				count++
			}
			if err := passes.Finish(batch, i, count); err != nil {
				b.Fatal(err)
			}
			for j := range count {
				_ = batch.Result(j, o)
			}
			i += count
		}
	}
	var spent [4]time.Duration
	for b.Loop() {
		for g := range groups {
			for way, run := range []func(){
				func() { keeping(g, false) }, func() { keeping(g, true) },
				func() { following(g, false) }, func() { following(g, true) },
			} {
				start := time.Now()
				run()
				spent[way] += time.Since(start)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for at, what := range []string{"keep", "accumulate", "follow", "follow-ask"} {
		b.ReportMetric(float64(spent[at].Nanoseconds())/float64(b.N*total), what+"-ns/pass")
	}
	b.ReportMetric(float64(spent[3]-spent[2])/float64(spent[1]), "asking/accumulate")
	b.ReportMetric(float64(spent[3])/float64(spent[1]), "follow-ask/accumulate")
	b.ReportMetric(float64(total)/float64(group*len(groups)), "passes")
	b.ReportMetric(float64(asked)/float64(group*len(groups)), "asks")
	b.ReportMetric(float64(askedOfThem)/max(float64(unsettled), 1), "asks-of-unsettled")
}
