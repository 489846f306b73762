package policy

import "fmt"

// Where warnings begin.
const (
	looseSumTolerance  = 0.01 // above what bfloat16 rounding costs
	manyCritical       = 5    // critical classes under gate any-critical
	fewForNearlyAll    = 4    // classes from which all but one critical is nearly all
	skewnessCapToSpare = 2    // times the reliability threshold
)

// Warnings is what is legal in the policy but unwise, each with the field that
// it is about.
func (p *Policy) Warnings() []string {
	var warnings []string
	warn := func(field, format string, args ...any) {
		warnings = append(warnings, field+": "+fmt.Sprintf(format, args...))
	}

	if len(p.Critical) > 0 && (len(p.Safe) == 0 ||
		len(p.Classes) >= fewForNearlyAll && len(p.Critical) >= len(p.Classes)-1) {
		warn("critical", "%d of %d classes are critical and %d safe: a critical set that is nearly everything "+
			"singles nothing out", len(p.Critical), len(p.Classes), len(p.Safe))
	}
	p.warnOfPasses(warn)
	if p.Kind == Probabilities && p.SumTolerance > looseSumTolerance {
		warn("sum_tolerance", "%v lets rows pass that are no probabilities, and they are not renormalised; even "+
			"bfloat16 needs no more than 0.004", p.SumTolerance)
	}
	p.warnOfGate(warn)
	if p.Scope == PredictedSafe && len(p.Critical) == len(p.Classes) {
		warn("scope", "every class is critical, so with %s no input is ever deferred", PredictedSafe)
	}
	p.warnOfRules(warn)
	p.warnOfIdentical(warn)
	if p.Calibration != nil {
		p.warnOfCalibration(warn)
	}
	if p.Settle != nil {
		p.warnOfSettle(warn)
	}
	if p.Observes() {
		warn("thresholds", "none are given: the policy observes and nothing is deferred")
	}
	return warnings
}

type warner func(field, format string, args ...any)

func (p *Policy) warnOfPasses(warn warner) {
	if p.Kind == Dirichlet {
		return
	}
	if p.ExpectedPasses == 0 {
		warn("passes.expected", "not given: an input is answered only when its caller says that it is complete")
	}
	if spare := skewnessCapToSpare * p.ReliabilityThreshold; p.readsSkewness() && p.skewnessCap(p.FewestPasses) < spare {
		advice := ""
		if least := p.leastPasses(spare); least <= MaxPasses {
			advice = fmt.Sprintf(", ask for at least %d", least)
		}
		warn("passes.fewest", "%d passes cannot show a skewness above %.3g, near the reliability threshold of %v: "+
			"few unreliable classes are found%s", p.FewestPasses, p.skewnessCap(p.FewestPasses),
			p.ReliabilityThreshold, advice)
	}
}

func (p *Policy) warnOfGate(warn warner) {
	switch {
	case p.Gate.ReadsSkewness() && p.Kind == Dirichlet:
		warn("gate", "%s with dirichlet: at a fixed sum of concentrations C_k grows as a class gets less likely, "+
			"so that it ranks inputs badly; the default here is %s", p.Gate, Always)
	case p.Gate == AnyCritical && len(p.Critical) >= manyCritical:
		warn("gate", "%s with %d critical classes: one of them is nearly always improbable and skewed, so that the "+
			"fallback may decide almost every input; compare %s", p.Gate, len(p.Critical), DecidingClass)
	}
}

func (p *Policy) warnOfRules(warn warner) {
	for _, r := range p.reachable() {
		if r.HasThreshold && r.Threshold == 0 {
			warn(r.field+".threshold", "0 retains only inputs whose %s is exactly 0, and defers nearly all", r.Score)
		}
		if r.Score != CBEC {
			continue
		}
		if len(p.Classes) == 2 {
			warn(r.field+".score", "with two classes the correlation is -1 and cbec is sqrt(C_0 C_1), which is blind to "+
				"which class is critical: where it decides, most of the benefit can be lost")
		}
		if p.allWeightsZero() {
			warn("pair_weights", "all are 0, so that cbec is always 0 and defers nothing")
		}
	}
	if p.Primary.HasThreshold && !p.Gate.ReachesPrimary() {
		warn("primary.threshold", "has no effect: with gate %s the primary score never decides", p.Gate)
	}
	if p.Fallback.HasThreshold && !p.Gate.ReachesFallback() {
		warn("fallback.threshold", "has no effect: with gate %s the fallback score never decides", p.Gate)
	}
}

func (p *Policy) allWeightsZero() bool {
	for _, w := range p.PairWeights {
		if w.Weight != 0 {
			return false
		}
	}
	return len(p.PairWeights) == len(p.Safe)*len(p.Critical)
}

func (p *Policy) warnOfIdentical(warn warner) {
	if p.Kind == Dirichlet || p.Observes() {
		return
	}
	switch p.Degenerate {
	case HandleRetain:
		warn("degenerate", "%s: if dropout is off, every input passes unseen", HandleRetain)
	case HandleByScore:
		warn("degenerate", "%s: with identical passes every score but entropy and maxprob is 0 and retains; if dropout "+
			"is off, every input passes unseen", HandleByScore)
	}
}
