package policy

import (
	"fmt"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// addSteps adds those steps of a program's rule that Marshal would write.
func (b *builder) addSteps() {
	if b.EarlyStopping == nil || b.EarlyStopping.Rule.Form != nil {
		return
	}
	rule := &b.EarlyStopping.Rule
	for i, is := range rule.Steps {
		if writesStep(rule, i) {
			b.steps = append(b.steps, step{fmt.Sprintf("settle.steps[%d]", len(b.steps)), rule.Fewest + i, is})
		}
	}
}

// earlyStopRules make a rule of the block settle, whose numbers of passes rise from entry to entry.
// They want it to fit the policy only where it was learned for the policy as it is now.
type earlyStopRules struct {
	*builder
	p *Policy
}

// resolve makes a rule of the steps, and checks the block: that it is complete, and
// that it fits the policy if it was learned for the policy as it is now. A block that was learned
// for another policy may stay, since thresholds may be changed at any time.
func (b earlyStopRules) resolve() {
	s := b.EarlyStopping
	if s == nil {
		return
	}
	b.checkCertificate()
	places, ok := b.stepsOrBoundaries()
	if !ok {
		return
	}
	first, passes := places[0].passes, places[len(places)-1].passes+1
	if !b.p.learnedForAnother() {
		if !b.checkFits(places[0], places[len(places)-1]) {
			return
		}
		passes = b.p.ExpectedPasses
	}
	if s.Rule.Form != nil {
		s.Rule = s.Rule.Form.Rule(passes, s.Rule.Patience)
		return
	}
	s.Rule.Passes, s.Rule.Fewest, s.Rule.Steps = passes, first, make([]earlystop.Step, passes-first)
	for i := range s.Rule.Steps {
		s.Rule.Steps[i] = earlystop.NoStep()
	}
	for _, step := range b.steps {
		s.Rule.Steps[step.passes-first] = meant(step.is)
	}
}

// place is a number of passes that a rule names, and the entry that does.
type place struct {
	path   string
	passes int
}

// stepsOrBoundaries returns the numbers of passes that the rule names, and reports whether its
// steps, or its boundaries and terms, alone can be a rule.
func (b earlyStopRules) stepsOrBoundaries() (places []place, ok bool) {
	list, what := "settle.steps", "step, or boundaries"
	for _, s := range b.steps {
		places = append(places, place{s.path, s.passes})
	}
	if form := b.EarlyStopping.Rule.Form; form != nil {
		if len(b.steps) > 0 {
			b.fault(list, "expected none beside boundaries and terms: a rule has one or the other")
			return nil, false
		}
		list, what = "settle.boundaries", "boundary"
		for i, at := range form.Boundaries {
			places = append(places, place{fmt.Sprintf("%s[%d]", list, i), at.Passes})
		}
		ok = b.checkTerms("settle.retain", form.Retain)
		if ok = b.checkTerms("settle.defer", form.Defer) && ok; !ok {
			return nil, false
		}
	}
	if len(places) == 0 {
		if b.sound(list) {
			b.fault(list, "empty, expected at least one %s", what)
		}
		return nil, false
	}
	last := 0
	for _, at := range places {
		switch path := at.path + ".passes"; {
		case !b.sound(path):
			return nil, false
		case at.passes <= last:
			b.fault(path, "expected more than at the one before, %d, found %d", last, at.passes)
			return nil, false
		}
		last = at.passes
	}
	return places, true
}

// checkTerms reports whether the terms name statistics, and no product twice.
func (b earlyStopRules) checkTerms(list string, terms []earlystop.Term) bool {
	var seen [earlystop.Terms]bool
	for i := range terms {
		t, at := &terms[i], fmt.Sprintf("%s[%d]", list, i)
		place := t.Place()
		switch {
		case place == 0 || !b.sound(at+".of", at+".times"):
			return false // reported where it was read
		case seen[place]:
			b.fault(at, "a second term of the same statistics, expected one")
			return false
		}
		seen[place] = true
	}
	return true
}

// checkFits reports whether the rule can be in force for the policy.
func (b earlyStopRules) checkFits(first, last place) bool {
	p := b.p
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

func (b earlyStopRules) checkCertificate() {
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
