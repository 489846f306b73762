package policy

import (
	"fmt"
	"strings"
)

// Explain returns what the policy means, one sentence each.
func (p *Policy) Explain() []string {
	e := explainer{p}
	sentences := []string{e.classes(), e.passes(), e.gate(), e.thresholds()}
	if !p.Observes() {
		sentences = append(sentences, e.scope())
		if p.Guard != nil {
			sentences = append(sentences, e.guard())
		}
		if p.Kind != Dirichlet {
			sentences = append(sentences, e.identical())
		}
	}
	if p.Risk != nil {
		sentences = append(sentences, e.risk())
	}
	if len(p.PairWeights) > 0 {
		sentences = append(sentences, e.weights())
	}
	if p.Variance == Population && p.Kind != Dirichlet {
		sentences = append(sentences, "Variances are divided by the number of passes, not by one less: "+
			"thresholds set with the sample variance do not carry over.")
	}
	if p.Calibration != nil {
		sentences = append(sentences, e.calibration()...)
	}
	if lines := p.LinesInForce(); len(lines) > 0 {
		sentences = append(sentences, explainLines(lines))
	}
	if p.Audit != nil {
		sentences = append(sentences, e.audit()...)
	}
	if a := p.Answers; a != nil {
		sentences = append(sentences, fmt.Sprintf("It answers the alarm %s of its model (%s: %s).", a.Alarm, a.By, a.Reason))
	}
	if p.EarlyStopping != nil {
		sentences = append(sentences, e.earlyStopping()...)
	}
	return sentences
}

// explainer puts a policy into words.
type explainer struct{ *Policy }

func (e explainer) classes() string {
	s := fmt.Sprintf("Of %d classes, ", len(e.Classes))
	switch len(e.Critical) {
	case 0:
		return s + "none is critical, so the scores that look at critical classes alone are not computed."
	case len(e.Classes):
		return s + "all are critical."
	}
	s += fmt.Sprintf("%s must not be missed (critical) and %s safe", e.list(e.Critical), e.listOr(e.Safe, "none is"))
	if rest := len(e.Classes) - len(e.Critical) - len(e.Safe); rest > 0 {
		s += fmt.Sprintf("; neither: %d", rest)
	}
	return s + "."
}

func (e explainer) passes() string {
	switch e.Kind {
	case Dirichlet:
		return "An input is one row of positive Dirichlet concentrations, from a model that predicts its own uncertainty."
	case Logits:
		return fmt.Sprintf("An input is at least %d passes of logits, whose softmax is computed here, %s.",
			e.FewestPasses, e.expected())
	}
	return fmt.Sprintf("An input is at least %d passes of probabilities, each summing to 1 within %v, %s.",
		e.FewestPasses, e.SumTolerance, e.expected())
}

func (e explainer) expected() string {
	if e.ExpectedPasses == 0 {
		return "and is answered when its caller says that it is complete"
	}
	return fmt.Sprintf("and is answered when it has %d", e.ExpectedPasses)
}

func (e explainer) gate() string {
	primary, fallback := e.Primary.Score.explain(), e.Fallback.Score.explain()
	switch e.Gate {
	case Never:
		return fmt.Sprintf("The score that decides is always %s.", primary)
	case Always:
		return fmt.Sprintf("The score that decides is always the fallback, %s.", fallback)
	}
	return fmt.Sprintf("While the skewness of every critical class is at most %v, the score that decides is %s; if that of any "+
		"is above, its C_k is not trusted and %s decides in its place.", e.ReliabilityThreshold, primary, fallback)
}

func (e explainer) thresholds() string {
	if e.Observes() {
		return "No thresholds are given, so the policy observes: every input is answered with observe, the metrics " +
			"run, and nothing is deferred."
	}
	var limits []string
	for _, r := range e.reachable() {
		limits = append(limits, fmt.Sprintf("%s is above %v%s", r.Score, r.Threshold, r.Score.unit()))
	}
	s := "A person sees an input (defer) when " + limits[0]
	if len(limits) == 2 {
		s = fmt.Sprintf("A person sees an input (defer) when %s, or, where the fallback decides, when %s",
			limits[0], limits[1])
	}
	return s + "; at or under its threshold it is retained."
}

func (e explainer) scope() string {
	unless := ""
	if e.Guard != nil {
		unless = " unless it is unfamiliar"
	}
	switch {
	case e.Scope == PredictedSafe:
		return fmt.Sprintf("An input that is predicted critical is never deferred%s, since it is treated as critical anyway.", unless)
	case e.comparesRisk():
		return fmt.Sprintf("An input that is predicted critical has no risk: where risk decides, it is not deferred%s.", unless)
	}
	return "Any input can be deferred, whatever class is predicted."
}

func (e explainer) guard() string {
	return fmt.Sprintf("An input whose %s is above %v%s is unlike those of the calibration, and deferred as unfamiliar, whatever "+
		"class is predicted; this finds some of them, not all.", e.Guard.Score, e.Guard.Threshold, e.Guard.Score.unit())
}

func (e explainer) risk() string {
	return fmt.Sprintf("The probability that an input called safe is truly critical is computed from %s, for traffic of "+
		"which %s is critical; with another share, the probability is off.", PCritical, percent(e.Risk.Prevalence))
}

