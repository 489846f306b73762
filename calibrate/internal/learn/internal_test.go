package learn

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// TestRegression checks that fit finds the weights that outcomes were drawn from, those that move
// with log(t) among them.
func TestRegression(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 40000
	columns := columnsOf()
	want := map[column]float64{
		{earlystop.Own, -1, false}: 0.8, {earlystop.Own, -1, true}: -0.4, {earlystop.Peak, -1, false}: -0.5,
		{earlystop.Own, earlystop.Doubt, false}: 0.3,
	}
	r := newRegression(columns)
	for range n {
		x, passes := &earlystop.Statistics{}, 2+rng.IntN(20)
		for j := range x.Values {
			x.Values[j] = rng.NormFloat64()
		}
		x.Values[earlystop.Other] = 0 // never varies
		logT := math.Log(float64(passes))
		z := -1 - 0.3*logT
		for c, w := range want {
			z += w * c.value(x, logT)
		}
		r.add(x, passes, rng.Float64() < 1/(1+math.Exp(-z)))
	}
	got := r.fit()
	for j, c := range columns {
		most := 0.08 // about 4 standard errors
		if c.of == earlystop.Own && c.times < 0 {
			most = 0.2 // two columns that go together
		}
		if math.Abs(got[j]-want[c]) > most {
			t.Errorf("column %+v: %v, expected %v", c, got[j], want[c])
		}
		if (c.of == earlystop.Other || c.times == earlystop.Other) && got[j] != 0 {
			t.Errorf("weight of what does not vary: %v", got[j])
		}
	}
}

// TestKnots checks that boundaries are evenly apart in log(t), the first and the last among them,
// and no more than there are passes.
func TestKnots(t *testing.T) {
	for _, c := range []struct {
		fewest, passes int
		want           []int
	}{{2, 30, []int{2, 5, 12, 29}}, {2, 5, []int{2, 3, 4}}, {2, 3, []int{2}}, {5, 50, []int{5, 11, 23, 48}}} {
		if got := knotsOf(asked(c.fewest, c.passes), c.fewest); !slices.Equal(got, c.want) {
			t.Errorf("from %d of %d passes: %v, expected %v", c.fewest, c.passes, got, c.want)
		}
	}
}

// TestStop checks that candidates are stopped in order for as long as that is worth its cost: here
// the first two.
func TestStop(t *testing.T) {
	in := &induction{toGo: []float64{3, 3, 3, 3}}
	all := []candidate{{-4, 0, false}, {-3, 1, false}, {-2, 2, true}, {-1, 3, false}}
	if got := in.stop(all, 100); got != 2 || in.toGo[0] != 0 || in.toGo[2] != 3 {
		t.Errorf("stopped %d, left %v", got, in.toGo)
	}
	// Disagreements are cheap here: all candidates are stopped.
	in.toGo = []float64{3, 3, 3, 3}
	if got := in.stop(all, 2); got != 4 || in.toGo[2] != 2 {
		t.Errorf("stopped %d, left %v", got, in.toGo)
	}
	// Tied candidates stay together: the good candidate that ties with a bad one is not stopped.
	in.toGo = []float64{3, 3, 3, 3}
	all[1].value = all[2].value
	if got := in.stop(all, 100); got != 1 {
		t.Errorf("stopped %d of tied candidates, expected 1", got)
	}
}

// TestSmoothed checks that a line in log t is left as it is, and that a gap lowers its neighbours,
// which is the cautious side.
func TestSmoothed(t *testing.T) {
	line, logs := make([]float64, 20), make([]float64, 20)
	for i := range line {
		logs[i] = math.Log(float64(2 + i))
		line[i] = 1 - 2*logs[i]
	}
	got := append([]float64(nil), line...)
	smoothed(got, logs)
	for i := range got {
		if math.Abs(got[i]-line[i]) > 1e-9 {
			t.Fatalf("%d: %v, expected %v", i, got[i], line[i])
		}
	}
	got[5] = -earlystop.Never
	before := got[6]
	if smoothed(got, logs); !(got[6] < before && got[6] > line[19]-2) {
		t.Errorf("beside a gap %v, expected a little less than %v", got[6], before)
	}
}

