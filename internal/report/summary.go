package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// subject is what was evaluated.
func (b *builder) subject() string {
	s := b.r.Summary
	text := fmt.Sprintf("%s, %s each, %s", noun(s.Inputs, "input", "inputs"), noun(s.Passes, "pass", "passes"),
		noun(s.Classes, "class", "classes"))
	var critical []string
	for _, c := range b.r.Classes {
		if c.Critical {
			critical = append(critical, c.Name)
		}
	}
	switch most := 5; {
	case len(critical) == 0:
		return text + ", none declared critical"
	case len(critical) > most:
		return text + fmt.Sprintf(", %s of them critical", count(len(critical)))
	}
	return text + "; critical: " + list(critical)
}

// lead is the summary in plain words.
func (b *builder) lead() []string {
	s := b.r.Summary
	lead := []string{b.unaided()}
	if len(b.r.Policies) > 0 {
		lead = append(lead, b.aided(policy.AllInputs))
	}
	if row := b.best(policy.PredictedSafe, b.risk); row != nil && b.byRisk {
		lead = append(lead, fmt.Sprintf("When people review only inputs that the model calls safe, %s leaves %s missed; "+
			"the accuracy of what is retained is then %s.", plain(row.Name), missedOf(row.At), percent(row.Accuracy)))
	}
	if b.r.Policy != nil {
		lead = append(lead, b.policySays())
	}
	if b.byRisk {
		lead = append(lead, fmt.Sprintf("In %s of the inputs the contribution of some critical class is too skewed to be taken "+
			"at face value (skewness over %s).", percent(s.FallbackShare), trim(b.r.Source.Reliability)))
	}
	return lead
}

// unaided is how the model does without deferral.
func (b *builder) unaided() string {
	s := b.r.Summary
	text := fmt.Sprintf("The model is right on %s of %s (%s).", count(b.correct()), noun(s.Inputs, "input", "inputs"),
		percent(s.Accuracy))
	if b.byRisk {
		text += fmt.Sprintf(" Without deferral it calls %s of %s not critical (%s).", count(s.Missed),
			noun(s.Critical, "critical input", "critical inputs"), percent(s.CriticalFNR))
	} else if b.anyCritical() {
		text += " No input of this recording belongs to a critical class."
	} else {
		text += " No class is declared critical, so that deferral is judged by errors of any kind."
	}
	return text
}

// aided is how the best score does at the coverage, and mutual information.
func (b *builder) aided(scope policy.Scope) string {
	best, of := b.best(scope, b.risk), b.row(scope, mi)
	if best == nil {
		return ""
	}
	text := fmt.Sprintf("When people review %s of the inputs, those that %s puts first, ",
		roundPercent(1-b.r.Source.Coverage), plain(best.Name))
	if !b.byRisk {
		text += fmt.Sprintf("%s of the inputs that the model decides are right", percent(best.Accuracy))
		if of != nil && of != best {
			text += fmt.Sprintf("; ranked by mutual information alone, %s", percent(of.Accuracy))
		}
		return text + "." + b.flattered(best)
	}
	text += fmt.Sprintf("%s of the critical inputs retained are missed", missedOf(best.At))
	if best.CriticalRetained > 0 { // of resamples it would be a point where nothing is missed
		low, high := binomial.Interval(best.CriticalMissed, best.CriticalRetained, 0.95)
		text += fmt.Sprintf(", exact 95%% interval %s", percentInterval(low, high))
	}
	text += fmt.Sprintf(", and %s of all critical inputs are seen by a person", percent(best.CriticalDeferredShare))
	if of != nil && of != best {
		text += fmt.Sprintf("; ranked by mutual information alone, %s are missed", missedOf(of.At))
	}
	return text + "." + b.flattered(best)
}

func (b *builder) flattered(best *eval.Row) string {
	return fmt.Sprintf(" (On these same inputs %s is the best of the scores, which flatters it; ckd calibrate chooses and judges "+
		"on different ones.)", plain(best.Name))
}

// tiles are the numbers that matter.
func (b *builder) tiles() []tile {
	s := b.r.Summary
	tiles := []tile{{Value: percent(s.Accuracy), Label: "accuracy without deferral",
		Detail: count(b.correct()) + " of " + noun(s.Inputs, "input", "inputs")}}
	best, of := b.best(policy.AllInputs, b.risk), b.row(policy.AllInputs, mi)
	at := " at " + roundPercent(b.r.Source.Coverage) + " coverage"
	if !b.byRisk {
		if of != nil {
			tiles = append(tiles, tile{Value: percent(of.Accuracy), Label: "accuracy" + at + ", by mutual information alone",
				Detail: noun(of.Retained, "input", "inputs") + " retained"})
		}
		if best != nil && best != of {
			tiles = append(tiles, tile{Value: percent(best.Accuracy), Label: "accuracy" + at + ", by " + plain(best.Name),
				Detail: noun(best.Retained, "input", "inputs") + " retained", Strong: true})
		}
		return tiles
	}
	tiles = append(tiles, tile{Value: percent(s.CriticalFNR), Label: "critical inputs missed without deferral",
		Detail: count(s.Missed) + " of " + count(s.Critical)})
	missed := func(row *eval.Row, by string, strong bool) {
		if row != nil {
			tiles = append(tiles, tile{Value: percent(row.CriticalFNR), Label: "missed" + at + ", by " + by, Strong: strong,
				Detail: count(row.CriticalMissed) + " of " + count(row.CriticalRetained) + " retained critical"})
		}
	}
	if of != best {
		missed(of, "mutual information alone", false)
	}
	switch p := b.r.Policy; {
	case best == nil:
	case best == of:
		missed(best, "mutual information, the best score", p == nil)
	default:
		missed(best, best.Name+", the best score", p == nil)
	}
	if p := b.r.Policy; p != nil && !p.Observes {
		tiles = append(tiles, tile{Value: percent(p.CriticalFNR), Label: "missed by the policy, which defers " +
			percent(1-p.Coverage), Detail: count(p.CriticalMissed) + " of " + count(p.CriticalRetained) + " retained critical",
			Strong: true})
	} else if row := b.best(policy.PredictedSafe, b.risk); row != nil {
		missed(row, plain(row.Name)+", reviewing only what is called safe", false)
	}
	return tiles
}

