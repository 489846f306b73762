package policy

import (
	"fmt"
	"slices"
)

// Warnings begin at these values.
const (
	looseSumTolerance  = 0.01 // above what bfloat16 rounding costs
	manyCritical       = 5    // critical classes under gate any-critical
	fewForNearlyAll    = 4    // classes from which all but one critical is nearly all
	skewnessCapToSpare = 2    // times the reliability threshold
)

// Warnings returns what the policy may say but should not, each with its field.
func (p *Policy) Warnings() []string {
	w := &warnings{Policy: p}
	if len(p.Critical) > 0 && (len(p.Safe) == 0 ||
		len(p.Classes) >= fewForNearlyAll && len(p.Critical) >= len(p.Classes)-1) {
		w.add("critical", "%d of %d classes are critical and %d safe: where nearly every class is critical, none stands out", len(p.Critical), len(p.Classes), len(p.Safe))
	}
	w.passes()
	if p.Kind == Probabilities && p.SumTolerance > looseSumTolerance {
		w.add("sum_tolerance", "%v accepts rows that are no probabilities; even bfloat16 needs no more than 0.004", p.SumTolerance)
	}
	w.gate()
	if p.Scope == PredictedSafe && len(p.Critical) == len(p.Classes) {
		w.add("scope", "every class is critical, and inputs called critical are not deferred: no input ever is")
	}
	w.rules()
	w.identical()
	if p.Calibration != nil {
		w.calibration()
	}
	if p.Audit != nil {
		w.audit()
	}
	if p.EarlyStopping != nil {
		w.earlyStopping()
	}
	return w.found
}

// warnings collects the warnings about a policy.
type warnings struct {
	*Policy
	found []string
}

func (w *warnings) add(field, format string, args ...any) {
	w.found = append(w.found, field+": "+fmt.Sprintf(format, args...))
}

func (w *warnings) passes() {
	if w.Kind == Dirichlet {
		return
	}
	if w.ExpectedPasses == 0 {
		w.add("passes.expected", "not given: an input is answered only when its caller says that it is complete")
	}
	if spare := skewnessCapToSpare * w.ReliabilityThreshold; w.readsSkewness() && w.skewnessCap(w.FewestPasses) < spare {
		advice := ""
		if least := w.leastPasses(spare); least <= maxPasses {
			advice = fmt.Sprintf("; ask for %d passes or more", least)
		}
		w.add("passes.fewest", "the skewness of %d passes cannot exceed %.3g, which is near the reliability threshold of %v: "+
			"few unreliable classes are found%s", w.FewestPasses, w.skewnessCap(w.FewestPasses),
			w.ReliabilityThreshold, advice)
	}
}

func (w *warnings) gate() {
	switch {
	case w.Gate.ReadsSkewness() && w.Kind == Dirichlet:
		w.add("gate", "at a fixed sum of concentrations C_k grows as a class gets less likely, so that it ranks inputs badly: "+
			"leave the gate to its default, %s", Always)
	case w.Gate == AnyCritical && len(w.Critical) >= manyCritical:
		w.add("gate", "one of %d critical classes is nearly always improbable and skewed, so that the fallback may decide almost "+
			"every input: compare the gates %s and %s with ckd evaluate", len(w.Critical), Never, Always)
	}
}

func (w *warnings) rules() {
	for _, r := range w.reachable() {
		switch {
		case r.Score == PCritical && w.Scope == AllInputs:
			w.add(r.field+".score", "inputs that are called critical most surely are deferred first, though nobody misses them: write scope: %s",
				PredictedSafe)
		case r.Score == CBEC && len(w.Classes) == 2:
			w.add(r.field+".score", "with two classes the confusion between them is blind to which one is critical: where it decides, most of the "+
				"benefit can be lost")
		}
		switch {
		case r.Score == PCritical && r.Threshold > 1:
			w.add(r.field+".threshold", "%v defers nothing: a probability is at most 1", r.Threshold)
		case r.Score == CBEC && w.allWeightsZero():
			w.add("pair_weights", "all are 0, so that the confusion is always 0 and defers nothing")
		}
	}
	if w.Primary.HasThreshold && !w.Gate.ReachesPrimary() {
		w.add("primary.threshold", "has no effect: the primary score never decides with gate: %s", w.Gate)
	}
	if w.Fallback.HasThreshold && !w.Gate.ReachesFallback() {
		w.add("fallback.threshold", "has no effect: the fallback score never decides with gate: %s", w.Gate)
	}
}

// allWeightsZero reports whether every pair has weight 0.
func (p *Policy) allWeightsZero() bool {
	return len(p.PairWeights) == len(p.Safe)*len(p.Critical) &&
		!slices.ContainsFunc(p.PairWeights, func(w PairWeight) bool { return w.Weight != 0 })
}

func (w *warnings) identical() {
	if w.Kind == Dirichlet || w.Observes() {
		return
	}
	switch w.Degenerate {
	case HandleRetain:
		w.add("degenerate", "inputs whose passes hardly differ are retained: if dropout is off, every input passes unseen")
	case HandleByScore:
		w.add("degenerate", "inputs whose passes hardly differ score about 0 and are retained: if dropout is off, every input passes unseen")
	}
}

// looseRelease is the share of deferred inputs from which on a bound on those retained is worth a
// warning. A rule that defers next to nothing can be certified where few inputs are deferred.
const looseRelease = 0.5

// earlyStopping warns about the early-stopping rule.
func (w *warnings) earlyStopping() {
	c := w.EarlyStopping.Certificate
	if w.learnedForAnother() {
		w.add("calibrated.early_stopping.policy_hash", "early stopping is off, since the policy was changed after its rule was learned (its hash without the rule "+
			"is now %s): learn another with ckd calibrate early-stop", w.HashWithoutEarlyStop())
		return
	}
	if loose := c.Released.AtMost; loose >= looseRelease {
		w.add("calibrated.early_stopping.certificate.released.at_most", "early stopping may retain up to %s of the inputs that all passes defer: learn its rule on more of them, or allow "+
			"fewer decisions to differ", percent(loose))
	}
	if w.Calibration != nil && IsEnsemble(w.Calibration.Posterior) && w.EarlyStopping.Order == AnyOrder {
		w.add("calibrated.early_stopping.order", "the passes are of an ensemble, whose members come in one order: write order: %s", MembersOrder)
	}
}
