package learn

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Recording holds complete passes of some inputs.
type Recording struct {
	Passes, Inputs int
	// Values are [passes][inputs][classes].
	Values []float32
	// Labels are the true classes; nil where they are not known.
	Labels []int
	// Groups has the group of each input, numbered from 0, for inputs that are not independent; nil where
	// all are. Certificates then count groups.
	Groups []int
	// Ordered passes are the members of an ensemble: a fixed list, not draws.
	Ordered bool
}

// Decisions holds what the complete passes of inputs decide under a policy, and those passes.
type Decisions struct {
	recording Recording
	policy    *policy.Policy
	follower  *engine.Follower
	final     []verdict // by input; nil under other thresholds, where followed passes decide
	// primary and fallback are the scores of all passes that the policy's thresholds apply to, by
	// input.
	primary, fallback []float64
	all               []Outcome // see Evidence; nil where inputs do not come in groups
}

// verdict is the decision on an input.
type verdict struct {
	defers, critical bool // critical: the predicted class is
}

// differs reports whether two verdicts disagree.
func (v verdict) differs(w verdict) bool {
	return v.defers != w.defers || !v.defers && v.critical != w.critical
}

// Decide decides on all inputs with all their passes, as the engine does. The error is one of
// the engine, about the policy or a row that it refuses, or that of ctx.
func Decide(ctx context.Context, p *policy.Policy, r Recording) (*Decisions, error) {
	follower, err := engine.NewFollower(p)
	if err != nil {
		return nil, err
	}
	m, err := engine.Bind(p, engine.BindOptions{Lean: true})
	if err != nil {
		return nil, err
	}
	d := &Decisions{recording: r, policy: p, follower: follower, final: make([]verdict, r.Inputs),
		primary: make([]float64, r.Inputs), fallback: make([]float64, r.Inputs)}
	b, o := m.NewBatch(), m.NewOutcome()
	if err := b.Reset(decomp.Tensor{Passes: r.Passes, Inputs: r.Inputs, Float32: r.Values}); err != nil {
		return nil, err
	}
	for i := range r.Inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := b.Outcome(i, o); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
		d.final[i] = verdict{o.Decision.Action == policy.Defer, d.isCritical(o.Predicted)}
		d.primary[i], d.fallback[i] = o.Primary, o.Fallback
	}
	if r.Groups != nil {
		every := make([]int, r.Inputs)
		for i := range every {
			every[i] = i
		}
		d.all = d.evidence(every, func(int) (verdict, int) { return verdict{}, r.Passes }).outcomes
	}
	return d, nil
}

// Deferred returns how many of some inputs all passes defer.
func (d *Decisions) Deferred(inputs []int) (n int) {
	for _, i := range inputs {
		if d.final[i].defers {
			n++
		}
	}
	return n
}

func (d *Decisions) isCritical(class int) bool { return slices.Contains(d.policy.Critical, class) }

// row returns one pass of an input.
func (d *Decisions) row(pass, input int) []float32 {
	k := len(d.policy.Classes)
	return d.recording.Values[(pass*d.recording.Inputs+input)*k:][:k]
}

// samples holds inputs followed through orders of their passes.
type samples struct {
	passes int   // S
	fewest int   // first t
	inputs []int // index in the recording, by sample
	final  []verdict
	// statistics and critical hold what is known after t passes, at [t-fewest]; t ends before S.
	statistics [][]earlystop.Statistics
	critical   [][]bool
}