// correct predictions of the recording.
func (b *builder) correct() int {
	n := 0
	for i, label := range b.labels {
		if b.t.Predicted[i] == label {
			n++
		}
	}
	return n
}

func (b *builder) anyCritical() bool {
	for _, c := range b.r.Classes {
		if c.Critical {
			return true
		}
	}
	return false
}

// policySays is how the given policy does.
func (b *builder) policySays() string {
	p := b.r.Policy
	if p.Observes {
		return "The policy for model " + p.Model + " observes: it has no thresholds, defers nothing, and does as the model alone."
	}
	text := fmt.Sprintf("The policy for model %s (scope %s) retains %s of %s (%s) and defers the rest.", p.Model, p.Scope,
		count(p.Retained), noun(b.r.Summary.Inputs, "input", "inputs"), percent(p.Coverage))
	if b.byRisk {
		text += fmt.Sprintf(" Of %s it misses %s: %s, exact 95%% interval %s.",
			noun(p.CriticalRetained, "retained critical input", "retained critical inputs"), count(p.CriticalMissed),
			percent(p.CriticalFNR), percentInterval(p.CriticalFNRInterval[0], p.CriticalFNRInterval[1]))
	}
	if c := p.Certificate; c != nil {
		text += " " + certificateSays(c)
	}
	return text
}

// certificateSays is whether a certificate held.
func certificateSays(c *eval.CertificateCheck) string {
	bounded := "a risk"
	switch policy.CertificateKind(c.Kind) {
	case policy.LearnThenTest:
		bounded = "the critical FNR among retained inputs"
	case policy.ConformalRiskControl:
		bounded = "the share of all critical inputs that are retained and missed"
	}
	target := roundPercent(c.Target)
	text := fmt.Sprintf("Its certificate (%s) bounds %s by %s", c.Kind, bounded, target)
	if c.Confidence > 0 {
		text += " with " + roundPercent(c.Confidence) + " confidence"
	}
	observed, p := percent(c.Observed), short(c.PValue)
	switch {
	case c.Held == nil:
		text += ". Here is nothing to hold it against: it bounds a share of no inputs."
	case !*c.Held:
		text += fmt.Sprintf(". It did not hold here (p %s): %s was observed.", p, observed)
	case c.Observed > c.Target:
		text += fmt.Sprintf(". Here %s was observed: above the target, which chance allows (p %s).", observed, p)
	default:
		text += fmt.Sprintf(". It held here (p %s): %s was observed.", p, observed)
	}
	if c.Held != nil {
		text += fmt.Sprintf(" p is the chance of so many misses or more, were the true share %s.", target)
	}
	if len(c.Differs) > 0 {
		text += " Mind: " + strings.Join(c.Differs, "; ") + "."
	}
	return text
}

// policySection is the given policy at its own thresholds.
func (b *builder) policySection() section {
	p := b.r.Policy
	s := section{ID: "policy", Title: "The policy at its own thresholds", Intro: b.policySays()}
	t := &table{Caption: "Operating point of the policy for model " + p.Model, Head: []string{"figure", "value"}, Text: 2}
	add := func(name, value string) { t.Rows = append(t.Rows, []string{name, value}) }
	add("policy hash", p.Hash)
	add("scope", string(p.Scope))
	add("retained", fmt.Sprintf("%s of %s (%s)", count(p.Retained), count(b.r.Summary.Inputs), percent(p.Coverage)))
	add("decided by the fallback score", percent(p.ByFallback))
	add("accuracy of what is retained", percent(p.Accuracy))
	add("macro-F1 of what is retained", number(p.MacroF1))
	if b.byRisk {
		add("critical FNR: missed of retained critical", missedOf(p.At))
		add("its exact 95% interval (Clopper-Pearson)", percentInterval(p.CriticalFNRInterval[0], p.CriticalFNRInterval[1]))
		add("retained and missed, of all critical inputs", percent(p.MissShare))
		add("its exact 95% interval (Clopper-Pearson)", percentInterval(p.MissShareInterval[0], p.MissShareInterval[1]))
		add("critical error", percent(p.CriticalError))
		add("critical inputs deferred", percent(p.CriticalDeferredShare))
	}
	if c := p.Certificate; c != nil {
		add("certificate", c.Kind)
		add("its target", percent(c.Target))
		if c.Confidence > 0 {
			add("its confidence", percent(c.Confidence))
		}
		if c.Held == nil {
			add("held", "nothing to hold it against")
		} else {
			add("observed here", percent(c.Observed))
			add("held (p at least 0.05)", map[bool]string{true: "yes", false: "no"}[*c.Held])
			add("p: chance of so many misses or more, were the true share the target", short(c.PValue))
		}
	}
	s.Parts = []part{{Table: t}}
	return s
}

// trim is a number as it was typed.
func trim(x float64) string {
	if x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%g", x)
}