func (e explainer) identical() string {
	s := fmt.Sprintf("An input whose passes hardly differ %s: its uncertainty is absent rather than zero, and "+
		"dropout may be off", e.Degenerate.explain())
	if e.Saturated == e.Degenerate {
		return s + "; the same holds where the passes are one-hot."
	}
	return fmt.Sprintf("%s; where the passes are one-hot, it %s.", s, e.Saturated.explain())
}

func (e explainer) weights() string {
	var weights []string
	for i, w := range e.PairWeights {
		if i == maxListed {
			weights = append(weights, fmt.Sprintf("%d more pairs are weighted", len(e.PairWeights)-maxListed))
			break
		}
		weights = append(weights,
			fmt.Sprintf("%s with %s counts %v times", e.Classes[w.Safe], e.Classes[w.Critical], w.Weight))
	}
	return fmt.Sprintf("In cbec, confusion of %s; all other pairs count once.", strings.Join(weights, ", "))
}

func (h Handling) explain() string {
	switch h {
	case HandleRetain:
		return "is retained"
	case HandleByScore:
		return "is decided by its score like any other"
	}
	return "is deferred"
}

// explain returns the score's name with its meaning.
func (s Score) explain() string {
	meaning := map[Score]string{
		Entropy:   "predictive entropy",
		MI:        "mutual information, over all classes",
		MaxProb:   "one minus the largest mean probability",
		EUVar:     "the variances of all classes together",
		VarCrit:   "the largest variance of a critical class",
		EUVarCrit: "the variances of the critical classes together",
		OvAMI:     "the mutual information of each critical class against the rest, together",
		CCritSum:  "the model's ignorance C_k about the critical classes together",
		CCritMax:  "the model's ignorance C_k about the critical class where it is largest",
		CBEC:      "how far the model confuses safe with critical classes",
		PCritical: "the mean probability of the critical classes together",
		RiskScore: "the calibrated probability that an input called safe is truly critical",
	}[s]
	return fmt.Sprintf("%s (%s)", s, meaning)
}

// unit returns the unit of the score, after a space.
func (s Score) unit() string {
	switch s {
	case MaxProb, EUVar, VarCrit, EUVarCrit, PCritical, RiskScore:
		return ""
	}
	return " nats"
}

// maxListed bounds what a sentence lists.
const maxListed = 10

// list returns the classes by name, cut where the list is long.
func (p *Policy) list(classes []int) string {
	var names []string
	for i, k := range classes {
		if i == maxListed {
			names = append(names, fmt.Sprintf("%d more", len(classes)-maxListed))
			break
		}
		names = append(names, p.Classes[k])
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// listOr returns the list with its verb, or none if it is empty.
func (p *Policy) listOr(classes []int, none string) string {
	switch len(classes) {
	case 0:
		return none
	case 1:
		return p.list(classes) + " is"
	}
	return p.list(classes) + " are"
}

// earlyStopping says when inputs are answered early, and what is guaranteed of that.
func (e explainer) earlyStopping() []string {
	s, c := e.EarlyStopping, e.EarlyStopping.Certificate
	if e.learnedForAnother() {
		return []string{"Its early-stopping rule was learned for another policy than this is now, and is not in force: all " +
			"passes decide."}
	}
	order := "in any order"
	if s.Order == MembersOrder {
		order = "in the order of the ensemble's members"
	}
	when := fmt.Sprintf("For clients that accept it, an input is answered before its %d passes, which come %s, when its decision is certain enough, "+
		"after %d passes or more", s.Rule.Passes, order, s.Rule.Fewest)
	if s.MeanPasses > 0 {
		when += fmt.Sprintf("; where it was certified, after %.3g on average", s.MeanPasses)
	}
	certified := fmt.Sprintf("With confidence %v, at most %s of the inputs are then decided otherwise than by all passes", c.Confidence,
		percent(c.Disagreement))
	if c.Inputs > 0 {
		certified += fmt.Sprintf(" (%d of %d were)", c.Disagreements, c.Inputs)
	}
	certified += "; " + c.Released.explain("those that all passes defer")
	if c.CriticalReleased != nil {
		certified += ", and " + c.CriticalReleased.explain("the critical ones among them")
	}
	drawn := ", for inputs drawn as those it was certified on."
	if c.Groups > 0 {
		drawn = fmt.Sprintf(", for groups of inputs drawn as the %d that it was certified on.", c.Groups)
	}
	sentences := []string{when + ".", certified + drawn}
	if s.HalvesDiffer != nil {
		sentences = append(sentences, fmt.Sprintf("Random halves of the passes disagree on %s of the inputs: this much a decision "+
			"varies by sampling alone.", percent(*s.HalvesDiffer)))
	}
	return sentences
}

// explain explains the share among some inputs that all passes defer.
func (r ReleasedShare) explain(of string) string {
	if r.AtMost == 1 {
		return fmt.Sprintf("nothing is certified of how many of %s are retained", of)
	}
	s := fmt.Sprintf("with the same confidence, at most %s of %s are retained", percent(r.AtMost), of)
	if r.Deferred > 0 {
		s += fmt.Sprintf(" (%d of %d were)", r.Released, r.Deferred)
	}
	return s
}
