package engine

import (
	"fmt"
	"math"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine/internal/follow"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/risk"
)

// Model binds a policy to the arithmetic that it asks for.
type Model struct {
	policy            *policy.Policy
	plan              *decomp.Plan
	primary, fallback decomp.Score  // follow.Risk where the risk model computes it
	guard             decomp.Score  // meaningful only if the policy has a guard
	critical          []bool        // by class
	risk              riskForm      // zero without a risk model
	stopper           *EarlyStopper // nil: no input stops early
	groups            sync.Pool     // released *Group
}

// BindOptions say how New binds a policy.
type BindOptions struct {
	// Lean computes no more than decisions need, and the vectors: see decomp.Spec.Lean.
	Lean bool
	// Stopper stops inputs early by the rule of the policy. May be nil.
	Stopper *EarlyStopper
}

// New binds a policy. The error means that the policy is not valid.
func New(p *policy.Policy) (*Model, error) { return Bind(p, BindOptions{}) }

// Bind is New with options.
func Bind(p *policy.Policy, o BindOptions) (*Model, error) {
	spec := Spec(p)
	spec.Lean = o.Lean && p.Primary.Score != policy.OvAMI && p.Fallback.Score != policy.OvAMI
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", p.Name, err)
	}
	m := &Model{policy: p, plan: plan, stopper: o.Stopper, critical: make([]bool, len(p.Classes))}
	for _, k := range p.Critical {
		m.critical[k] = true
	}
	if p.Risk != nil {
		m.risk = newRiskForm(p.Risk)
	}
	names := []policy.Score{p.Primary.Score, p.Fallback.Score}
	scores := []*decomp.Score{&m.primary, &m.fallback}
	if p.Guard != nil {
		names, scores = append(names, p.Guard.Score), append(scores, &m.guard)
	}
	for i, name := range names {
		score, ok := follow.ParseScore(name)
		if !ok {
			return nil, fmt.Errorf("model %q: unknown score %q", p.Name, name)
		}
		if score == follow.Risk && p.Risk == nil {
			return nil, fmt.Errorf("model %q: score %s without a risk model", p.Name, name)
		}
		*scores[i] = score
	}
	return m, nil
}

// Spec returns what a policy asks of the arithmetic.
func Spec(p *policy.Policy) decomp.Spec {
	s := decomp.Spec{
		Classes:      len(p.Classes),
		Critical:     p.Critical,
		Safe:         p.Safe,
		SumTolerance: p.SumTolerance,
		AllPairs:     p.Pairs == policy.AllPairs,
	}
	switch p.Kind {
	case policy.Logits:
		s.Kind = decomp.Logits
	case policy.Dirichlet:
		s.Kind = decomp.Dirichlet
	}
	if p.Variance == policy.Population {
		s.Variance = decomp.Population
	}
	for _, w := range p.PairWeights {
		s.Weights = append(s.Weights, decomp.Weight(w))
	}
	return s
}

// Policy returns the policy that decides.
func (m *Model) Policy() *policy.Policy { return m.policy }

// Plan returns the plan of the arithmetic.
func (m *Model) Plan() *decomp.Plan { return m.plan }

// Stopper returns what stops inputs early, or nil.
func (m *Model) Stopper() *EarlyStopper { return m.stopper }

// CallsCritical reports whether a class is critical: whether an input whose prediction it is is called
// critical.
func (m *Model) CallsCritical(class int) bool { return m.critical[class] }

// StopsEarly reports whether inputs that complete with this many passes may stop early now.
func (m *Model) StopsEarly(passes int) bool { return m.stopper.applies(passes) }

// InputBytes returns the memory that an open input needs for the given number of passes; 0 means
// that the number is not known.
func (m *Model) InputBytes(passes int) int {
	p := m.Prepare(Options{Passes: passes})
	return p.InputBytes(1)
}

// Outcome holds what became of one input. The next call that it is given to overwrites it.
type Outcome struct {
	*decomp.Result
	Assessment
	Decision policy.Decision
	// Primary and Fallback are the values of the policy's two scores.
	Primary, Fallback float64
	// SoftmaxTwice says that the input completes the run of its caller: see Batch.Watch.
	SoftmaxTwice bool
}

