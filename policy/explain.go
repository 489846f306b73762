package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Summary returns what a person decides by: when an input is deferred, and what is expected of that.
func (p *Policy) Summary() string {
	if p.Observes() {
		return fmt.Sprintf("Policy %s observes: every input is answered, none is deferred.", p.Name)
	}
	return fmt.Sprintf("Policy %s: defer when %s. %s", p.Name, p.Condition(), p.expectation())
}

// Explain returns what the summary rests on and what else the policy means, a point each, those that
// matter most first. Drift is explained by package drift, which knows its windows.
func (p *Policy) Explain() []string {
	var points []string
	add := func(further ...string) {
		for _, point := range further {
			if point != "" {
				points = append(points, point)
			}
		}
	}
	if p.Calibration != nil {
		add(p.explainCalibration()...)
	}
	add(p.explainClasses(), p.explainScope(), p.explainLines(), p.explainAudit())
	if a := p.Answers; a != nil {
		add(fmt.Sprintf("It answers the alarm %s of its model (%s: %s).", a.Alarm, a.By, a.Reason))
	}
	add(p.explainEarlyStopping()...)
	add(p.explainGuard(), p.explainRisk(), p.explainPasses(), p.explainIdentical(), p.explainWeights(), p.explainVariance(), p.explainLog())
	return points
}

// Condition says which inputs the thresholds defer, as a clause: "the risk is above 5.7%".
func (p *Policy) Condition() string {
	limit := func(r Rule) string { return r.Score.Above(r.Threshold) }
	switch p.Gate {
	case Never:
		return limit(p.Primary)
	case Always:
		return limit(p.Fallback)
	}
	return fmt.Sprintf("%s or, where the skewness of a critical class is above %v so that its C_k is not trusted, when %s",
		limit(p.Primary), p.ReliabilityThreshold, limit(p.Fallback))
}

// expectation says what the calibration expects: the critical misses and the reviews.
func (p *Policy) expectation() string {
	c := p.Calibration
	switch {
	case c == nil:
		return "How many critical inputs this misses is not known: the policy was not calibrated."
	case p.ChangedSinceCalibration():
		return "How many critical inputs this misses is not known: the policy was changed after its calibration."
	case c.Unsupported != "":
		return c.Unsupported + " The policy was written all the same."
	case c.ExpectedCriticalMissRate == nil && c.Certificate != nil:
		return fmt.Sprintf("Certified with %s confidence: %s.", percent(c.Certificate.Confidence), c.Certificate.Limits()[0].explain())
	case c.ExpectedCriticalMissRate == nil:
		return "How many critical inputs this misses is not known: its calibration does not say."
	}
	expected := c.ExpectedCriticalMissRate
	missed := fmt.Sprintf("Expected: %s of critical inputs missed", percent(expected.Value))
	if expected.Known() {
		missed += fmt.Sprintf(" (95%%: %s to %s)", hundredths(expected.Low), hundredths(expected.High))
	}
	if c.ExpectedCoverage == nil {
		return missed + "."
	}
	return fmt.Sprintf("%s with %.0f reviews per 1,000 inputs.", missed, 1000*(1-c.ExpectedCoverage.Value))
}

func (p *Policy) explainClasses() string {
	critical := len(p.Critical)
	switch {
	case critical == 0:
		return fmt.Sprintf("None of the %s classes is critical: no miss can be counted.", count(len(p.Classes)))
	case len(p.Safe) == 0:
		return fmt.Sprintf("Critical (%s of %s classes): %s. None is safe.", count(critical), count(len(p.Classes)), p.list(p.Critical))
	}
	s := fmt.Sprintf("Critical, not to be missed (%s of %s classes): %s. Safe: %s", count(critical), count(len(p.Classes)), p.list(p.Critical),
		p.list(p.Safe))
	if rest := len(p.Classes) - critical - len(p.Safe); rest > 0 {
		s += fmt.Sprintf(". Neither: %s", count(rest))
	}
	return s + "."
}

