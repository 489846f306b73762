package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/follow"
)

// Recording is complete passes of some inputs.
type Recording struct {
	Passes, Inputs int
	// Values are [passes][inputs][classes].
	Values []float32
	// Labels are the true classes; nil where they are not known.
	Labels []int
	// Ordered passes are the members of an ensemble: a fixed list, not draws.
	Ordered bool
}

// Decisions are what the complete passes of inputs decide under a policy, and what
// holds those passes.
type Decisions struct {
	recording Recording
	policy    *policy.Policy
	plan      *follow.Plan
	final     []verdict // by input; nil under other thresholds, where followed passes decide
	// Scores of all passes that are held against the policy's thresholds, by input.
	primary, fallback []float64
}

// verdict is what is decided on an input.
type verdict struct {
	defers, critical bool // critical: the predicted class is
}

// differs reports whether two verdicts disagree.
func (v verdict) differs(w verdict) bool {
	return v.defers != w.defers || !v.defers && v.critical != w.critical
}

// Decide decides on all inputs with all their passes, as the engine does. Errors are
// a *follow.UnsupportedError, those of the engine, or of a row that is refused.
func Decide(p *policy.Policy, r Recording) (*Decisions, error) {
	plan, err := follow.NewPlan(p)
	if err != nil {
		return nil, err
	}
	m, err := engine.NewLean(p)
	if err != nil {
		return nil, err
	}
	if r.Labels != nil && len(r.Labels) != r.Inputs {
		return nil, fmt.Errorf("%d labels: expected %d, one for each input", len(r.Labels), r.Inputs)
	}
	d := &Decisions{recording: r, policy: p, plan: plan, final: make([]verdict, r.Inputs),
		primary: make([]float64, r.Inputs), fallback: make([]float64, r.Inputs)}
	primary, _ := decomp.ParseScore(string(p.Primary.Score))
	fallback, _ := decomp.ParseScore(string(p.Fallback.Score))
	b, o := m.NewBatch(), m.NewOutcome()
	if err := b.Reset(decomp.Tensor{Passes: r.Passes, Inputs: r.Inputs, Float32: r.Values}); err != nil {
		return nil, err
	}
	for i := range r.Inputs {
		if err := b.Outcome(i, o); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
		d.final[i] = verdict{o.Decision.Action == policy.Defer, d.isCritical(o.Predicted)}
		d.primary[i], d.fallback[i] = o.Scores[primary], o.Scores[fallback]
	}
	return d, nil
}

func (d *Decisions) isCritical(class int) bool {
	for _, k := range d.policy.Critical {
		if k == class {
			return true
		}
	}
	return false
}

// row is one pass of an input.
func (d *Decisions) row(pass, input int) []float32 {
	k := len(d.policy.Classes)
	return d.recording.Values[(pass*d.recording.Inputs+input)*k:][:k]
}

// samples are inputs followed through orders of their passes.
type samples struct {
	passes int // S
	fewest int // first t
	orders int
	inputs []int // of the recording, by sample
	final  []verdict
	// After t passes, at [t-fewest]; t ends before S.
	statistics [][]settle.Statistics
	critical   [][]bool
}

// follow inputs through so many orders each; through the one of ordered passes.
func (d *Decisions) follow(inputs []int, orders, fewest int, rng *rand.Rand) *samples {
	if d.recording.Ordered {
		orders = 1
	}
	s := d.noSamples(orders*len(inputs), orders, fewest)
	for range orders {
		d.followOnce(s, inputs, rng)
	}
	return s
}

// followAround is follow for learning: each time with thresholds that are a little
// lower or higher, so that not only those few inputs which happen to be near them tell
// what does.
func (d *Decisions) followAround(inputs []int, orders, fewest int, rng *rand.Rand) *samples {
	s := d.noSamples(orders*len(inputs), orders, fewest)
	primary, fallback := sorted(d.primary, inputs), sorted(d.fallback, inputs)
	for i := range orders {
		// The normal quantiles of (i+1/2)/orders.
		z := math.Sqrt2 * math.Erfinv((2*float64(i)+1)/float64(orders)-1)
		p := *d.policy
		p.Primary.Threshold = primary.moved(p.Primary.Threshold, shift*z)
		p.Fallback.Threshold = fallback.moved(p.Fallback.Threshold, shift*z)
		d.under(&p).followOnce(s, inputs, rng)
	}
	return s
}

// shift is the standard deviation of the log-odds of the share of inputs at or below
// thresholds to learn from: chosen on the CTG and digits recordings, where half as much and
// twice as much do as well.
const shift = 0.2

// under is the same under the policy with other thresholds, but for what was decided.
func (d *Decisions) under(p *policy.Policy) *Decisions {
	plan, err := follow.NewPlan(p)
	if err != nil {
		return d // no threshold makes a policy that can be followed one that cannot
	}
	return &Decisions{recording: d.recording, policy: p, plan: plan}
}

// ranked is scores from low to high.
type ranked []float64

// sorted scores of some inputs.
func sorted(scores []float64, inputs []int) ranked {
	r := make(ranked, len(inputs))
	for at, i := range inputs {
		r[at] = scores[i]
	}
	slices.Sort(r)
	return r
}

// moved is a threshold that has another share of the scores at or below it, by so much in
// its log-odds. Scores have no scale in common: a tenth more is little for C_k, and more
// than there is for maxprob.
func (r ranked) moved(threshold, by float64) float64 {
	below := float64(sort.Search(len(r), func(i int) bool { return r[i] > threshold }))
	odds := (below + 0.5) / (float64(len(r)) - below + 0.5) * math.Exp(by)
	ratio := r.after(odds/(1+odds)*(float64(len(r))+1)-0.5) / r.after(below)
	if !(ratio > 0) || math.IsInf(ratio, 0) { // many scores are 0
		return threshold
	}
	return threshold * ratio
}

// after is where a threshold has so many scores at or below it: in the middle between two.
func (r ranked) after(n float64) float64 {
	at := min(max(n-0.5, 0), float64(len(r)-1))
	low := int(at)
	return r[low] + (at-float64(low))*(r[min(low+1, len(r)-1)]-r[low])
}

// noSamples yet, with room for n.
func (d *Decisions) noSamples(n, orders, fewest int) *samples {
	s := &samples{passes: d.recording.Passes, fewest: fewest, orders: orders,
		inputs: make([]int, 0, n), final: make([]verdict, 0, n)}
	for range max(s.passes-fewest, 0) {
		s.statistics = append(s.statistics, make([]settle.Statistics, n))
		s.critical = append(s.critical, make([]bool, n))
	}
	return s
}

// followOnce adds a sample of each input.
func (d *Decisions) followOnce(s *samples, inputs []int, rng *rand.Rand) {
	open := d.plan.NewInputs(1)
	for _, i := range inputs {
		at := len(s.inputs)
		open.Reset(0)
		for t, pass := range d.order(rng) {
			_ = open.Add(0, d.row(pass, i)) // rows were checked
			if t+1 >= s.fewest && t+1 < s.passes {
				s.critical[t+1-s.fewest][at] = open.Statistics(0, &s.statistics[t+1-s.fewest][at])
			}
		}
		var final verdict
		if d.final != nil {
			final = d.final[i]
		} else {
			decision, class := open.Decide(0)
			final = verdict{decision.Action == policy.Defer, d.isCritical(class)}
		}
		s.inputs, s.final = append(s.inputs, i), append(s.final, final)
	}
}

// order is one in which the passes of an input could have come.
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
