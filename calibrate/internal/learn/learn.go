package learn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Options say how to learn.
type Options struct {
	// Fewest is the least number of passes after which an input may stop; 0 for what the
	// policy accepts, which is 2 at least. See earlystop.Rule for what 1 gives up.
	Fewest int
	// Orders counts the orders of the passes of each input; 0 for DefaultOrders.
	Orders int
	// Kind says what rules look at.
	Kind Kind
	// Seed draws the orders.
	Seed uint64
}

// DefaultOrders is the number of orders of the passes of each input.
const DefaultOrders = 40

// Kind says what rules look at.
type Kind uint8

// Rules are of these kinds.
const (
	// Learned rules look at all statistics.
	Learned Kind = iota
	// ScoreOnly rules look at the score over its threshold alone: a baseline.
	ScoreOnly
)

// Sequence holds rules from cautious to bold.
type Sequence struct{ Rules []*earlystop.Rule }

// patience is the patience of rules of each kind. It was chosen on the CTG recordings, where rules
// that look after every pass look twice as often and hardly save more. The value of ScoreOnly
// amounts to the same: one unit of the logarithm of the score is about four of the log-odds.
var patience = [...]float64{Learned: 8, ScoreOnly: 2}

// caution of a rule is the price of a disagreement, in passes, and a margin to the boundaries that
// follow from the price.
type caution struct{ price, margin float64 }

// cautions returns what makes rules cautious, from cautious to bold. Where no sample is wrong, no
// price is high enough to tell how far to stay away, so the first rules keep a margin.
func cautions() []caution {
	const n, most, least = 18, 6000.0, 40.0
	c := []caution{{most, 4}, {most, 2}, {most, 1}, {most, 0.5}}
	for i := range n {
		c = append(c, caution{most * math.Pow(least/most, float64(i)/(n-1)), 0})
	}
	return c
}

// Learn learns a sequence of rules from some inputs of the recording. It returns an error if the
// recording has too few passes to save any, or too few inputs that are deferred or retained, or if
// ctx ends.
func Learn(ctx context.Context, d *Decisions, inputs []int, o Options) (*Sequence, error) {
	if o.Fewest == 0 {
		o.Fewest = d.policy.FewestPasses
	}
	if o.Orders == 0 {
		o.Orders = DefaultOrders
	}
	if passes := d.recording.Passes; o.Fewest < 1 || o.Fewest >= passes {
		return nil, fmt.Errorf("fewest passes to stop after, %d: expected at least 1 and fewer than those recorded, %d",
			o.Fewest, passes)
	}
	const least = 10 // with fewer inputs on a side, the rule would fit noise
	count := map[bool]int{}
	for _, i := range inputs {
		count[d.final[i].defers]++
	}
	if count[true] < least || count[false] < least {
		return nil, fmt.Errorf("%d inputs deferred and %d retained to learn from: expected at least %d of each",
			count[true], count[false], least)
	}
	s, err := d.followAround(ctx, inputs, o.Orders, o.Fewest, rand.New(rand.NewPCG(o.Seed, 0x5e771e)))
	if err != nil {
		return nil, err
	}
	return s.learn(ctx, o.Kind)
}

// learn learns a sequence of rules of one kind.
func (s *samples) learn(ctx context.Context, kind Kind) (*Sequence, error) {
	asks := asked(s.fewest, s.passes)
	steps, err := coefficients(ctx, s, kind, asks)
	if err != nil {
		return nil, err
	}
	in, err := newInduction(ctx, s, steps, asks)
	if err != nil {
		return nil, err
	}
	sequence := &Sequence{}
	for _, c := range cautions() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := &earlystop.Rule{Passes: s.passes, Fewest: s.fewest, Patience: patience[kind], Steps: append([]earlystop.Step(nil), steps...)}
		for at, b := range in.boundaries(c.price) {
			r.Steps[at].Retain.AtMost, r.Steps[at].Defer.AtMost = apart(b.retain, c.margin), apart(b.defers, c.margin)
		}
		sequence.Rules = append(sequence.Rules, r)
	}
	nest(sequence.Rules)
	return sequence, nil
}

// nest lowers boundaries so that they never fall along the sequence, which smoothing may have
// caused. A bolder rule may still stop an input later, since it looks after other passes.
// Certification needs neither.
func nest(rules []*earlystop.Rule) {
	for i := len(rules) - 2; i >= 0; i-- {
		for at := range rules[i].Steps {
			is, bolder := &rules[i].Steps[at], &rules[i+1].Steps[at]
			is.Retain.AtMost = min(is.Retain.AtMost, bolder.Retain.AtMost)
			is.Defer.AtMost = min(is.Defer.AtMost, bolder.Defer.AtMost)
		}
	}
}

