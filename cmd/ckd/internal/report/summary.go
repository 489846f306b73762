package report

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// screen returns what the report says first.
func screen(e *evaluation) document.Screen {
	return document.Screen{Warnings: passcheck.Texts(e.report.Signs), Lead: subject(e) + ". " + strings.Join(lead(e), " ")}
}

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

// lead summarises the report in plain words. It begins with what is missed.
func lead(e *evaluation) []string {
	s := e.report.Summary
	lead := []string{}
	for _, text := range []string{scopesSay(e), missesSay(e), unaided(e)} {
		if text != "" {
			lead = append(lead, text)
		}
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

// scopesSay says what deferring only inputs called safe would gain, and what must be true at the
// site for it to be right. It is empty without both scopes.
func scopesSay(e *evaluation) string {
	all, safe := e.fewest(policy.AllInputs), e.fewest(policy.PredictedSafe)
	if !e.byRisk || all == nil || safe == nil {
		return ""
	}
	critical := document.Noun(e.report.Summary.Critical, "critical input")
	if e.report.Source.CriticalCalls == eval.Reviewed {
		return fmt.Sprintf("People review critical calls here, whatever is deferred: at %s, deferring only inputs called safe takes "+
			"%s reviews per 1,000 and misses %s of %s, deferring any input takes %s and misses %s. By one score, both miss the same "+
			"at the same number of reviews.", e.deferrals(), perThousand(safe.Per1000.Reviews), document.Count(safe.CriticalMissed),
			critical, perThousand(all.Per1000.Reviews), document.Count(all.CriticalMissed))
	}
	text := fmt.Sprintf("At %s, deferring only inputs called safe misses %s of %s", e.deferrals(),
		document.Count(safe.CriticalMissed), critical)
	if safe.CriticalMissed < all.CriticalMissed {
		text += fmt.Sprintf(" instead of %s", document.Count(all.CriticalMissed))
	} else {
		text += fmt.Sprintf(", no fewer than the %s of deferring any", document.Count(all.CriticalMissed))
	}
	text += fmt.Sprintf("; it means that nobody looks at the %s, of which %s %s false",
		document.Noun(safe.CalledCritical, "critical call"), document.Count(safe.FalseCalls), isAre(safe.FalseCalls))
	if e.report.Source.CriticalCalls == eval.ActedOn {
		return text + ": each is acted on without a look, as --critical-calls says."
	}
	return text + ", and is right only where each of them is acted on without a look (--critical-calls says what is done)."
}

func isAre(n float64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// budgetScope returns the scope in which rankings are compared at the same number of reviews. Where
// critical calls are reviewed anyway, rankings that defer different numbers of them differ in reviews,
// unless none is deferred.
func (e *evaluation) budgetScope() policy.Scope {
	if e.byRisk && e.report.Source.CriticalCalls == eval.Reviewed {
		return policy.PredictedSafe
	}
	return policy.AllInputs
}

// missesSay says what the best score and mutual information miss at the coverage of the report;
// without critical inputs, how many errors they leave.
func missesSay(e *evaluation) string {
	scope := e.budgetScope()
	best, miRow := e.fewest(scope), e.row(scope, mi)
	switch {
	case best == nil:
		return ""
	case !e.byRisk:
		text := fmt.Sprintf("At %s, those that %s puts first, %s of the inputs that the model decides are right", e.deferrals(),
			plain(best.Name), document.Percent(best.Accuracy))
		if miRow != nil && miRow != best {
			text += fmt.Sprintf("; by mutual information, %s", document.Percent(miRow.Accuracy))
		}
		return text + "." + flattered(best)
	}
	s := e.report.Summary
	at := e.deferrals()
	if scope == policy.PredictedSafe {
		at = fmt.Sprintf("%s reviews per 1,000 inputs, critical calls included,", perThousand(best.Per1000.Reviews))
	}
	text := fmt.Sprintf("At %s %s of %s are missed by %s (critical miss rate %s, %s %s)", at,
		document.Count(best.CriticalMissed), document.Noun(s.Critical, "critical input"), e.withEqual(best),
		document.Percent(best.CriticalMissRate), e.interval95(), document.Format(best.CriticalMissRateInterval))
	if miRow != nil && miRow != best {
		text += fmt.Sprintf("; by mutual information %s", document.Count(miRow.CriticalMissed))
	}
	text += fmt.Sprintf(", without deferral %s.", document.Count(s.Missed))
	if w := worst(best.At); w != nil {
		text += fmt.Sprintf(" Of the critical classes %s is missed most often: %s.", w.Class, missedOfClass(*w))
	}
	return text + flattered(best)
}

// withEqual names a score and how many other scores miss as many at the coverage.
func (e *evaluation) withEqual(best *eval.Row) string {
	others := 0
	for _, row := range e.scores(best.Scope) {
		if row != best && row.CriticalMissed == best.CriticalMissed {
			others++
		}
	}
	if others == 0 {
		return plain(best.Name)
	}
	return plain(best.Name) + ", and as many by " + document.Noun(others, "other score")
}

func flattered(best *eval.Row) string {
	return fmt.Sprintf(" (On these same inputs %s is the best of the scores, which flatters it; ckd calibrate chooses and judges "+
		"on different ones.)", plain(best.Name))
}

// worst returns the critical class of the highest miss rate, of those with enough inputs for one. It
// returns nil of a single critical class, whose figures are the pooled ones.
func worst(at eval.At) *eval.ClassMisses {
	if len(at.CriticalClasses) < 2 {
		return nil
	}
	for i, c := range at.CriticalClasses {
		if at.WorstClass != "" && c.Class == at.WorstClass {
			return &at.CriticalClasses[i]
		}
	}
	return nil
}

// missedOfClass returns what is missed of a class: "19 of 295 (6.4%)", counts alone of a small one.
func missedOfClass(c eval.ClassMisses) string {
	text := document.Format(document.Of{c.Missed, c.Inputs})
	if c.CriticalMissRate.Defined() {
		text += " (" + document.Percent(c.CriticalMissRate) + ")"
	}
	return text
}

// worstCell names the worst critical class in a cell.
func worstCell(at eval.At) string {
	if w := worst(at); w != nil {
		return w.Class + " " + missedOfClass(*w)
	}
	return "n/a"
}

// unaided says how the model does without deferral.
func unaided(e *evaluation) string {
	s := e.report.Summary
	text := fmt.Sprintf("The model is right on %s of %s (%s).", document.Count(e.correct()), document.Noun(s.Inputs, "input"),
		document.Percent(s.Accuracy))
	if e.byRisk {
		text += fmt.Sprintf(" Without deferral it misses %s of %s (critical miss rate %s)", document.Count(s.Missed),
			document.Noun(s.Critical, "critical input"), document.Percent(s.WithoutDeferral.CriticalMissRate))
		if w := worst(s.WithoutDeferral); w != nil {
			text += fmt.Sprintf(", worst %s with %s", w.Class, missedOfClass(*w))
		}
		text += fmt.Sprintf(", and calls %s critical, of which %s %s false.", document.Noun(s.WithoutDeferral.CalledCritical, "input"),
			document.Count(s.WithoutDeferral.FalseCalls), isAre(s.WithoutDeferral.FalseCalls))
	} else if e.classes.anyCritical {
		text += " No input of this recording belongs to a critical class."
	} else {
		text += " No class is declared critical, so that deferral is judged by errors of any kind."
	}
	return text
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
		text += fmt.Sprintf(" It misses %s of %s (critical miss rate %s, %s %s)", document.Count(p.CriticalMissed),
			document.Noun(e.report.Summary.Critical, "critical input"), document.Percent(p.CriticalMissRate),
			e.interval95(), document.Format(p.CriticalMissRateInterval))
		if w := worst(p.At); w != nil {
			text += fmt.Sprintf(", worst %s with %s", w.Class, missedOfClass(*w))
		}
		text += fmt.Sprintf("; of %s, which it keeps, %s %s false. Of the critical inputs retained %s are missed (critical FNR, "+
			"%s %s).", document.Noun(p.CalledCritical, "critical call"), document.Count(p.FalseCalls), isAre(p.FalseCalls),
			missedOf(p.At), e.interval95(), document.Format(p.CriticalFNRInterval))
	}
	if c := p.Certificate; c != nil {
		text += " " + e.certificateSays(c)
	}
	return text
}

// certificateSays says what this recording shows of a certificate.
func (e *evaluation) certificateSays(c *eval.CertificateCheck) string {
	text := "Its certificate (" + c.Kind
	if c.Confidence > 0 {
		text += ", with " + document.RoundPercent(c.Confidence) + " confidence"
	}
	var all []string
	for _, b := range bounds(c) {
		all = append(all, fmt.Sprintf("%s by %s (%s here: %s)", boundName(&b), document.RoundPercent(b.Target), verdict(b.Verdict),
			document.Format(document.Of{b.Misses, b.Cases})))
	}
	text += ") bounds " + document.List(all) + "."
	if e.byGroup() {
		text += " These tests count " + document.Noun(e.report.Source.Groups, "group") + " of inputs"
	} else {
		text += " These tests hold " + policy.IfIndependent
	}
	if c.Groups > 0 {
		text += fmt.Sprintf("; the certificate itself rests on %s", document.Noun(c.Groups, "group"))
	}
	text += "."
	if len(c.Differs) > 0 {
		text += " No verdict is evidence here: " + strings.Join(c.Differs, "; ") + "."
	}
	return text
}

// bounds returns all that a certificate bounds.
func bounds(c *eval.CertificateCheck) []eval.BoundCheck {
	return append([]eval.BoundCheck{c.BoundCheck}, c.Further...)
}

// boundName names the share that is bounded.
func boundName(b *eval.BoundCheck) string {
	name := "critical miss rate"
	if b.Bounds == policy.CriticalFNR {
		name = "critical FNR"
	}
	if b.Class != "" {
		name += " of " + b.Class
	}
	return name
}

// verdict returns the words of a verdict, n/a where the bound covers no input.
func verdict(v eval.Verdict) string {
	if v == "" {
		return "n/a"
	}
	return strings.ReplaceAll(string(v), "_", " ")
}

// boundsTable shows what this recording shows of each bound of a certificate, if there is one.
func boundsTable(c *eval.CertificateCheck) *document.Table {
	if c == nil {
		return nil
	}
	t := &document.Table{Caption: "What this recording shows of the certificate", TextColumns: 2,
		Head: []string{"bounds", "verdict", "target", "missed here", "observed", "chance of so few at the target", "chance of so many at the target",
			"chance to see a doubling"}}
	if len(c.Differs) > 0 {
		t.Says = "No verdict is evidence here: " + strings.Join(c.Differs, "; ") + "."
	}
	for _, b := range bounds(c) {
		t.Add(boundName(&b), verdict(b.Verdict), document.Share(b.Target), document.Of{b.Misses, b.Cases}, document.Share(b.Observed),
			document.Short(b.PShown), document.Short(b.PValue), document.Short(b.PowerAtDouble))
	}
	return t
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
		t.Add("critical miss rate: retained and missed, of all critical inputs", missedOfAll(p.At, e.report.Summary.Critical))
		t.Add("its "+e.interval95(), p.CriticalMissRateInterval)
		if len(p.CriticalClasses) > 1 {
			t.Add("worst critical class", worstCell(p.At))
		}
		t.Add("per 1,000 inputs: deferred", perThousand(p.Per1000.Deferred))
		if e.report.Source.CriticalCalls == eval.Reviewed {
			t.Add("per 1,000 inputs: reviewed, with the critical calls kept", perThousand(p.Per1000.Reviews))
		}
		t.Add("per 1,000 inputs: called critical and kept", perThousand(p.Per1000.CalledCritical))
		t.Add("per 1,000 inputs: of these false", perThousand(p.Per1000.FalseCalls))
		t.Add("per 1,000 inputs: missed", perThousand(p.Per1000.Missed))
		t.Add("critical FNR: missed of retained critical", missedOf(p.At))
		t.Add("its "+e.interval95(), p.CriticalFNRInterval)
		t.Add("critical error", document.Share(p.CriticalError))
		t.Add("critical inputs deferred", document.Share(p.CriticalDeferredShare))
	}
	return document.NewSection("policy", "The policy at its own thresholds", "", t, boundsTable(p.Certificate))
}
