package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// newModel binds a policy of the CTG classes with some further lines.
func newModel(t interface {
	Helper()
	Fatal(...any)
}, lines ...string) *engine.Model {
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

// thresholds of both scores, for a policy that decides.
const (
	primaryRule  = "primary: {score: c_crit_max, threshold: 0.05}"
	fallbackRule = "fallback: {score: cbec, threshold: 0.02}"
)

// TestStreamAndBatchDecideAlike: every real input, under every gate and scope,
// gets the same decision by both ways in, and the one that the rules say.
func TestStreamAndBatchDecideAlike(t *testing.T) {
	passes := ctg(t)
	for _, gate := range []policy.Gate{policy.AnyCritical, policy.DecidingClass, policy.Always, policy.Never} {
		for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
			m := newModel(t, primaryRule, fallbackRule, "gate: "+string(gate), "scope: "+string(scope))
			batch, a, b := m.NewBatch(), m.NewOutcome(), m.NewOutcome()
			if err := batch.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
				t.Fatal(err)
			}
			fallbacks := 0
			for i := range passes.N {
				if err := batch.Outcome(i, a); err != nil {
					t.Fatal(err)
				}
				stream(t, m, b, passes, i)
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
			// The shares that the fallback takes of this recording: 96% under
			// any-critical by the golden evaluation ("fallback": 0.9572).
			if want := map[policy.Gate]int{policy.AnyCritical: 2035, policy.Always: passes.N, policy.Never: 0}; gate != policy.DecidingClass && fallbacks != want[gate] {
				t.Errorf("%s: %d inputs fell back, want %d", gate, fallbacks, want[gate])
			}
		}
	}
}

// expected is the decision by the words of the policy, written again.
func expected(r *decomp.Result, gate policy.Gate, scope policy.Scope) policy.Action {
	if scope == policy.PredictedSafe && r.Predicted != 0 {
		return policy.Retain
	}
	if r.Degenerate {
		return policy.Defer
	}
	deciding := 1
	if r.C[2] > r.C[1] {
		deciding = 2
	}
	fallback := gate == policy.Always ||
		gate == policy.AnyCritical && (r.Skewness[1] > 0.3 || r.Skewness[2] > 0.3) ||
		gate == policy.DecidingClass && r.Skewness[deciding] > 0.3
	if fallback && r.Scores[decomp.CBEC] > 0.02 || !fallback && r.Scores[decomp.CCritMax] > 0.05 {
		return policy.Defer
	}
	return policy.Retain
}

// TestDecidingClass is counted on defer only, for scores that one class sets.
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
		batch, o := m.NewBatch(), m.NewOutcome()
		if err := batch.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
			t.Fatal(err)
		}
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

// TestFewestPasses: the policy's least number, not the arithmetic's.
func TestFewestPasses(t *testing.T) {
	m := newModel(t, "passes: {fewest: 6}")
	o, in, batch := m.NewOutcome(), m.Open(1, 6), m.NewBatch()
	var e *decomp.PassesError
	for s := range 6 {
		if err := in.Finish(batch, 0, 1); !errors.As(err, &e) || e.Got != s || e.Least != 6 {
			t.Errorf("%d passes: %v", s, err)
		}
		if err := in.Add(batch, 0, []float32{0.5, 0.25, 0.25}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Finish(batch, 0, 1); err != nil {
		t.Errorf("6 passes: %v", err)
	}
	if err := batch.Outcome(0, o); err != nil || o.Decision.Action != policy.Observe {
		t.Errorf("6 passes: %v, %+v", err, o.Decision)
	}
	if err := m.NewBatch().Reset(decomp.Tensor{Passes: 5, Inputs: 1, Float32: make([]float32, 15)}); !errors.As(err, &e) || e.Least != 6 {
		t.Errorf("a batch of 5 passes: %v", err)
	}
}

// TestReleasedInputsAreNew: nothing of an input is left for the one that gets
// its memory.
func TestReleasedInputsAreNew(t *testing.T) {
	m := newModel(t, primaryRule, fallbackRule)
	passes := ctg(t)
	alone := func(i int) string {
		fresh := newModel(t, primaryRule, fallbackRule)
		return stream(t, fresh, fresh.NewOutcome(), passes, i)
	}
	rapid.Check(t, func(rt *rapid.T) {
		before, i := rapid.IntRange(0, passes.N-1).Draw(rt, "before"), rapid.IntRange(0, passes.N-1).Draw(rt, "input")
		stream(t, m, m.NewOutcome(), passes, before)
		if got, want := stream(t, m, m.NewOutcome(), passes, i), alone(i); got != want {
			rt.Errorf("input %d after input %d: %s, alone %s", i, before, got, want)
		}
	})
}

// stream decides on an input pass by pass, most of which are not kept, and tells
// its outcome in words.
func stream(t *testing.T, m *engine.Model, o *engine.Outcome, p *record.Passes, i int) string {
	t.Helper()
	in, b := m.Open(1, 5), m.NewBatch()
	defer in.Release()
	for s := range p.S {
		at := p.Offset(s, i)
		if err := in.Add(b, 0, p.Float32[at:at+3]); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Finish(b, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Outcome(0, o); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(o.Decision, o.C, o.Skewness, o.Scores, o.MI)
}

// TestBadPolicies: a policy that Parse would not have returned is refused.
func TestBadPolicies(t *testing.T) {
	for want, p := range map[string]*policy.Policy{
		"unknown score":       {Name: "x", Classes: []string{"a", "b"}, Primary: policy.Rule{Score: "nonsense"}},
		"at least 2":          {Name: "x", Classes: []string{"a"}},
		"critical class 5":    {Name: "x", Classes: []string{"a", "b"}, Critical: []int{5}},
		"weight of pair (0,0": {Name: "x", Classes: []string{"a", "b"}, PairWeights: []policy.PairWeight{{}}},
	} {
		if _, err := engine.New(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestScoreNames: policies and the arithmetic know the same ten scores, in the
// same order.
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

// TestFewDoNotHoldTheMemoryOfMany: inputs that are opened after many others do not
// get those others' memory.
func TestFewDoNotHoldTheMemoryOfMany(t *testing.T) {
	m := newModel(t)
	batch := m.NewBatch()
	var held []*engine.Inputs
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 50 {
		m.Open(10_000, 30).Release() // 3.6 MB
		few := m.Open(1, 30)
		if err := few.Add(batch, 0, []float32{0.5, 0.25, 0.25}); err != nil {
			t.Fatal(err)
		}
		held = append(held, few)
	}
	runtime.GC()
	runtime.GC() // the first leaves what is in pools
	runtime.ReadMemStats(&after)
	if bytes := int64(after.HeapAlloc) - int64(before.HeapAlloc); bytes > 10<<20 {
		t.Errorf("%d inputs hold %d MB", len(held), bytes>>20)
	}
}
