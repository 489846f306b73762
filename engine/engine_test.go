package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// newModel binds a policy of the CTG classes, to which lines add.
func newModel(t testing.TB, lines ...string) *engine.Model {
	t.Helper()
	text := "models:\n  - name: ctg\n    classes: [normal, suspect, pathologic]\n    critical: [suspect, pathologic]\n"
	for _, line := range lines {
		text += "    " + line + "\n"
	}
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := set.Get("ctg")
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ctg(t testing.TB) *record.Passes {
	t.Helper()
	p, err := record.ReadPasses("../internal/recordings/ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// batchOf returns a batch with the complete passes of a recording.
func batchOf(t testing.TB, m *engine.Model, p *record.Passes) *engine.Batch {
	t.Helper()
	b := m.NewBatch()
	if err := b.Reset(decomp.Tensor{Passes: p.S, Inputs: p.N, Float32: p.Float32}); err != nil {
		t.Fatal(err)
	}
	return b
}

// These lines give both scores a threshold, so that the policy decides.
const (
	primaryRule  = "primary: {score: c_crit_max, threshold: 0.05}"
	fallbackRule = "fallback: {score: cbec, threshold: 0.02}"
)

// TestStreamAndBatchDecideAlike checks that every real input, under every gate and scope, gets the
// same decision from a Group and from a Batch, and the one that the policy prescribes.
func TestStreamAndBatchDecideAlike(t *testing.T) {
	passes := ctg(t)
	for _, gate := range []policy.Gate{policy.AnyCritical, policy.Always, policy.Never} {
		for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
			m := newModel(t, primaryRule, fallbackRule, "gate: "+string(gate), "scope: "+string(scope))
			batch, a := batchOf(t, m, passes), m.NewOutcome()
			fallbacks := 0
			for i := range passes.N {
				if err := batch.Outcome(i, a); err != nil {
					t.Fatal(err)
				}
				b := stream(m, passes, i)
				if x, y := a.Decision, b.Decision; x.Action != y.Action || x.Gate != y.Gate || x.Reason != y.Reason || x.Class != y.Class {
					t.Fatalf("%s %s, input %d: complete passes %+v, streamed %+v", gate, scope, i, x, y)
				}
				if want := expected(a.Result, gate, scope); a.Decision.Action != want {
					t.Fatalf("%s %s, input %d: %+v, want %s", gate, scope, i, a.Decision, want)
				}
				if a.Decision.Gate == policy.ByFallback {
					fallbacks++
				}
			}
			// The golden evaluation has the share of the fallback under any-critical: 0.9572.
			if want := map[policy.Gate]int{policy.AnyCritical: 2035, policy.Always: passes.N, policy.Never: 0}; fallbacks != want[gate] {
				t.Errorf("%s: %d inputs fell back, want %d", gate, fallbacks, want[gate])
			}
		}
	}
}

// expected decides by the policy, written a second time.
func expected(r *decomp.Result, gate policy.Gate, scope policy.Scope) policy.Action {
	if scope == policy.PredictedSafe && r.Predicted != 0 {
		return policy.Retain
	}
	if r.Degenerate {
		return policy.Defer
	}
	fallback := gate == policy.Always ||
		gate == policy.AnyCritical && (r.Skewness[1] > 0.3 || r.Skewness[2] > 0.3)
	if fallback && r.Scores[decomp.CBEC] > 0.02 || !fallback && r.Scores[decomp.CCritMax] > 0.05 {
		return policy.Defer
	}
	return policy.Retain
}

// TestDecidingClass checks that only deferred inputs have a deciding class, and only where one
// class sets the score.
func TestDecidingClass(t *testing.T) {
	passes := ctg(t)
	for _, c := range []struct {
		score string
		class func(*decomp.Result) int
	}{
		{"c_crit_max", func(r *decomp.Result) int { return r.CCritMaxClass }},
		{"cbec", func(r *decomp.Result) int { return r.CBECClass }},
		{"mi", func(*decomp.Result) int { return -1 }},
	} {
		m := newModel(t, "gate: never", fmt.Sprintf("primary: {score: %s, threshold: 0.01}", c.score))
		batch, o := batchOf(t, m, passes), m.NewOutcome()
		seen := map[int]int{}
		for i := range passes.N {
			if err := batch.Outcome(i, o); err != nil {
				t.Fatal(err)
			}
			want := -1
			if o.Decision.Action == policy.Defer {
				want = c.class(o.Result)
			}
			if o.Decision.Class != want {
				t.Fatalf("%s, input %d: deciding class %d, want %d", c.score, i, o.Decision.Class, want)
			}
			seen[want]++
		}
		if c.score != "mi" && (seen[1] == 0 || seen[2] == 0 || seen[-1] == 0) {
			t.Errorf("%s: deciding classes %v", c.score, seen)
		}
	}
}

// TestFewestPasses checks that the fewest passes are those of the policy, not of the arithmetic.
func TestFewestPasses(t *testing.T) {
	m := newModel(t, "passes: {fewest: 6}")
	var e *decomp.PassesError
	for s := range 7 {
		got := feed(m, engine.Options{}, slices.Repeat([]float32{0.5, 0.25, 0.25}, s))
		if s < 6 && (!errors.As(got.Err, &e) || e.Got != s || e.Least != 6) {
			t.Errorf("%d passes: %v", s, got.Err)
		}
		if s == 6 && (got.Err != nil || got.Decision.Action != policy.Observe) {
			t.Errorf("6 passes: %+v", got)
		}
	}
	if err := m.NewBatch().Reset(decomp.Tensor{Passes: 5, Inputs: 1, Float32: make([]float32, 15)}); !errors.As(err, &e) || e.Least != 6 {
		t.Errorf("a batch of 5 passes: %v", err)
	}
}

// TestReleasedInputsAreNew checks that nothing of an input is left for the one that gets its
// memory.
func TestReleasedInputsAreNew(t *testing.T) {
	m := newModel(t, primaryRule, fallbackRule)
	passes := ctg(t)
	alone := func(i int) string { return words(stream(newModel(t, primaryRule, fallbackRule), passes, i)) }
	rapid.Check(t, func(rt *rapid.T) {
		before, i := rapid.IntRange(0, passes.N-1).Draw(rt, "before"), rapid.IntRange(0, passes.N-1).Draw(rt, "input")
		stream(m, passes, before)
		if got, want := words(stream(m, passes, i)), alone(i); got != want {
			rt.Errorf("input %d after input %d: %s, alone %s", i, before, got, want)
		}
	})
}

// stream decides on an input of a recording pass by pass.
func stream(m *engine.Model, p *record.Passes, i int) engine.Closing {
	var values []float32
	for s := range p.S {
		at := p.Offset(s, i)
		values = append(values, p.Float32[at:at+3]...)
	}
	return feed(m, engine.Options{}, values)
}

// words describes an outcome.
func words(c engine.Closing) string { return fmt.Sprint(c.Decision, c.C, c.Skewness, c.Scores, c.MI) }

// feed gives the passes of one input of three classes one by one and finishes it.
func feed(m *engine.Model, o engine.Options, values []float32) engine.Closing {
	opening := m.Prepare(o)
	g, b, a := opening.Open(1), m.NewBatch(), &closings{}
	defer g.Release()
	for row := range slices.Chunk(values, 3) {
		g.Feed(b, &engine.Block{Passes: 1, Values: &floats{row}}, a)
	}
	g.Finish(b, 0, 1, a)
	return a.byInput[0]
}

// closings collects what becomes of inputs.
type closings struct{ byInput map[int]engine.Closing }

func (*closings) Begin(int) error { return nil }
func (*closings) End()            {}
func (a *closings) Close(input int, c *engine.Closing) {
	if a.byInput == nil {
		a.byInput = map[int]engine.Closing{}
	}
	a.byInput[input] = *c // valid until the batch is used again
}

// floats is a decomp.Source of values in memory.
type floats struct{ values []float32 }

func (f *floats) Next(to []float32) { f.values = f.values[copy(to, f.values):] }

// TestBadPolicies checks that New refuses policies that Parse would not return.
func TestBadPolicies(t *testing.T) {
	for want, p := range map[string]*policy.Policy{
		"unknown score":       {Name: "x", Classes: []string{"a", "b"}, Primary: policy.Rule{Score: "nonsense"}},
		"without a risk":      {Name: "x", Classes: []string{"a", "b"}, Primary: policy.Rule{Score: policy.RiskScore}, Fallback: policy.Rule{Score: policy.MI}},
		"at least 2":          {Name: "x", Classes: []string{"a"}},
		"critical class 5":    {Name: "x", Classes: []string{"a", "b"}, Critical: []int{5}},
		"weight of pair (0,0": {Name: "x", Classes: []string{"a", "b"}, PairWeights: []policy.PairWeight{{}}},
	} {
		if _, err := engine.New(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestScoreNames checks that policy and decomp list the same scores in the same order.
func TestScoreNames(t *testing.T) {
	if len(policy.Scores()) != decomp.NumScores {
		t.Fatalf("%d scores in policies, %d computed", len(policy.Scores()), decomp.NumScores)
	}
	for i, s := range policy.Scores() {
		if got := decomp.Score(i).String(); got != string(s) {
			t.Errorf("score %d is %q in policies, %q computed", i, s, got)
		}
	}
}

// TestFewDoNotHoldTheMemoryOfMany checks that a small group does not get the memory of a large one.
func TestFewDoNotHoldTheMemoryOfMany(t *testing.T) {
	m := newModel(t)
	var held []*engine.Group
	open := func(n int) *engine.Group {
		opening := m.Prepare(engine.Options{Passes: 30})
		return opening.Open(n)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 50 {
		open(10_000).Release() // 3.6 MB
		held = append(held, open(1))
	}
	runtime.GC()
	runtime.GC() // the first leaves what is in pools
	runtime.ReadMemStats(&after)
	if bytes := int64(after.HeapAlloc) - int64(before.HeapAlloc); bytes > 10<<20 {
		t.Errorf("%d inputs hold %d MB", len(held), bytes>>20)
	}
}
