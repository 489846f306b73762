package follow_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
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
				benchmark(b, p, neverReached(), values, s)
			})
		}
	}
}

// group is the number of inputs in a group.
const group = 64

var gates = []struct {
	name string
	policy.Gate
}{{"c_crit_max", policy.Never}, {"cbec", policy.Always}, {"any-critical", policy.AnyCritical}}

// benchmark measures a group of inputs with s passes each: [passes][inputs][classes].
func benchmark(b *testing.B, p *policy.Policy, rule *earlystop.Rule, values []float32, s int) {
	m := bind(b, p, engine.BindOptions{Lean: true})
	k, open := len(p.Classes), newPlan(b, p).NewInputs(group)
	row := func(pass, i int) []float32 { return values[(pass*group+i)*k:][:k] }
	following := func(ask bool) {
		open.Resize(group)
		for pass := range rule.Last() {
			for i := range group {
				_ = open.Add(i, row(pass, i))
				if ask {
					open.Settled(i, rule)
				}
			}
		}
	}
	batch, r := m.Plan().NewBatch(), m.Plan().NewResult()
	kept := decomp.NewAccumulator[float32](m.Plan(), group, s)
	keeping := func(finish bool) {
		kept.Reset(group, s)
		for pass := range s {
			for i := range group {
				if err := kept.Add(batch, i, row(pass, i)); err != nil {
					b.Fatal(err)
				}
			}
		}
		if !finish {
			return
		}
		if err := kept.Finish(batch, 0, group); err != nil {
			b.Fatal(err)
		}
		for i := range group {
			_ = batch.Result(i, r)
		}
	}
	var spent [4]time.Duration
	for b.Loop() {
		for way, run := range []func(){
			func() { keeping(false) }, func() { keeping(true) }, func() { following(false) }, func() { following(true) },
		} {
			start := time.Now()
			run()
			spent[way] += time.Since(start)
		}
	}
	b.ReportMetric(0, "ns/op")
	for way, name := range []string{"keep", "accumulate", "follow", "follow-ask"} {
		b.ReportMetric(float64(spent[way].Nanoseconds())/float64(b.N*group*s), name+"-ns/pass")
	}
	b.ReportMetric(float64(spent[3]-spent[2])/float64(spent[1]), "asking/accumulate")
	b.ReportMetric(float64(spent[3])/float64(spent[1]), "follow-ask/accumulate")
}
