package truth

import (
	"slices"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A Step is what evidence takes of a decision with a known truth.
type Step struct {
	Retained       bool
	CalledCritical bool // by the model
	Propensity     float64
	// Critical is the critical class that the truth is or may be, -1 for none, and Others holds further
	// ones that as many readings named. Disputed says that the truth may also be safe.
	Critical int
	Others   []int
	Disputed bool
}

// Step returns the step of a decision and its finding. It shares the finding's Others.
func (t *Terms) Step(d *Decision, f *Finding) Step {
	c := &d.Receipt
	return Step{Retained: c.Stratum != receipt.Deferred, CalledCritical: t.CalledCritical(c), Propensity: float64(c.Propensity),
		Critical: f.Critical, Others: f.Others, Disputed: f.Disputed()}
}

// Observation returns the observation of a step for the pooled risks (class -1) or for one critical
// class. Where sources disagree it takes the way that makes the risk as large as possible (worst), or
// as small.
func (s *Step) Observation(class int, worst bool) evidence.Observation {
	could, must := s.Critical >= 0, !s.Disputed
	if class >= 0 {
		must = must && s.Critical == class && len(s.Others) == 0
		could = s.Critical == class || slices.Contains(s.Others, class)
	}
	missed := s.Retained && !s.CalledCritical
	critical := could && (must || missed == worst) // a hit makes the risk smaller
	return evidence.Observation{Retained: s.Retained, Critical: critical, Missed: missed && critical, Propensity: s.Propensity}
}

// Observe returns the observation of a decision: see Step.Observation.
func (t *Terms) Observe(d *Decision, f *Finding, class int, worst bool) evidence.Observation {
	s := t.Step(d, f)
	return s.Observation(class, worst)
}
