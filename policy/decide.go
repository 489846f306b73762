package policy

// Evidence holds what Decide needs to know of one input.
type Evidence struct {
	// Predicted is the class of the largest mean prediction.
	Predicted int
	// Primary and Fallback are the values of the policy's two scores.
	Primary, Fallback float64
	// PrimaryClass and FallbackClass are the classes that set them, -1 for none.
	PrimaryClass, FallbackClass int
	// Skewness has the skewness ratio of each class. Decide does not keep it.
	Skewness []float64
	// Guard is the value of the guard's score, if the policy has a guard.
	Guard float64
	// Degenerate says that the passes hardly differ, or that softmax was taken twice. Saturated says
	// that they are identical and one-hot.
	Degenerate, Saturated, SoftmaxTwice bool
}

// Decision says what a policy does with one input.
type Decision struct {
	Action Action
	// Score is the score that decided. Value is its value, and Threshold what it was compared with.
	Score        Score
	Value        float64
	Threshold    float64 // meaningful only if HasThreshold
	HasThreshold bool
	// Gate says which of the two scores decided; neither where the guard did.
	Gate GateOutcome
	// Class is the class that set the score. It is -1 if none did, or if the action is not Defer.
	Class  int
	Reason Reason
}

// Action says what to do with an input. The zero value is no action.
type Action uint8

// The actions.
const (
	Retain Action = 1 + iota
	Defer
	Observe
)

// String returns the action's name in policies and JSON, or "" for no action.
func (a Action) String() string { return [...]string{"", "retain", "defer", "observe"}[a] }

// GateOutcome says which of the two scores decided. The zero value means neither.
type GateOutcome uint8

// The outcomes of the gate.
const (
	ByPrimary GateOutcome = 1 + iota
	ByFallback
)

// String returns the outcome's name in JSON, or "" for none.
func (g GateOutcome) String() string { return [...]string{"", "primary", "fallback"}[g] }

// Reason says why an action was taken. The zero value means no reason.
type Reason uint8

// The reasons.
const (
	AboveThreshold Reason = 1 + iota
	UnderThreshold        // at or under
	PredictedCritical
	IsDegenerate
	IsSaturated
	Observing
	Unfamiliar
	Violated // see WhileViolated
	SoftmaxTwice
)

// Reasons counts the reasons, and none.
const Reasons = 1 + SoftmaxTwice

// String returns the reason's name in JSON and metrics, or "" for none.
func (r Reason) String() string {
	return [Reasons]string{"", "above_threshold", "under_threshold", "predicted_critical", "degenerate", "saturated", "observing", "unfamiliar", "violated", "softmax_twice"}[r]
}

// Decide says what becomes of an input.
//
// The gate chooses the score: by the paper's rule (gate any-critical) the
// primary score while skewness_k <= the reliability threshold for every
// critical class k, else the fallback. Then, in this order: a policy without
// thresholds observes; an input that the guard finds is deferred as unfamiliar;
// one out of scope is retained, and one called critical where risk, which only
// inputs called safe have, would decide; degenerate passes are handled as the
// policy says; else the input is retained exactly when score <= threshold.
func (p *Policy) Decide(e Evidence) (d Decision) {
	p.DecideInto(&e, &d)
	return d
}

// DecideInto is Decide, and writes the decision to d. To copy the two takes as long as to decide, where
// that is done a million times a second.
func (p *Policy) DecideInto(e *Evidence, d *Decision) {
	rule := &p.Primary
	d.Gate, d.Value, d.Class = ByPrimary, e.Primary, e.PrimaryClass
	if p.fallsBack(e) {
		rule = &p.Fallback
		d.Gate, d.Value, d.Class = ByFallback, e.Fallback, e.FallbackClass
	}
	d.Score, d.Threshold, d.HasThreshold = rule.Score, rule.Threshold, rule.HasThreshold

	switch {
	case p.Observes():
		d.Action, d.Reason = Observe, Observing
	case p.Guard.Finds(e.Guard):
		d.Action, d.Reason, d.Gate, d.Class = Defer, Unfamiliar, 0, -1
		d.Score, d.Value, d.Threshold, d.HasThreshold = p.Guard.Score, e.Guard, p.Guard.Threshold, true
	case (p.Scope == PredictedSafe || d.Score == RiskScore) && has(p.Critical, e.Predicted):
		d.Action, d.Reason = Retain, PredictedCritical
	case e.Saturated && p.Saturated != HandleByScore:
		d.Action, d.Reason, d.Class = p.Saturated.action(), IsSaturated, -1
	case e.Degenerate && !e.Saturated && p.Degenerate != HandleByScore:
		d.Action, d.Reason, d.Class = p.Degenerate.action(), IsDegenerate, -1
		if e.SoftmaxTwice {
			d.Reason = SoftmaxTwice
		}
	case d.Value <= rule.Threshold:
		d.Action, d.Reason = Retain, UnderThreshold
	default:
		d.Action, d.Reason = Defer, AboveThreshold
	}
	if d.Action != Defer {
		d.Class = -1
	}
}

// WhileViolated returns what becomes of a decision while outcomes show that the policy's promise is
// violated and everything called safe is to be deferred: an input that was retained without being
// called critical is deferred with reason Violated. Score, value and threshold stay those by which it
// was retained.
func (p *Policy) WhileViolated(d Decision, predicted int) Decision {
	if d.Action == Retain && !has(p.Critical, predicted) {
		d.Action, d.Reason, d.Class = Defer, Violated, -1
	}
	return d
}

// fallsBack reports whether the gate hands the input to the fallback score.
func (p *Policy) fallsBack(e *Evidence) bool {
	switch p.Gate {
	case Always:
		return true
	case AnyCritical:
		for _, k := range p.Critical {
			if p.distrusts(e.Skewness[k]) {
				return true
			}
		}
	}
	return false
}

// distrusts reports whether C_k of a class with this skewness is not to be trusted. NaN is not.
func (p *Policy) distrusts(skewness float64) bool { return !(skewness <= p.ReliabilityThreshold) }

// action returns the action of a handling other than by score.
func (h Handling) action() Action {
	if h == HandleRetain {
		return Retain
	}
	return Defer
}
