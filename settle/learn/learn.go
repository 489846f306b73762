package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/ckd-project/ckd/settle"
)

// Options of learning.
type Options struct {
	// Fewest passes after which an input may be settled; 0 for what the policy
	// accepts, which is 2 at least. See settle.Rule for what 1 gives up.
	Fewest int
	// Orders of the passes of each input; 0 for DefaultOrders.
	Orders int
	// Kind of rule.
	Kind Kind
	// Seed of the orders.
	Seed uint64
}

// DefaultOrders of the passes of each input.
const DefaultOrders = 40

// Kind says what rules look at.
type Kind uint8

// The kinds of rules.
const (
	// Learned rules look at all statistics.
	Learned Kind = iota
	// ScoreOnly rules look at the score over its threshold alone: a baseline.
	ScoreOnly
)

// Path is rules from cautious to bold.
type Path struct{ Rules []*settle.Rule }

// patience of rules of each kind: chosen on the CTG recordings, where rules that look
// after every pass look twice as often, and hardly save more. That of ScoreOnly is as
// much: a unit of the logarithm of the score is some four of the log-odds.
var patience = [...]float64{Learned: 8, ScoreOnly: 2}

// caution of a rule: the price of a disagreement, in passes, and how far beyond the
// boundaries that follow from it its own are.
type caution struct{ price, margin float64 }

// cautions from cautious to bold. Where no sample is wrong no price is high enough to
// tell how far to stay away: so the first rules keep a margin.
func cautions() []caution {
	const n, most, least = 18, 6000.0, 40.0
	c := []caution{{most, 4}, {most, 2}, {most, 1}, {most, 0.5}}
	for i := range n {
		c = append(c, caution{most * math.Pow(least/most, float64(i)/(n-1)), 0})
	}
	return c
}

// Learn rules from some inputs of the recording. The error is of a recording with too
// few passes to save any, or with too few inputs that are deferred, or retained.
func Learn(d *Decisions, inputs []int, o Options) (*Path, error) {
	if o.Fewest == 0 {
		o.Fewest = d.policy.FewestPasses
	}
	if o.Orders == 0 {
		o.Orders = DefaultOrders
	}
	if passes := d.recording.Passes; o.Fewest < 1 || o.Fewest >= passes {
		return nil, fmt.Errorf("fewest passes to settle after, %d: expected at least 1 and fewer than those recorded, %d",
			o.Fewest, passes)
	}
	const least = 10 // a side of which there is less would be learned from chance
	count := map[bool]int{}
	for _, i := range inputs {
		count[d.final[i].defers]++
	}
	if count[true] < least || count[false] < least {
		return nil, fmt.Errorf("%d inputs deferred and %d retained to learn from: expected at least %d of each",
			count[true], count[false], least)
	}
	s := d.followAround(inputs, o.Orders, o.Fewest, rand.New(rand.NewPCG(o.Seed, 0x5e771e)))
	return s.learn(o.Kind), nil
}

// learn a path of rules of a kind.
func (s *samples) learn(kind Kind) *Path {
	asks := asked(s.fewest, s.passes)
	steps := coefficients(s, kind, asks)
	path, in := &Path{}, newInduction(s, steps, asks)
	for _, c := range cautions() {
		r := &settle.Rule{Passes: s.passes, Fewest: s.fewest, Patience: patience[kind], Steps: append([]settle.Step(nil), steps...)}
		for at, b := range in.boundaries(c.price) {
			r.Steps[at].Retain.AtMost, r.Steps[at].Defer.AtMost = apart(b.retain, c.margin), apart(b.defers, c.margin)
		}
		path.Rules = append(path.Rules, r)
	}
	nest(path.Rules)
	return path
}