// Assessment holds how probable it is that an input is truly critical, as the policy's calibration
// found it.
type Assessment struct {
	// Risk is the probability, in [0,1], of an input called safe. It is NaN for an input called
	// critical, and without a risk model.
	Risk float64
	// Priority is the probability, in [0,1], whatever class is predicted. It is NaN without a risk
	// model.
	Priority float64
	// Percentile is the share, in [0,1], of the calibration's inputs whose priority was no higher. It
	// is 1 for unfamiliar and degenerate inputs, whose probability cannot be trusted: they come first
	// in work lists. It is NaN without a risk model.
	Percentile float64
	// Trusted says that there is a probability, and that the input is neither unfamiliar nor degenerate.
	Trusted bool
}

// Unassessed returns the assessment of an input without a risk model: NaN throughout.
func Unassessed() Assessment {
	nan := math.NaN()
	return Assessment{Risk: nan, Priority: nan, Percentile: nan}
}

// NewOutcome creates an Outcome for inputs of the model.
func (m *Model) NewOutcome() *Outcome {
	return &Outcome{Result: m.plan.NewResult(), Assessment: Unassessed()}
}

// decide completes an outcome whose result is computed. softmaxTwice makes it degenerate.
func (m *Model) decide(o *Outcome, softmaxTwice bool) {
	o.SoftmaxTwice, o.Degenerate = softmaxTwice, o.Degenerate || softmaxTwice
	guarded := 0.0
	if m.policy.Guard != nil {
		guarded = o.Scores[m.guard]
	}
	m.assess(o, guarded)
	o.Primary, o.Fallback = o.value(m.primary), o.value(m.fallback)
	// Field by field, since a literal is copied: the copy waits until every number above is computed.
	var e policy.Evidence
	e.Predicted = o.Predicted
	e.Primary, e.Fallback, e.Guard = o.Primary, o.Fallback, guarded
	e.PrimaryClass, e.FallbackClass = o.Deciding(m.primary), o.Deciding(m.fallback)
	e.Skewness = o.Skewness
	e.Degenerate, e.Saturated, e.SoftmaxTwice = o.Degenerate, o.Saturated, softmaxTwice
	m.policy.DecideInto(&e, &o.Decision)
}

// riskForm is a risk model in the form in which inputs are assessed fastest. Which inputs are called
// critical cannot be foreseen, so that tables by side take the place of branches.
type riskForm struct {
	// bySide holds the probability for inputs called safe, and for those called critical.
	bySide      [2]policy.Logistic
	percentiles *policy.Percentiles // nil without a risk model
}

// addedToRisk makes of the priority of an input, called safe or critical, its risk.
var addedToRisk = [2]float64{0, math.NaN()}

func newRiskForm(r *policy.Risk) riskForm {
	return riskForm{[2]policy.Logistic{r.CalledSafe, r.CalledCritical}, r.Percentiles()}
}

// assess fills the assessment; guarded is the value of the guard's score.
func (m *Model) assess(o *Outcome, guarded float64) {
	p, f := m.policy, &m.risk
	if p.Risk == nil {
		return // NewOutcome has filled it
	}
	side := 0
	if m.CallsCritical(o.Predicted) {
		side = 1
	}
	form := &f.bySide[side]
	logOdds := form.Intercept + form.Slope*risk.LogOdds(o.Scores[decomp.PCritical])
	o.Priority = risk.Logistic(logOdds)
	o.Risk = o.Priority + addedToRisk[side]
	o.Trusted = !o.Degenerate && !p.Guard.Finds(guarded)
	if o.Percentile = 1; o.Trusted {
		o.Percentile = f.percentiles.Of(o.Priority)
	}
}

// value returns the value of a score.
func (o *Outcome) value(s decomp.Score) float64 {
	if s == follow.Risk {
		return o.Risk
	}
	return o.Scores[s]
}

// checkPasses returns a *decomp.PassesError for fewer passes than the policy accepts.
func (m *Model) checkPasses(passes int) error {
	if passes < m.policy.FewestPasses {
		return &decomp.PassesError{Got: passes, Least: m.policy.FewestPasses}
	}
	return nil
}