// asked returns whether a rule may stop an input after t passes, at t-fewest. From one such t the
// next is t/16 later, at least 1: after every pass up to 32, every second up to 48, every third up
// to 64, and so on. This keeps rules of many passes short.
func asked(fewest, passes int) []bool {
	asks := make([]bool, passes-fewest)
	for t := fewest; t < passes; t += max(1, t/16) {
		asks[t-fewest] = true
	}
	return asks
}

// coefficients returns the steps with their coefficients, for those that are asked.
func coefficients(ctx context.Context, s *samples, kind Kind, asks []bool) ([]earlystop.Step, error) {
	steps := make([]earlystop.Step, len(s.statistics))
	var retains, defers regression // each begins where it was at the step before
	var x []*earlystop.Statistics
	var overturned []bool
	penalty := penalties(s.orders)
	for at := range steps {
		if !asks[at] {
			steps[at] = earlystop.NoStep()
			continue
		}
		for _, side := range []struct {
			*earlystop.Side
			*regression
			defers bool
			own    float64
		}{{&steps[at].Retain, &retains, false, 1}, {&steps[at].Defer, &defers, true, -1}} {
			if kind == ScoreOnly {
				side.Coefficients[1+earlystop.Own] = side.own
				continue
			}
			x, overturned = x[:0], overturned[:0]
			for i := range s.statistics[at] {
				if v := &s.statistics[at][i]; v.Values[earlystop.Own] > 0 == side.defers && !v.Held() {
					x = append(x, v)
					overturned = append(overturned, verdict{side.defers, s.critical[at][i]}.differs(s.final[i]))
				}
			}
			var err error
			if side.Coefficients, err = side.fit(ctx, x, overturned, &penalty); err != nil {
				return nil, err
			}
			for j, v := range side.Coefficients {
				side.Coefficients[j] = rounded(bounded(v))
			}
		}
	}
	return steps, nil
}

// rounded rounds to six digits, so that what is stored is what was measured.
func rounded(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return short
}

// Counts says what a rule did on inputs.
type Counts struct {
	Inputs, Passes int // Passes is S
	// Used counts the passes of all inputs, Settled the inputs that used fewer than S.
	Used, Settled int
	// Disagreements counts inputs decided otherwise than by all passes.
	Disagreements int
	// Deferred counts the inputs that all passes defer, Released those of them that the rule
	// retained.
	Deferred, Released int
	// Critical counts critical inputs (with labels), CriticalDeferred those that all passes defer,
	// and CriticalReleased those of the latter that the rule retained.
	Critical, CriticalDeferred, CriticalReleased int
	// CriticalRetained counts the critical inputs that the rule retained, CriticalMissed those of
	// them that are predicted not critical.
	CriticalRetained, CriticalMissed int
	// The same counts for the full decision.
	FullCriticalRetained, FullCriticalMissed int
}

func (c *Counts) share(n int) float64 { return float64(n) / max(float64(c.Inputs), 1) }

// MeanPasses returns the mean number of passes used.
func (c *Counts) MeanPasses() float64 { return c.share(c.Used) }

// Saving returns S over the mean number of passes used, at least 1.
func (c *Counts) Saving() float64 { return float64(c.Passes) / max(c.MeanPasses(), 1) }

// DisagreementShare returns the share of all inputs that disagree.
func (c *Counts) DisagreementShare() float64 { return c.share(c.Disagreements) }

// CriticalFNR returns the share of the retained critical inputs that were missed.
func (c *Counts) CriticalFNR() float64 {
	return float64(c.CriticalMissed) / max(float64(c.CriticalRetained), 1)
}

// run runs a rule on one sample, and returns the verdict with the number of passes used.
func (s *samples) run(r *earlystop.Rule, i int) (verdict, int) {
	for t := s.fewest; t < s.passes; {
		at := t - s.fewest
		a, again := r.Settled(t, &s.statistics[at][i])
		if a != earlystop.Open {
			return verdict{a == earlystop.Defer, s.critical[at][i]}, t
		}
		t = again
	}
	return s.final[i], s.passes
}

// add counts what became of an input.
func (c *Counts) add(v, final verdict, used int) {
	c.Used += used
	if used < c.Passes {
		c.Settled++
	}
	if v.differs(final) {
		c.Disagreements++
	}
	if final.defers {
		c.Deferred++
		if !v.defers {
			c.Released++
		}
	}
}

// label counts what became of a critical input.
func (c *Counts) label(v, final verdict) {
	c.Critical++
	for _, x := range []struct {
		v                verdict
		retained, missed *int
	}{{v, &c.CriticalRetained, &c.CriticalMissed}, {final, &c.FullCriticalRetained, &c.FullCriticalMissed}} {
		if !x.v.defers {
			*x.retained++
			if !x.v.critical {
				*x.missed++
			}
		}
	}
	if final.defers {
		c.CriticalDeferred++
		if !v.defers {
			c.CriticalReleased++
		}
	}
}
