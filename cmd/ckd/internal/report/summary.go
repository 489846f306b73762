package report

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/policy"
)

// subject says in one line what was evaluated.
func subject(e *evaluation) string {
	s := e.report.Summary
	text := fmt.Sprintf("%s, %s each, %s", document.Noun(s.Inputs, "input"), document.Noun(s.Passes, "pass"),
		document.Noun(s.Classes, "class"))
	var critical []string
	for _, c := range e.report.Classes {
		if c.Critical {
			critical = append(critical, c.Name)
		}
	}
	switch most := 5; {
	case len(critical) == 0:
		return text + ", none declared critical"
	case len(critical) > most:
		return text + fmt.Sprintf(", %s of them critical", document.Count(len(critical)))
	}
	return text + "; critical: " + document.List(critical)
}

// lead summarises the report in plain words.
func lead(e *evaluation) []string {
	s := e.report.Summary
	lead := []string{unaided(e)}
	if len(e.report.Policies) > 0 {
		lead = append(lead, aided(e, policy.AllInputs))
	}
	if row := e.best(policy.PredictedSafe, e.risk); row != nil && e.byRisk {
		lead = append(lead, fmt.Sprintf("When people review only inputs that the model calls safe, %s leaves %s missed; "+
			"the accuracy of what is retained is then %s.", plain(row.Name), missedOf(row.At), document.Percent(row.Accuracy)))
	}
	if e.report.Policy != nil {
		lead = append(lead, policySays(e))
	}
	if e.byRisk {
		lead = append(lead, fmt.Sprintf("In %s of the inputs the contribution of some critical class is too skewed to be taken "+
			"at face value (skewness over %s).", document.Percent(s.FallbackShare), document.Plain(e.report.Source.Reliability)))
	}
	return lead
}

// unaided says how the model does without deferral.
func unaided(e *evaluation) string {
	s := e.report.Summary
	text := fmt.Sprintf("The model is right on %s of %s (%s).", document.Count(e.correct()), document.Noun(s.Inputs, "input"),
		document.Percent(s.Accuracy))
	if e.byRisk {
		text += fmt.Sprintf(" Without deferral it calls %s of %s not critical (%s).", document.Count(s.Missed),
			document.Noun(s.Critical, "critical input"), document.Percent(s.CriticalFNR))
	} else if e.classes.anyCritical {
		text += " No input of this recording belongs to a critical class."
	} else {
		text += " No class is declared critical, so that deferral is judged by errors of any kind."
	}
	return text
}

// aided says how the best score and mutual information do at the coverage of the report.
func aided(e *evaluation, scope policy.Scope) string {
	best, of := e.best(scope, e.risk), e.row(scope, mi)
	if best == nil {
		return ""
	}
	text := fmt.Sprintf("When people review %s of the inputs, those that %s puts first, ",
		document.RoundPercent(1-e.report.Source.Coverage), plain(best.Name))
	if !e.byRisk {
		text += fmt.Sprintf("%s of the inputs that the model decides are right", document.Percent(best.Accuracy))
		if of != nil && of != best {
			text += fmt.Sprintf("; ranked by mutual information alone, %s", document.Percent(of.Accuracy))
		}
		return text + "." + flattered(e, best)
	}
	text += fmt.Sprintf("%s of the critical inputs retained are missed", missedOf(best.At))
	if best.CriticalRetained > 0 { // of resamples it would be a point where nothing is missed
		low, high := binomial.Interval(best.CriticalMissed, best.CriticalRetained, 0.95)
		text += fmt.Sprintf(", exact 95%% interval %s", document.PercentRange(low, high))
	}
	text += fmt.Sprintf(", and %s of all critical inputs are seen by a person", document.Percent(best.CriticalDeferredShare))
	if of != nil && of != best {
		text += fmt.Sprintf("; ranked by mutual information alone, %s are missed", missedOf(of.At))
	}
	return text + "." + flattered(e, best)
}

func flattered(e *evaluation, best *eval.Row) string {
	return fmt.Sprintf(" (On these same inputs %s is the best of the scores, which flatters it; ckd calibrate chooses and judges "+
		"on different ones.)", plain(best.Name))
}

