package policy

import "fmt"

// explainCalibration says what was certified, what the policy was calibrated on, and what voids both.
func (p *Policy) explainCalibration() []string {
	points := []string{p.explainGuarantee(), p.explainRecording()}
	if attempt := p.Calibration.EarlierAttempt; attempt != "" {
		points = append(points, fmt.Sprintf("A certificate was sought on the same recording before (%s): a further one would be void.", attempt))
	}
	return points
}

func (p *Policy) explainGuarantee() string {
	switch {
	case p.ChangedSinceCalibration():
		return "Nothing is guaranteed: the policy was changed after its calibration, and what was expected and certified is of the one before."
	case p.Calibration.Certificate != nil:
		return p.Calibration.Certificate.Explain()
	}
	return "Nothing is guaranteed: the policy has no certificate."
}

// explainRecording says what the policy was calibrated on, and for.
func (p *Policy) explainRecording() string {
	c, r := p.Calibration, p.Calibration.Recording
	s := "Calibrated"
	if r.Inputs > 0 {
		s += fmt.Sprintf(" on %s inputs", count(r.Inputs))
		if r.CriticalInputs > 0 {
			s += fmt.Sprintf(" (%s critical)", count(r.CriticalInputs))
		}
	} else {
		s += " on an unknown number of inputs"
	}
	carry := "another model"
	if p.Kind != Dirichlet {
		carry = "another model, number of passes or way of sampling"
		if r.Passes > 0 {
			s += fmt.Sprintf(" of %s passes", count(r.Passes))
		} else {
			s += " of an unknown number of passes"
		}
		if c.Posterior != "" {
			s += " by " + c.Posterior
		} else {
			s += " (not stated how they were sampled: posterior)"
		}
	}
	if c.Software != "" {
		s += ", with " + c.Software
	}
	if c.Objective != "" {
		s += ", for " + c.Objective
	}
	return s + fmt.Sprintf(". Thresholds do not carry over to %s.", carry)
}

// Explain says in words what the certificate guarantees.
func (c *Certificate) Explain() string {
	if c.Statement != "" {
		return "Certified: " + c.Statement
	}
	var limits []string
	for _, limit := range c.Limits() {
		limits = append(limits, limit.explain())
	}
	s := fmt.Sprintf("Certified with confidence %s: %s, for inputs drawn as those of the calibration",
		percent(c.Confidence), listed(limits))
	if c.Groups == 0 {
		return s + ", " + IfIndependent + "."
	}
	return s + fmt.Sprintf(" (%s groups).", count(c.Groups))
}

func (l CertifiedLimit) explain() string {
	s := fmt.Sprintf("at most %s of the %s are missed", percent(l.Target), l.population())
	if l.Cases > 0 {
		s += fmt.Sprintf(" (%s of %s were)", count(l.Misses), count(l.Cases))
	}
	return s
}

// population says in words which inputs the limit is a share of.
func (l CertifiedLimit) population() string {
	s := "critical inputs"
	if l.Class != "" {
		s = "inputs of class " + l.Class
	}
	if l.Bounds == CriticalFNR {
		s = "retained " + s
	}
	return s
}

// explainLines says above what the alarm sounds.
func (p *Policy) explainLines() string {
	lines := p.LinesInForce()
	if len(lines) == 0 {
		return ""
	}
	var limits []string
	for _, l := range lines {
		limits = append(limits, fmt.Sprintf("%s %s (%s)", l.Figure(), percent(l.Above), l.Origin()))
	}
	return fmt.Sprintf("The alarm sounds when outcomes show more than this: %s.", listed(limits))
}

// explainAudit says which retained inputs are looked at and what follows.
func (p *Policy) explainAudit() string {
	a := p.Audit
	if a == nil {
		return ""
	}
	s := fmt.Sprintf("A person also looks at %s of the retained inputs, picked at random", percent(a.Rate))
	if p.Risk != nil && a.M < 1 {
		s += ", those of higher risk more often"
	}
	if a.PredictedCritical == CriticalFree {
		s += "; those called critical are all worked up anyway"
	}
	if a.Cap > 0 {
		s += fmt.Sprintf("; above %v an hour fewer are picked", a.Cap)
	}
	s += fmt.Sprintf(". Outcomes are expected within %v.", a.Due)
	if a.OnBreach == DeferOnBreach {
		s += fmt.Sprintf(" While the alarm is up, every input called safe is deferred: about %v reviews per 1,000 inputs.", a.Surge)
	}
	return s
}

// explainEarlyStopping says when inputs are answered early, and what is guaranteed of that.
func (p *Policy) explainEarlyStopping() []string {
	s := p.EarlyStopping
	if s == nil {
		return nil
	}
	c := s.Certificate
	if p.learnedForAnother() {
		return []string{"Early stopping is off: its rule was learned for the policy before it was changed. All passes decide."}
	}
	when := fmt.Sprintf("Early stopping: for clients that accept it, an input is answered after %d to %d passes", s.Rule.Fewest, s.Rule.Passes)
	if s.MeanPasses > 0 {
		when += fmt.Sprintf(", %.3g on average where it was certified", s.MeanPasses)
	}
	if s.Order == MembersOrder {
		when += ", in the order of the ensemble's members"
	}
	when += fmt.Sprintf(". With confidence %s, at most %s of the inputs are then decided otherwise than by all passes", percent(c.Confidence),
		percent(c.Disagreement))
	if c.Inputs > 0 {
		when += fmt.Sprintf(" (%s of %s were)", count(c.Disagreements), count(c.Inputs))
	}
	released := c.Released.explain("the inputs that all passes defer")
	if c.CriticalReleased != nil {
		released += "; " + c.CriticalReleased.explain("the critical ones among them")
	}
	drawn := "for inputs drawn as those it was certified on."
	if c.Groups > 0 {
		drawn = fmt.Sprintf("for groups of inputs drawn as the %d that it was certified on.", c.Groups)
	}
	points := []string{when + ".", fmt.Sprintf("Early stopping releases %s; %s", released, drawn)}
	if s.HalvesDiffer != nil {
		points = append(points, fmt.Sprintf("Random halves of the passes disagree on %s of the inputs: so much varies by sampling alone.",
			percent(*s.HalvesDiffer)))
	}
	return points
}

// explain explains the share among some inputs that all passes defer.
func (r ReleasedShare) explain(inputs string) string {
	if r.AtMost == 1 {
		return "an unknown share of " + inputs
	}
	s := fmt.Sprintf("at most %s of %s", percent(r.AtMost), inputs)
	if r.Deferred > 0 {
		s += fmt.Sprintf(" (%s of %s)", count(r.Released), count(r.Deferred))
	}
	return s
}
