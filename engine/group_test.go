package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// stoppingPolicy returns a policy of 3 classes and 12 passes whose rule stops inputs after the
// fourth pass and later, when the log of score over threshold is at most -2 or at least 1.
func stoppingPolicy(t testing.TB) *policy.Policy {
	t.Helper()
	p := *newModel(t, "passes: {fewest: 4, expected: 12}", primaryRule, fallbackRule).Policy()
	rule := earlystop.Rule{Passes: 12, Fewest: 4, Steps: make([]earlystop.Step, 8)}
	for i := range rule.Steps {
		step := &rule.Steps[i]
		step.Retain.AtMost, step.Defer.AtMost = -2, -1
		step.Retain.Coefficients[1+earlystop.Own], step.Defer.Coefficients[1+earlystop.Own] = 1, -1
	}
	p.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	return &p
}

// stopping binds a policy with its rule in force.
func stopping(t testing.TB, p *policy.Policy, sampler fullpass.Sampler) *engine.Model {
	t.Helper()
	stopper, err := (&engine.EarlyStoppers{}).For(p, sampler)
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Bind(p, engine.BindOptions{Stopper: stopper})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// life records what happens to the inputs of a group. It implements engine.Answers.
type life struct {
	room   *rand.Rand // there is none now and then
	ends   []int      // how often each input ended
	events []string
}

var errNoRoom = errors.New("no room")

func (l *life) Begin(n int) error {
	if l.room.IntN(8) == 0 {
		return errNoRoom
	}
	l.events = append(l.events, fmt.Sprintf("begin %d", n))
	return nil
}

func (l *life) End() { l.events = append(l.events, "end") }

func (l *life) Close(input int, c *engine.Closing) {
	l.ends[input]++
	event := fmt.Sprintf("input %d: %v %v %+v", input, c.Err, c.Early, c.Check)
	if c.Outcome != nil {
		event += fmt.Sprintf(" after %d of %d passes: %+v %v", c.Passes, c.Planned, c.Decision, c.C)
	}
	l.events = append(l.events, event)
}

// lead leads groups through blocks drawn from a seed, and returns what happened. There are blocks
// of all inputs and of some, bad values, final blocks, failed inputs and abandoned groups.
func lead(t testing.TB, p *policy.Policy, seed uint64, rows func(random *rand.Rand, n int) []float32) []string {
	t.Helper()
	m := stopping(t, p, fullpass.Sampler{First: 20, Share: 0.3, Wary: 0.5, Seed: seed})
	random, b := rand.New(rand.NewPCG(seed, 1)), m.NewBatch()
	var events []string
	for range 10 {
		n := 1 + random.IntN(8)
		opening := m.Prepare(engine.Options{Passes: 12, MostPasses: 20, StopEarly: random.IntN(4) > 0})
		g, l := opening.Open(n), &life{room: random, ends: make([]int, n)}
		late := 0
		for blocks := 0; g.OpenInputs() > 0 && blocks < 30; blocks++ {
			block := &engine.Block{Passes: 1 + random.IntN(3), Final: random.IntN(20) == 0}
			count := n
			if random.IntN(3) == 0 {
				for i := range n {
					if random.IntN(3) > 0 {
						block.Inputs = append(block.Inputs, int32(i))
					} else {
						block.Inputs = append(block.Inputs, -1)
					}
				}
			}
			block.Values = &floats{rows(random, block.Passes*count)}
			if random.IntN(20) == 0 {
				block.Fault = func(had int) error { return fmt.Errorf("unreadable after %d passes", had) }
			}
			late += g.Feed(b, block, l)
		}
		for i := range n {
			if g.IsOpen(i) && random.IntN(2) == 0 {
				g.Fail(i, errNoRoom, l)
			}
		}
		left := g.OpenInputs()
		lost := g.Abandon()
		for i, ends := range l.ends {
			if ends > 1 || g.IsOpen(i) {
				t.Errorf("seed %d: input %d ended %d times, open %v", seed, i, ends, g.IsOpen(i))
			}
			left -= 1 - ends
		}
		if left != 0 {
			t.Errorf("seed %d: %d inputs ended neither by an answer nor abandoned", seed, left)
		}
		g.Release()
		events = append(append(events, l.events...), fmt.Sprintf("late %d, lost %d", late, lost))
	}
	return append(events, fmt.Sprintf("%+v", m.Stopper().Checks().Verdicts))
}

// rows draws rows of 3 probabilities. A few of them are bad.
func rows(random *rand.Rand, n int) (values []float32) {
	for range n {
		a := 0.2 * random.Float32()
		row := []float32{1 - 1.5*a, a, a / 2}
		if random.IntN(100) == 0 {
			row[0] = -1
		}
		values = append(values, row...)
	}
	return values
}

// TestReplay checks that every input ends once, and that a seed replays all that happens to it.
func TestReplay(t *testing.T) {
	p := stoppingPolicy(t)
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		first, again := lead(t, p, seed, rows), lead(t, p, seed, rows)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			rt.Fatalf("seed %d: the same calls gave\n%q\nand then\n%q", seed, first, again)
		}
	})
}