// tiles returns the numbers that matter.
func tiles(e *evaluation) []document.Tile {
	s := e.report.Summary
	tiles := []document.Tile{{Value: document.Percent(s.Accuracy), Label: "accuracy without deferral",
		Detail: document.Count(e.correct()) + " of " + document.Noun(s.Inputs, "input")}}
	best, of := e.best(policy.AllInputs, e.risk), e.row(policy.AllInputs, mi)
	at := " at " + document.RoundPercent(e.report.Source.Coverage) + " coverage"
	if !e.byRisk {
		if of != nil {
			tiles = append(tiles, document.Tile{Value: document.Percent(of.Accuracy), Label: "accuracy" + at + ", by mutual information alone",
				Detail: document.Noun(of.Retained, "input") + " retained"})
		}
		if best != nil && best != of {
			tiles = append(tiles, document.Tile{Value: document.Percent(best.Accuracy), Label: "accuracy" + at + ", by " + plain(best.Name),
				Detail: document.Noun(best.Retained, "input") + " retained", Strong: true})
		}
		return tiles
	}
	tiles = append(tiles, document.Tile{Value: document.Percent(s.CriticalFNR), Label: "critical inputs missed without deferral",
		Detail: document.Count(s.Missed) + " of " + document.Count(s.Critical)})
	missed := func(row *eval.Row, by string, strong bool) {
		if row != nil {
			tiles = append(tiles, document.Tile{Value: document.Percent(row.CriticalFNR), Label: "missed" + at + ", by " + by, Strong: strong,
				Detail: document.Count(row.CriticalMissed) + " of " + document.Count(row.CriticalRetained) + " retained critical"})
		}
	}
	if of != best {
		missed(of, "mutual information alone", false)
	}
	switch p := e.report.Policy; {
	case best == nil:
	case best == of:
		missed(best, "mutual information, the best score", p == nil)
	default:
		missed(best, best.Name+", the best score", p == nil)
	}
	if p := e.report.Policy; p != nil && !p.Observes {
		tiles = append(tiles, document.Tile{Value: document.Percent(p.CriticalFNR), Label: "missed by the policy, which defers " +
			document.Percent(1-p.Coverage), Detail: document.Count(p.CriticalMissed) + " of " + document.Count(p.CriticalRetained) + " retained critical",
			Strong: true})
	} else if row := e.best(policy.PredictedSafe, e.risk); row != nil {
		missed(row, plain(row.Name)+", reviewing only what is called safe", false)
	}
	return tiles
}

// policySays says how the given policy does.
func policySays(e *evaluation) string {
	p := e.report.Policy
	if p.Observes {
		return "The policy for model " + p.Model + " observes: it has no thresholds, defers nothing, and does as the model alone."
	}
	text := fmt.Sprintf("The policy for model %s (scope %s) retains %s of %s (%s) and defers the rest.", p.Model, p.Scope,
		document.Count(p.Retained), document.Noun(e.report.Summary.Inputs, "input"), document.Percent(p.Coverage))
	if e.byRisk {
		text += fmt.Sprintf(" Of %s it misses %s: %s, exact 95%% interval %s.",
			document.Noun(p.CriticalRetained, "retained critical input"), document.Count(p.CriticalMissed),
			document.Percent(p.CriticalFNR), document.PercentRange(p.CriticalFNRInterval[0], p.CriticalFNRInterval[1]))
	}
	if c := p.Certificate; c != nil {
		text += " " + certificateSays(c)
	}
	return text
}

// certificateSays says whether a certificate held.
func certificateSays(c *eval.CertificateCheck) string {
	bounded := "a risk"
	switch policy.CertificateKind(c.Kind) {
	case policy.LearnThenTest:
		bounded = "the critical FNR among retained inputs"
	case policy.ConformalRiskControl:
		bounded = "the share of all critical inputs that are retained and missed"
	}
	target := document.RoundPercent(c.Target)
	text := fmt.Sprintf("Its certificate (%s) bounds %s by %s", c.Kind, bounded, target)
	if c.Confidence > 0 {
		text += " with " + document.RoundPercent(c.Confidence) + " confidence"
	}
	observed, p := document.Percent(c.Observed), document.Digits(c.PValue)
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

// policySection shows the given policy at its own thresholds.
func policySection(e *evaluation) document.Section {
	p := e.report.Policy
	t := &document.Table{Caption: "Operating point of the policy for model " + p.Model, Head: []string{"figure", "value"}, TextColumns: 2}
	t.Add("policy hash", p.Hash)
	t.Add("scope", string(p.Scope))
	t.Add("retained", fmt.Sprintf("%s of %s (%s)", document.Count(p.Retained), document.Count(e.report.Summary.Inputs), document.Percent(p.Coverage)))
	t.Add("decided by the fallback score", document.Share(p.ByFallback))
	t.Add("accuracy of what is retained", document.Share(p.Accuracy))
	t.Add("macro-F1 of what is retained", document.Number(p.MacroF1))
	if e.byRisk {
		t.Add("critical FNR: missed of retained critical", missedOf(p.At))
		t.Add("its exact 95% interval (Clopper-Pearson)", document.ShareInterval(p.CriticalFNRInterval))
		t.Add("retained and missed, of all critical inputs", document.Share(p.MissShare))
		t.Add("its exact 95% interval (Clopper-Pearson)", document.ShareInterval(p.MissShareInterval))
		t.Add("critical error", document.Share(p.CriticalError))
		t.Add("critical inputs deferred", document.Share(p.CriticalDeferredShare))
	}
	if c := p.Certificate; c != nil {
		t.Add("certificate", c.Kind)
		t.Add("its target", document.Share(c.Target))
		if c.Confidence > 0 {
			t.Add("its confidence", document.Share(c.Confidence))
		}
		if c.Held == nil {
			t.Add("held", "nothing to hold it against")
		} else {
			t.Add("observed here", document.Share(c.Observed))
			t.Add("held (p at least 0.05)", map[bool]string{true: "yes", false: "no"}[*c.Held])
			t.Add("p: chance of so many misses or more, were the true share the target", document.Short(c.PValue))
		}
	}
	return document.NewSection("policy", "The policy at its own thresholds", policySays(e), t)
}