// TestBoundaries checks that the boundaries of a price do not depend on the prices asked for
// before.
func TestBoundaries(t *testing.T) {
	d := made(newPolicy(), 300, 10)
	s := must(d.followAround(t.Context(), upTo(300), 4, rand.New(rand.NewPCG(1, 1))))
	asks := asked(s.fewest, s.passes)
	form := &earlystop.Form{Retain: s.terms(asks, false, 2, 9), Defer: s.terms(asks, true, 2, 9)}
	steps := s.weighed(form, []int{2, 9})
	in := must(newInduction(t.Context(), s, steps, asks))
	for _, price := range []float64{100, 1000, 100} {
		fresh := must(newInduction(t.Context(), s, steps, asks))
		if got, want := in.boundaries(price), fresh.boundaries(price); !slices.Equal(got, want) {
			t.Errorf("at price %v: %v, expected %v", price, got, want)
		}
	}
}

// TestRun checks that a rule decides a sample as it decides the input when its passes arrive one by
// one in the same order.
func TestRun(t *testing.T) {
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	p := newPolicy()
	p.Classes, p.Critical, p.Safe, p.Primary.Threshold = r.Classes, r.Critical, r.Safe, 0.06
	d := decided(p, r.Passes.S, r.Passes.N, r.Passes.Float32)
	inputs := rand.New(rand.NewPCG(1, 2)).Perm(r.Passes.N)
	open := d.follower.Another()
	sequence := must(Learn(t.Context(), d, inputs[:300], 3, 0))
	rule := sequence[len(sequence)/2]
	impatient := *rule
	impatient.Patience = 0
	s := must(d.follow(t.Context(), inputs[300:], rand.New(rand.NewPCG(3, 4))))
	same := rand.New(rand.NewPCG(3, 4))
	later := 0
	for i, input := range s.inputs {
		order := d.order(same)
		action, used := d.arrive(open, rule, input, order)
		want := s.final[i].defers
		if action != earlystop.Open {
			want = action == earlystop.Defer
		}
		if got, after := s.run(rule, i); got.defers != want || after != used {
			t.Fatalf("input %d: deferred %v after %d passes, expected %v after %d", input, got.defers, after, want, used)
		}
		if _, first := d.arrive(open, &impatient, input, order); first < used {
			later++ // a pass was skipped after which it could have stopped
		}
	}
	if later == 0 {
		t.Error("no input stops later for patience, expected some")
	}
}

// arrive asks a rule after every pass of an input but the last.
func (d *Decisions) arrive(open *engine.Follower, r *earlystop.Rule, input int, order []int) (earlystop.Action, int) {
	open.Reset()
	for t, pass := range order[:r.Passes-1] {
		if err := open.Add(d.row(pass, input)); err != nil {
			panic(err)
		}
		if action := open.Settled(r); action != earlystop.Open {
			return action, t + 1
		}
	}
	return earlystop.Open, r.Passes
}

// upTo returns the numbers up to n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// newPolicy returns a policy of three classes, the last critical, that decides by c_crit_max.
func newPolicy() *policy.Policy {
	return &policy.Policy{
		Name: "made", Classes: []string{"a", "b", "c"}, Critical: []int{2}, Safe: []int{0, 1}, Kind: policy.Probabilities,
		FewestPasses: 2, SumTolerance: 1e-3, Variance: policy.Sample, ReliabilityThreshold: 0.3, Gate: policy.Never,
		Scope: policy.AllInputs, Pairs: policy.SafeCriticalPairs,
		Primary:    policy.Rule{Score: policy.CCritMax, Threshold: 0.01, HasThreshold: true},
		Fallback:   policy.Rule{Score: policy.CBEC, Threshold: 0.01, HasThreshold: true},
		Degenerate: policy.HandleDefer, Saturated: policy.HandleDefer,
	}
}

// decided returns the decisions on passes without labels.
func decided(p *policy.Policy, passes, inputs int, values []float32) *Decisions {
	return must(Decide(context.Background(), p, Recording{Passes: passes, Inputs: inputs, Values: values}))
}

