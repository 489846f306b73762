package policy

import (
	"fmt"
	"strings"
)

// Explain is what the policy means, one sentence each.
func (p *Policy) Explain() []string {
	sentences := []string{
		p.explainClasses(),
		p.explainPasses(),
		p.explainGate(),
		p.explainThresholds(),
	}
	if !p.Observes() {
		sentences = append(sentences, p.explainScope())
		if p.Kind != Dirichlet {
			sentences = append(sentences, p.explainIdentical())
		}
	}
	if len(p.PairWeights) > 0 {
		sentences = append(sentences, p.explainWeights())
	}
	if p.Variance == Population && p.Kind != Dirichlet {
		sentences = append(sentences, "Variances are divided by the number of passes, not by one less: "+
			"thresholds set with the sample variance do not carry over.")
	}
	if p.Calibration != nil {
		sentences = append(sentences, p.explainCalibration()...)
	}
	if p.Settle != nil {
		sentences = append(sentences, p.explainSettle()...)
	}
	return sentences
}

func (p *Policy) explainClasses() string {
	s := fmt.Sprintf("Of %d classes, ", len(p.Classes))
	switch len(p.Critical) {
	case 0:
		return s + "none is critical, so the scores that look at critical classes alone are not computed."
	case len(p.Classes):
		return s + "all are critical."
	}
	s += fmt.Sprintf("%s must not be missed (critical) and %s safe", p.list(p.Critical), p.listOr(p.Safe, "none is"))
	if rest := len(p.Classes) - len(p.Critical) - len(p.Safe); rest > 0 {
		s += fmt.Sprintf("; neither: %d", rest)
	}
	return s + "."
}

func (p *Policy) explainPasses() string {
	switch p.Kind {
	case Dirichlet:
		return "An input is one row of positive Dirichlet concentrations, from a model that predicts its own uncertainty."
	case Logits:
		return fmt.Sprintf("An input is at least %d passes of logits, whose softmax is computed here, %s.",
			p.FewestPasses, p.explainExpected())
	}
	return fmt.Sprintf("An input is at least %d passes of probabilities, each summing to 1 within %v, %s.",
		p.FewestPasses, p.SumTolerance, p.explainExpected())
}

func (p *Policy) explainExpected() string {
	if p.ExpectedPasses == 0 {
		return "and is answered when its caller says that it is complete"
	}
	return fmt.Sprintf("and is answered when it has %d", p.ExpectedPasses)
}

func (p *Policy) explainGate() string {
	primary, fallback := p.Primary.Score.explain(), p.Fallback.Score.explain()
	switch p.Gate {
	case Never:
		return fmt.Sprintf("The score that decides is always %s.", primary)
	case Always:
		return fmt.Sprintf("The score that decides is always the fallback, %s.", fallback)
	}
	whose := "the skewness of every critical class"
	otherwise := "if that of any is above, its C_k is not trusted"
	if p.Gate == DecidingClass {
		whose = "the skewness of the critical class with the largest C_k"
		otherwise = "if it is above, that C_k is not trusted"
	}
	return fmt.Sprintf("While %s is at most %v, the score that decides is %s; %s and %s decides in its place.",
		whose, p.ReliabilityThreshold, primary, otherwise, fallback)
}

func (p *Policy) explainThresholds() string {
	if p.Observes() {
		return "No thresholds are given, so the policy observes: every input is answered with observe, the metrics " +
			"run, and nothing is deferred."
	}
	var limits []string
	for _, r := range p.reachable() {
		limits = append(limits, fmt.Sprintf("%s is above %v%s", r.Score, r.Threshold, r.Score.unit()))
	}
	s := "A person sees an input (defer) when " + limits[0]
	if len(limits) == 2 {
		s = fmt.Sprintf("A person sees an input (defer) when %s, or, where the fallback decides, when %s",
			limits[0], limits[1])
	}
	return s + "; at or under its threshold it is retained."
}

func (p *Policy) explainScope() string {
	if p.Scope == PredictedSafe {
		return "An input that is predicted critical is never deferred, since it is treated as critical anyway."
	}
	return "Any input can be deferred, whatever class is predicted."
}

func (p *Policy) explainIdentical() string {
	s := fmt.Sprintf("An input whose passes are all identical %s: its uncertainty is absent rather than zero, and "+
		"dropout may be off", p.Degenerate.explain())
	if p.Saturated == p.Degenerate {
		return s + "; the same holds where the identical passes are one-hot."
	}
	return fmt.Sprintf("%s; where the identical passes are one-hot, it %s.", s, p.Saturated.explain())
}

func (p *Policy) explainWeights() string {
	var weights []string
	for i, w := range p.PairWeights {
		if i == maxListed {
			weights = append(weights, fmt.Sprintf("%d more pairs are weighted", len(p.PairWeights)-maxListed))
			break
		}
		weights = append(weights,
			fmt.Sprintf("%s with %s counts %v times", p.Classes[w.Safe], p.Classes[w.Critical], w.Weight))
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

// explain is the score's name with its meaning.
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
	}[s]
	return fmt.Sprintf("%s (%s)", s, meaning)
}

// unit of the score, with a space before it.
func (s Score) unit() string {
	switch s {
	case MaxProb, EUVar, VarCrit, EUVarCrit:
		return ""
	}
	return " nats"
}

// maxListed bounds what a sentence lists.
const maxListed = 10

// list of the classes by name, cut where it is long.
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

// listOr is the list and its verb, or what to say of an empty one.
func (p *Policy) listOr(classes []int, none string) string {
	switch len(classes) {
	case 0:
		return none
	case 1:
		return p.list(classes) + " is"
	}
	return p.list(classes) + " are"
}
