package policy

import (
	"fmt"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// addSteps adds those steps of a program's rule that Marshal would write.
func (b *builder) addSteps() {
	if b.EarlyStopping == nil {
		return
	}
	rule := &b.EarlyStopping.Rule
	for i, is := range rule.Steps {
		if writesStep(rule, i) {
			b.steps = append(b.steps, step{fmt.Sprintf("settle.steps[%d]", len(b.steps)), rule.Fewest + i, is})
		}
	}
}

// resolveEarlyStopping makes a rule of the steps, and checks the block: that it is complete, and
// that it fits the policy if it was learned for the policy as it is now. A block that was learned
// for another policy may stay, since thresholds may be changed at any time.
func (b *builder) resolveEarlyStopping() {
	s := b.EarlyStopping
	if s == nil {
		return
	}
	b.checkEarlyStopCertificate()
	if !b.checkSteps() {
		return
	}
	first, passes := b.steps[0].passes, b.steps[len(b.steps)-1].passes+1
	if !b.p.learnedForAnother() {
		if !b.checkEarlyStopFits() {
			return
		}
		passes = b.p.ExpectedPasses
	}
	s.Rule.Passes, s.Rule.Fewest, s.Rule.Steps = passes, first, make([]earlystop.Step, passes-first)
	for i := range s.Rule.Steps {
		s.Rule.Steps[i] = earlystop.NoStep()
	}
	for _, step := range b.steps {
		s.Rule.Steps[step.passes-first] = meant(step.is)
	}
}

// checkSteps reports whether the steps alone can be a rule.
func (b *builder) checkSteps() bool {
	if len(b.steps) == 0 {
		if b.sound("settle.steps") {
			b.fault("settle.steps", "empty, expected at least one step")
		}
		return false
	}
	last := 0
	for _, step := range b.steps {
		switch at := step.path + ".passes"; {
		case !b.sound(at):
			return false
		case step.passes <= last:
			b.fault(at, "expected more than at the step before, %d, found %d", last, step.passes)
			return false
		}
		last = step.passes
	}
	return true
}

// checkEarlyStopFits reports whether the rule can be in force for the policy.
func (b *builder) checkEarlyStopFits() bool {
	p, first, last := b.p, b.steps[0], b.steps[len(b.steps)-1]
	if why := p.WhyNoEarlyStop(); why != "" {
		b.fault("settle", "expected none: %s", why)
		return false
	}
	if most := float64(p.ExpectedPasses); p.EarlyStopping.MeanPasses > most {
		b.fault("settle.mean_passes", "expected at most %v, the passes of the full decision, found %v", most, p.EarlyStopping.MeanPasses)
	}
	switch {
	case first.passes < p.FewestPasses:
		b.fault(first.path+".passes", "expected at least %d, the fewest passes that the policy accepts, found %d",
			p.FewestPasses, first.passes)
	case last.passes >= p.ExpectedPasses:
		b.fault(last.path+".passes", "expected fewer than %d, those of the full decision, found %d", p.ExpectedPasses, last.passes)
	default:
		return true
	}
	return false
}

// meant returns a step without coefficients that have no effect, since their side has no boundary.
func meant(s earlystop.Step) earlystop.Step {
	for _, side := range []*earlystop.Side{&s.Retain, &s.Defer} {
		if side.AtMost == -earlystop.Never {
			side.Coefficients = [earlystop.Terms]float64{}
		}
	}
	return s
}

func (b *builder) checkEarlyStopCertificate() {
	const path = "settle.certificate"
	c := b.EarlyStopping.Certificate
	b.checkShare(path+".disagreement", c.Disagreement)
	b.checkShare(path+".confidence", c.Confidence)
	if c.Disagreements > c.Inputs && b.sound(path+".inputs", path+".disagreements") {
		b.fault(path+".disagreements", "expected at most %d, the number of inputs, found %d", c.Inputs, c.Disagreements)
	}
	released := func(at string, r *ReleasedShare) {
		switch {
		case r == nil || !b.sound(at+".at_most", at+".deferred", at+".released"):
		case r.AtMost == 0:
			b.fault(at+".at_most", "expected a share above 0, found 0")
		case r.Released > r.Deferred:
			b.fault(at+".released", "expected at most %d, those deferred, found %d", r.Deferred, r.Released)
		}
	}
	released(path+".released", &c.Released)
	released(path+".critical_released", c.CriticalReleased)
}