// TestClampedPasses checks that passes with values outside of [0,1] by no more than the tolerance are
// followed, stopped early and decided as clamped ones are.
func TestClampedPasses(t *testing.T) {
	p := stoppingPolicy(t)
	p.SumTolerance = 0.1
	p.EarlyStopping.PolicyHash = p.HashWithoutEarlyStop()
	off := func(over float32) func(*rand.Rand, int) []float32 {
		return func(random *rand.Rand, n int) (values []float32) {
			for row := range slices.Chunk(rows(random, n), 3) {
				if at := random.IntN(20); at > 0 {
					row = []float32{1, 0, 0}
					if at > 10 {
						row = []float32{1 + over, -over, 0}
					}
				}
				values = append(values, row...)
			}
			return values
		}
	}
	early := 0
	for seed := range uint64(30) {
		got, want := fmt.Sprint(lead(t, p, seed, off(0.09))), fmt.Sprint(lead(t, p, seed, off(0)))
		if got != want {
			t.Fatalf("seed %d: %s\nclamped by hand: %s", seed, got, want)
		}
		early += strings.Count(got, "<nil> true")
	}
	if early == 0 {
		t.Error("no input stopped early")
	}
}

// TestProbabilitiesAsLogits stops inputs early whose passes are probabilities where logits are expected:
// their softmax hardly varies, which a rule takes for certainty. They are refused by the passes so far.
func TestProbabilitiesAsLogits(t *testing.T) {
	p := stoppingPolicy(t)
	p.Kind = policy.Logits
	p.EarlyStopping.PolicyHash = p.HashWithoutEarlyStop()
	m := stopping(t, p, fullpass.Sampler{})
	for name, c := range map[string]struct {
		row     []float32
		step    float32
		refused bool
	}{
		"probabilities": {[]float32{0.98, 0.01, 0.01}, 1e-4, true},
		"logits":        {[]float32{9.8, 0.1, 0.1}, 0.1, false},
	} {
		opening := m.Prepare(engine.Options{Passes: 12, StopEarly: true})
		g, b, a := opening.Open(2), m.NewBatch(), &closings{}
		passes := 0
		for ; g.OpenInputs() > 0; passes++ {
			var values []float32
			for i := range 2 {
				row := slices.Clone(c.row)
				row[i] += c.step * float32(passes)
				values = append(values, row...)
			}
			block := &engine.Block{Passes: 1, Values: &floats{values}}
			if passes%2 == 1 {
				block.Inputs = []int32{0, 1}
			}
			g.Feed(b, block, a)
		}
		for i, got := range a.byInput {
			row := (*decomp.RowError)(nil)
			if refused := errors.As(got.Err, &row) && row.Fault == decomp.NotLogits; refused != c.refused || passes > 11 {
				t.Errorf("%s: input %d: %v after %d passes", name, i, got.Err, passes)
			}
		}
		g.Release()
	}
}

// TestEarlyDecisions checks when an input stops early, when it is checked, and when the rule does
// not apply.
func TestEarlyDecisions(t *testing.T) {
	p := stoppingPolicy(t)
	for _, c := range []struct {
		name    string
		options engine.Options
		share   float64
		early   bool
		checked bool
	}{
		{"stops", engine.Options{Passes: 12, StopEarly: true}, 0, true, false},
		{"checked", engine.Options{Passes: 12, StopEarly: true}, 1, false, true},
		{"not accepted", engine.Options{Passes: 12}, 0, false, false},
		{"other passes", engine.Options{Passes: 11, StopEarly: true}, 0, false, false},
		{"complete", engine.Options{Passes: 12, Complete: true, Here: 12, StopEarly: true}, 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := stopping(t, p, fullpass.Sampler{Share: c.share})
			opening := m.Prepare(c.options)
			g, b, a := opening.Open(1), m.NewBatch(), &closings{}
			defer g.Release()
			passes := 0
			for ; g.OpenInputs() > 0; passes++ {
				g.Feed(b, &engine.Block{Passes: 1, Values: &floats{[]float32{0.99 - 0.001*float32(passes%2), 0.005, 0.005 + 0.001*float32(passes%2)}}}, a)
			}
			got := a.byInput[0]
			if got.Err != nil || got.Early != c.early || (got.Check.State == engine.Judged) != c.checked || (passes < c.options.Passes) != c.early {
				t.Errorf("%+v after %d passes, expected early %v and checked %v", got, passes, c.early, c.checked)
			}
		})
	}
}
