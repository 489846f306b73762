package engine

import (
	"slices"
	"testing"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// stoppingPolicy returns a policy with a rule in force that stops nothing.
func stoppingPolicy(t testing.TB) *policy.Policy {
	t.Helper()
	p, err := policy.Build(policy.Policy{
		Name: "m", Classes: []string{"a", "b", "c", "d"}, Critical: []int{2, 3}, FewestPasses: 4, ExpectedPasses: 30,
		Primary: policy.Rule{Threshold: 0.02}, Fallback: policy.Rule{Threshold: 0.003},
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := earlystop.Rule{Passes: 30, Fewest: 4, Steps: slices.Repeat([]earlystop.Step{earlystop.NoStep()}, 26)}
	p.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	return p
}

// TestEarlyStoppersKeep checks that a policy which is loaded again finds its stopper, and that
// stoppers are forgotten in the order in which they were in force, those that full-pass checks
// stopped last.
func TestEarlyStoppersKeep(t *testing.T) {
	var known EarlyStoppers
	p := *stoppingPolicy(t)
	confidences := make(map[*EarlyStopper]float64)
	remembers := func(e *EarlyStopper) bool {
		p.EarlyStopping.Certificate.Confidence = confidences[e]
		got, err := known.For(&p, fullpass.Sampler{})
		if err != nil {
			t.Fatal(err)
		}
		return got == e
	}
	var all []*EarlyStopper
	add := func(stopped bool) *EarlyStopper {
		p.EarlyStopping.Certificate.Confidence = 1 / float64(2+len(all)) // which makes another policy
		e, err := known.For(&p, fullpass.Sampler{})
		if err != nil {
			t.Fatal(err)
		}
		for stopped && !e.Stopped() {
			e.judge(fullpass.WronglyRetained)
		}
		all, confidences[e] = append(all, e), p.EarlyStopping.Certificate.Confidence
		known.Keep([]*EarlyStopper{e})
		if len(known.known) > mostFormer+1 {
			t.Fatalf("%d are kept after %d policies", len(known.known), len(all))
		}
		return e
	}
	stopped, good := add(true), add(false)
	lowered := p
	lowered.Calibration = &policy.Calibration{Lines: &policy.StatedLines{CriticalMissRate: 0.1}}
	if got, err := known.For(&lowered, fullpass.Sampler{}); got != good || err != nil {
		t.Errorf("checks begin anew where a line alone changes: %v", err)
	}
	for range mostFormer - 1 {
		add(false)
	}
	if !remembers(stopped) || !remembers(good) {
		t.Error("a policy is forgotten, though all were to be kept")
	}
	known.Keep([]*EarlyStopper{good}) // it is no longer the oldest
	add(false)
	if !remembers(stopped) || !remembers(good) || remembers(all[2]) || !remembers(all[3]) {
		t.Error("the forgotten policy is not the one in force longest ago of those that were not stopped")
	}
	for range 2 * mostFormer {
		add(false)
	}
	if !remembers(stopped) || remembers(good) {
		t.Error("a policy that was stopped is forgotten before others")
	}
	for range mostFormer + 1 {
		add(true)
	}
	if remembers(stopped) || !remembers(all[len(all)-2]) {
		t.Error("of stopped ones the oldest is not the one forgotten")
	}
}

// race reports whether the race detector is on. It makes sync.Pool forget things on purpose.
var race bool

// TestFollowersAreUsedAgain checks that groups of about the same size use followers again, whatever
// groups come between, and that small groups do not get those of large ones.
func TestFollowersAreUsedAgain(t *testing.T) {
	if race {
		t.Skip("pools forget under the race detector")
	}
	e, err := newEarlyStopper(stoppingPolicy(t), fullpass.Sampler{})
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(20, func() {
		for _, n := range []int{64, 1, 1000, 3, 17} {
			inputs := e.follow(n)
			if room := inputs.Room(); room < n || room >= 4*n {
				t.Fatalf("room for %d, expected for %d and less than four times as many", room, n)
			}
			e.release(inputs)
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// TestInputBytes checks that the bytes of inputs that may stop early include their followers.
func TestInputBytes(t *testing.T) {
	p := stoppingPolicy(t)
	e, err := newEarlyStopper(p, fullpass.Sampler{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Bind(p, BindOptions{Stopper: e})
	if err != nil {
		t.Fatal(err)
	}
	const n = 7
	held := func(stopEarly bool) int {
		opening := m.Prepare(Options{Passes: 30, StopEarly: stopEarly})
		return n * opening.InputBytes(n)
	}
	least := n*e.plan.Bytes() + e.plan.SharedBytes()
	if got := held(true) - held(false); got < least || got >= least+n {
		t.Errorf("%d inputs take %d bytes more if they are followed, expected %d, rounded up for each", n, got, least)
	}
}