// must returns v, whose error only the test itself can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// made returns decisions on made-up inputs of three classes, whose logits vary from pass to pass.
func made(p *policy.Policy, n, passes int) *Decisions {
	rng := rand.New(rand.NewPCG(21, 22))
	values := make([]float32, passes*n*3)
	for i := range n {
		centre, spread := -4+3*rng.NormFloat64(), 0.2+rng.Float64()
		for s := range passes {
			p := float32(1 / (1 + math.Exp(-centre-spread*rng.NormFloat64())))
			q := float32(0.1 + 0.2*rng.Float64())
			copy(values[(s*n+i)*3:], []float32{(1 - p) * (1 - q), (1 - p) * q, p})
		}
	}
	return decided(p, passes, n, values)
}

// TestUnder checks that doubling a threshold takes log 2 from the log of the score over the
// threshold, and that the final decisions are those of a policy with that threshold.
func TestUnder(t *testing.T) {
	d, all := made(newPolicy(), 200, 10), upTo(200)
	follow := func(d *Decisions) *samples { return must(d.follow(t.Context(), all, rand.New(rand.NewPCG(1, 1)))) }
	twice := *d.policy
	twice.Primary.Threshold *= 2
	want := decided(&twice, 10, 200, d.recording.Values)
	a, b := follow(d), follow(d.withThresholds(&twice))
	if !slices.Equal(a.final, d.final) || !slices.Equal(b.final, want.final) || slices.Equal(a.final, b.final) {
		t.Error("not what all passes decide at the threshold")
	}
	for i := range all {
		x, y := a.statistics[3][i].Values[earlystop.Own], b.statistics[3][i].Values[earlystop.Own]
		if math.Abs(x-y-math.Ln2) > 1e-5 && x > 1-earlystop.Bound {
			t.Fatalf("%v became %v, expected log 2 less", x, y)
		}
	}
}

// TestMoved checks that moving a threshold by -log 2 halves the odds of a score at or below it, at
// any scale and for thresholds above all scores, and that a move by 0 changes nothing.
func TestMoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ranked(rapid.SliceOfN(rapid.Float64Range(1e-6, 1), 50, 300).Draw(t, "scores"))
		slices.Sort(r)
		threshold := rapid.Float64Range(0, 2).Draw(t, "threshold")
		if got := r.moved(threshold, 0); math.Abs(got-threshold) > 1e-9*threshold {
			t.Fatalf("%v became %v, expected the same", threshold, got)
		}
		lower, higher := r.moved(threshold, -1), r.moved(threshold, 1)
		if !(lower <= threshold*(1+1e-9) && higher >= threshold*(1-1e-9)) {
			t.Fatalf("%v became %v below and %v above", threshold, lower, higher)
		}
	})
	even := make(ranked, 999)
	for i := range even {
		even[i] = math.Exp(float64(i+1) / 100)
	}
	// 800 of them are at or below exp(8.005): odds of 4, and of 2 with 2/3 of them.
	if got := math.Log(even.moved(math.Exp(8.005), -math.Ln2)); math.Abs(got-6.67) > 0.01 {
		t.Errorf("at the logarithm %v, expected 6.67", got)
	}
	for _, r := range []ranked{make(ranked, 9), {0}, {1}} {
		if got := r.moved(0.5, 1); got != 0.5 {
			t.Errorf("of %v: %v, expected 0.5", r, got)
		}
	}
}

// TestFollowAround checks that half the samples have lower thresholds and half have higher ones,
// whichever score decides.
func TestFollowAround(t *testing.T) {
	for _, gate := range []policy.Gate{policy.Never, policy.Always} { // the primary rule decides, the fallback does
		p := newPolicy()
		p.Gate = gate
		s := must(made(p, 300, 10).followAround(t.Context(), upTo(300), 8, rand.New(rand.NewPCG(1, 1))))
		var deferred [8]int
		for at, v := range s.final {
			if v.defers {
				deferred[at/300]++
			}
		}
		if !slices.IsSortedFunc(deferred[:], func(a, b int) int { return b - a }) || deferred[0] <= deferred[7] {
			t.Errorf("gate %s: %v deferred, expected fewer as thresholds rise", gate, deferred)
		}
		if p.Primary.Threshold != 0.01 || p.Fallback.Threshold != 0.01 {
			t.Error("the policy itself was changed")
		}
	}
}
