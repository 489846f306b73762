package report

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

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

// certificateSays says what this recording shows of a certificate.
func (e *evaluation) certificateSays(c *eval.CertificateCheck) string {
	text := "The policy's certificate (" + c.Kind
	if c.Confidence > 0 {
		text += ", " + document.RoundPercent(c.Confidence) + " confidence"
	}
	var all []string
	for _, b := range bounds(c) {
		all = append(all, fmt.Sprintf("the %s by %s (%s here: %s)", boundName(&b), document.RoundPercent(b.Target), verdict(b.Verdict),
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
	t.Add("decided by the fallback", document.Share(p.ByFallback))
	t.Add("accuracy of the retained", document.Share(p.Accuracy))
	t.Add("macro-F1 of the retained", document.Number(p.MacroF1))
	if e.byRisk {
		t.Add("critical miss rate", missedOfAll(p.At, e.report.Summary.Critical))
		t.Add("its "+e.interval95(), p.CriticalMissRateInterval)
		if len(p.CriticalClasses) > 1 {
			if w := worst(p.At); w != nil {
				t.Add("worst critical class", w.Class+" "+missedOfClass(*w))
			}
		}
		t.Add("per 1,000 inputs: deferred", perThousand(p.Per1000.Deferred))
		if e.report.Source.CriticalCalls == eval.Reviewed {
			t.Add("per 1,000 inputs: reviewed", perThousand(p.Per1000.Reviews))
		}
		t.Add("per 1,000 inputs: critical calls", perThousand(p.Per1000.CalledCritical))
		t.Add("per 1,000 inputs: false ones", perThousand(p.Per1000.FalseCalls))
		t.Add("per 1,000 inputs: missed", perThousand(p.Per1000.Missed))
		t.Add("critical FNR, of the retained", missedOf(p.At))
		t.Add("its "+e.interval95(), p.CriticalFNRInterval)
		t.Add("critical error", document.Share(p.CriticalError))
		t.Add("critical inputs deferred", document.Share(p.CriticalDeferredShare))
	}
	return document.NewSection("policy", "The policy at its own thresholds", "", t, boundsTable(p.Certificate))
}