// followAround follows inputs for learning: each time with thresholds a little lower or higher, so
// that not only the few inputs which happen to be near the thresholds tell what being near does.
// The error is that of ctx.
func (d *Decisions) followAround(ctx context.Context, inputs []int, orders int, rng *rand.Rand) (*samples, error) {
	s := d.noSamples(orders * len(inputs))
	primary, fallback := sorted(d.primary, inputs), sorted(d.fallback, inputs)
	for i := range orders {
		// z runs over the normal quantiles of (i+1/2)/orders.
		z := math.Sqrt2 * math.Erfinv((2*float64(i)+1)/float64(orders)-1)
		p := *d.policy
		p.Primary.Threshold = primary.moved(p.Primary.Threshold, shift*z)
		p.Fallback.Threshold = fallback.moved(p.Fallback.Threshold, shift*z)
		if err := d.withThresholds(&p).followOnce(ctx, s, inputs, rng); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shift is the standard deviation by which thresholds are moved to learn from, in the log-odds of
// the share of inputs at or below them. On all recordings, half as much and twice as much save about
// one percent fewer passes.
const shift = 0.2

// withThresholds returns the same passes under a policy with other thresholds, without final decisions.
func (d *Decisions) withThresholds(p *policy.Policy) *Decisions {
	follower, err := engine.NewFollower(p)
	if err != nil {
		return d // no threshold makes a policy that can be followed one that cannot
	}
	return &Decisions{recording: d.recording, policy: p, follower: follower}
}

// ranked holds scores from low to high.
type ranked []float64

// sorted returns the scores of some inputs from low to high.
func sorted(scores []float64, inputs []int) ranked {
	r := make(ranked, 0, len(inputs))
	for _, i := range inputs {
		if !math.IsNaN(scores[i]) { // an input called critical has no risk
			r = append(r, scores[i])
		}
	}
	slices.Sort(r)
	return r
}

// moved returns a threshold whose share of scores at or below it differs by so much in its
// log-odds. Thresholds are moved by shares because scores have no scale in common: a tenth more is
// little for C_k, and beyond the range of maxprob.
func (r ranked) moved(threshold, by float64) float64 {
	if len(r) == 0 {
		return threshold
	}
	below := float64(sort.Search(len(r), func(i int) bool { return r[i] > threshold }))
	odds := (below + 0.5) / (float64(len(r)) - below + 0.5) * math.Exp(by)
	ratio := r.after(odds/(1+odds)*(float64(len(r))+1)-0.5) / r.after(below)
	if !(ratio > 0) || math.IsInf(ratio, 0) { // many scores are 0
		return threshold
	}
	return threshold * ratio
}

// after returns a threshold with n scores at or below it, halfway between two scores.
func (r ranked) after(n float64) float64 {
	at := min(max(n-0.5, 0), float64(len(r)-1))
	low := int(at)
	return r[low] + (at-float64(low))*(r[min(low+1, len(r)-1)]-r[low])
}

// noSamples returns samples without entries, with room for n.
func (d *Decisions) noSamples(n int) *samples {
	s := &samples{passes: d.recording.Passes, fewest: d.policy.FewestPasses, inputs: make([]int, 0, n), final: make([]verdict, 0, n)}
	for range s.passes - s.fewest {
		s.statistics = append(s.statistics, make([]earlystop.Statistics, n))
		s.critical = append(s.critical, make([]bool, n))
	}
	return s
}

// followOnce adds a sample of each input. The error is that of ctx.
func (d *Decisions) followOnce(ctx context.Context, s *samples, inputs []int, rng *rand.Rand) error {
	open := d.follower.Another()
	for _, i := range inputs {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := len(s.inputs)
		open.Reset()
		for t, pass := range d.order(rng) {
			_ = open.Add(d.row(pass, i)) // rows were checked
			if t+1 >= s.fewest && t+1 < s.passes {
				s.critical[t+1-s.fewest][at] = open.Statistics(&s.statistics[t+1-s.fewest][at])
			}
		}
		var final verdict
		if d.final != nil {
			final = d.final[i]
		} else {
			decision, class := open.Decide()
			final = verdict{decision.Action == policy.Defer, d.isCritical(class)}
		}
		s.inputs, s.final = append(s.inputs, i), append(s.final, final)
	}
	return nil
}

// order returns an order in which the passes of an input could have come.
func (d *Decisions) order(rng *rand.Rand) []int {
	if !d.recording.Ordered {
		return rng.Perm(d.recording.Passes)
	}
	order := make([]int, d.recording.Passes)
	for i := range order {
		order[i] = i
	}
	return order
}