// nest rules, so that boundaries rise along the path, or stay: smoothing may have crossed
// them. A bolder rule may still settle an input later, since it looks after other passes.
// Certification needs neither.
func nest(rules []*settle.Rule) {
	for i := len(rules) - 2; i >= 0; i-- {
		for at := range rules[i].Steps {
			is, bolder := &rules[i].Steps[at], &rules[i+1].Steps[at]
			is.Retain.AtMost = min(is.Retain.AtMost, bolder.Retain.AtMost)
			is.Defer.AtMost = min(is.Defer.AtMost, bolder.Defer.AtMost)
		}
	}
}

// asked is whether a rule may settle, by passes-fewest: after t passes, next t/16 later
// but at least 1. So it is after every pass up to 32, every second up to 48, every third
// up to 64 and so on: rules of many passes stay short.
func asked(fewest, passes int) []bool {
	asks := make([]bool, passes-fewest)
	for t := fewest; t < passes; t += max(1, t/16) {
		asks[t-fewest] = true
	}
	return asks
}

// coefficients of each step that is asked.
func coefficients(s *samples, kind Kind, asks []bool) []settle.Step {
	steps := make([]settle.Step, len(s.statistics))
	var retains, defers regression // each begins where it was at the step before
	var x []*settle.Statistics
	var overturned []bool
	penalty := penalties(s.orders)
	for at := range steps {
		if !asks[at] {
			steps[at] = settle.NoStep()
			continue
		}
		for _, side := range []struct {
			*settle.Side
			*regression
			defers bool
			own    float64
		}{{&steps[at].Retain, &retains, false, 1}, {&steps[at].Defer, &defers, true, -1}} {
			if kind == ScoreOnly {
				side.Coefficients[1+settle.Own] = side.own
				continue
			}
			x, overturned = x[:0], overturned[:0]
			for i := range s.statistics[at] {
				if v := &s.statistics[at][i]; v.Values[settle.Own] > 0 == side.defers && !v.Degenerate {
					x = append(x, v)
					overturned = append(overturned, verdict{side.defers, s.critical[at][i]}.differs(s.final[i]))
				}
			}
			side.Coefficients = side.fit(x, overturned, &penalty)
			for j, v := range side.Coefficients {
				side.Coefficients[j] = rounded(bounded(v))
			}
		}
	}
	return steps
}

// rounded to six digits: what is stored is what was measured.
func rounded(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return short
}

// Counts is what a rule did on inputs.
type Counts struct {
	Inputs, Passes int // Passes is S
	// Used passes of all inputs, and how many inputs used fewer than S.
	Used, Settled int
	// Disagreements with the full decision.
	Disagreements int
	// Deferred by the full decision, and Released, those of them that were retained.
	Deferred, Released int
	// Of inputs with labels: critical ones, those of them deferred by the full
	// decision, and those of these that were retained.
	Critical, CriticalDeferred, CriticalReleased int
	// Critical inputs retained, and those of them missed: predicted not critical.
	CriticalRetained, CriticalMissed int
	// The same of the full decision.
	FullCriticalRetained, FullCriticalMissed int
}

func (c *Counts) share(n int) float64 { return float64(n) / max(float64(c.Inputs), 1) }

// MeanPasses that were used.
func (c *Counts) MeanPasses() float64 { return c.share(c.Used) }

// Saving is S over the mean of the passes used, at least 1.
func (c *Counts) Saving() float64 { return float64(c.Passes) / max(c.MeanPasses(), 1) }

// DisagreementShare of all inputs.
func (c *Counts) DisagreementShare() float64 { return c.share(c.Disagreements) }

// CriticalFNR is the share of the critical inputs retained that were missed.
func (c *Counts) CriticalFNR() float64 {
	return float64(c.CriticalMissed) / max(float64(c.CriticalRetained), 1)
}

// run a rule on one sample.
func (s *samples) run(r *settle.Rule, i int) (verdict, int) {
	for t := s.fewest; t < s.passes; {
		at := t - s.fewest
		a, again := r.Settled(t, &s.statistics[at][i])
		if a != settle.Open {
			return verdict{a == settle.Defer, s.critical[at][i]}, t
		}
		t = again
	}
	return s.final[i], s.passes
}

// add what became of an input.
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

// label what became of a critical input.
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