func (p *Policy) explainScope() string {
	unless := ""
	if p.Guard != nil {
		unless = ", unless they are unfamiliar"
	}
	switch {
	case p.Observes():
		return ""
	case p.Scope == PredictedSafe:
		return fmt.Sprintf("Inputs called critical are never deferred%s: they are treated as critical anyway, false calls too.", unless)
	case p.comparesRisk():
		return fmt.Sprintf("Inputs called critical have no risk, so that they are not deferred where the risk decides%s.", unless)
	}
	return "Any input can be deferred, whatever class is predicted."
}

func (p *Policy) explainGuard() string {
	if p.Guard == nil || p.Observes() {
		return ""
	}
	return fmt.Sprintf("Inputs are unlike those of the calibration where %s: they are deferred, even if they are called "+
		"critical. This finds some unfamiliar inputs, not all.", p.Guard.Score.Above(p.Guard.Threshold))
}

func (p *Policy) explainRisk() string {
	if p.Risk == nil {
		return ""
	}
	return fmt.Sprintf("The risk is the calibrated probability that an input called safe is truly critical, for traffic of which %s is "+
		"critical. With another share it is off.", percent(p.Risk.Prevalence))
}

func (p *Policy) explainVariance() string {
	if p.Variance != Population || p.Kind == Dirichlet {
		return ""
	}
	return "Variances are divided by the number of passes, not by one less: thresholds set with the sample variance do not carry over."
}

func (p *Policy) explainPasses() string {
	answered := "when its caller says that it is complete"
	if p.ExpectedPasses > 0 {
		answered = fmt.Sprintf("at %s", count(p.ExpectedPasses))
	}
	switch p.Kind {
	case Dirichlet:
		return "An input is one row of positive Dirichlet concentrations, from a model that predicts its own uncertainty."
	case Logits:
		return fmt.Sprintf("An input needs %s or more passes of logits, whose softmax is computed here, and is answered %s.",
			count(p.FewestPasses), answered)
	}
	return fmt.Sprintf("An input needs %s or more passes of probabilities, each summing to 1 within %v, and is answered %s.",
		count(p.FewestPasses), p.SumTolerance, answered)
}

func (p *Policy) explainIdentical() string {
	if p.Observes() || p.Kind == Dirichlet {
		return ""
	}
	s := "Inputs whose passes hardly differ " + p.Degenerate.explain()
	if p.Saturated != p.Degenerate {
		s += "; those whose passes are identical and one-hot " + p.Saturated.explain()
	}
	return s + ". Their uncertainty is absent rather than zero: dropout may be off."
}

func (p *Policy) explainWeights() string {
	if len(p.PairWeights) == 0 {
		return ""
	}
	var weights []string
	for _, w := range p.PairWeights {
		weights = append(weights, fmt.Sprintf("%s with %s %v times", p.Classes[w.Safe], p.Classes[w.Critical], w.Weight))
	}
	return fmt.Sprintf("In the confusion between safe and critical classes these pairs count otherwise than once: %s.", listed(weights))
}

// explain says what becomes of inputs, as a verb.
func (h Handling) explain() string {
	switch h {
	case HandleRetain:
		return "are retained"
	case HandleByScore:
		return "are decided like any other"
	}
	return "are deferred"
}

// maxListed bounds the characters of a list in a sentence.
const maxListed = 160

// list returns the classes by name, cut where the list is long.
func (p *Policy) list(classes []int) string {
	names := make([]string, len(classes))
	for i, k := range classes {
		names[i] = p.Classes[k]
	}
	return listed(names)
}

// listed joins names, as many as fit into a sentence and at least one.
func listed(names []string) string {
	shown, length := 0, 0
	for shown < len(names) && (shown == 0 || length+len(names[shown]) <= maxListed) {
		length += len(names[shown]) + len(", ")
		shown++
	}
	if left := len(names) - shown; left > 0 {
		names = append(names[:shown:shown], count(left)+" more")
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// count returns a number with commas between thousands.
func count(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}
