package report

import (
	"fmt"
	"strconv"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/policy"
)

// Calibration returns a calibration as a document. The policy was written to policyFile; "" stands
// for the standard output.
func Calibration(r *calibrate.Report, policyFile string) *document.Document {
	d := &document.Document{Title: titled("Calibration", r.PassesFile), Notes: r.Notes}
	if r.Objective != "" {
		d.Subject = fmt.Sprintf("Objective: %s, scope %s. %s of %d passes; %d are critical, and %d of these are missed "+
			"without deferral.", r.Objective, r.Scope, document.Noun(r.Inputs, "input"), r.Passes, r.Critical, r.Missed)
	}
	if r.Chosen != nil {
		d.Sections = append(d.Sections, chosenSection(r))
	}
	if r.Expected != nil {
		d.Sections = append(d.Sections, expectedSection(r.Expected))
	}
	if r.Certificate != nil || r.Refusal != nil || r.Objective != "" && !r.Refused() {
		d.Sections = append(d.Sections, certificateSection(r))
	}
	if s := r.EarlyStop; s != nil {
		d.Sections = append(d.Sections, earlyStopSection(s))
		if s.Rule != nil {
			d.Sections = append(d.Sections, fullDecisionSection(s))
		}
	}
	if len(r.Comparison) > 0 {
		d.Sections = append(d.Sections, comparisonSection(r))
	}
	if len(r.Why) > 0 {
		d.Sections = append(d.Sections, document.Section{ID: "why", Title: "Why", Points: r.Why})
	}
	settings := append([]setting{{"software", r.Software}}, fileSettings("passes", r.PassesFile)...)
	if r.LabelsFile.Name != "" {
		settings = append(settings, fileSettings("labels", r.LabelsFile)...)
	}
	if r.GroupsFile != nil {
		settings = append(settings, fileSettings("groups", *r.GroupsFile)...)
	}
	settings = append(settings, setting{"seed", strconv.FormatUint(r.Seed, 10)})
	d.Sections = append(d.Sections, computed("ckd calibrate", settings...))
	if policyFile != "" && !r.Refused() {
		d.Sections = append(d.Sections, document.NewSection("policy", "Policy",
			fmt.Sprintf("%s has it: load it with \"ckd serve --policy %s\", and see with \"ckd check %s\" what it means. Its hash "+
				"is %s.", policyFile, policyFile, policyFile, r.PolicyHash)))
	}
	return d
}

// chosenSection shows the gate, its scores and their thresholds. The policy has all digits of the
// thresholds.
func chosenSection(r *calibrate.Report) document.Section {
	title := "Chosen: gate "
	if r.Objective == "" {
		title = "Kept: gate "
	}
	t := &document.Table{Caption: "Scores and thresholds", Head: []string{"rule", "score", "threshold"}, TextColumns: 2}
	add := func(name string, at calibrate.Threshold) {
		t.Add(name, at.Score, strconv.FormatFloat(at.Threshold, 'g', 6, 64))
	}
	add("primary", r.Chosen.Primary)
	if fallback := r.Chosen.Fallback; fallback != nil {
		add("fallback", *fallback)
	}
	return document.NewSection("chosen", title+string(r.Chosen.Gate),
		"An input is retained when the score that the gate chooses is at or under its threshold.", t)
}

// expectedSection shows what unseen inputs will show.
func expectedSection(e *calibrate.Expected) document.Section {
	t := &document.Table{Caption: "Expected figures", Head: []string{"figure", "value", "95% interval"}, TextColumns: 1}
	t.Add("coverage", document.Share(e.Coverage), document.ShareInterval(e.CoverageInterval))
	intro := ""
	if e.CriticalFNR != nil {
		t.Add("critical FNR", document.Share(*e.CriticalFNR), document.ShareInterval(*e.CriticalFNRInterval))
	} else {
		intro = "Of the critical FNR the certificate says what can be said."
	}
	return document.NewSection("expected", "Expected on unseen inputs", intro, t)
}

// certificateSection says what is guaranteed, or why nothing is.
func certificateSection(r *calibrate.Report) document.Section {
	s := document.Section{ID: "certificate", Title: "No certificate"}
	switch c := r.Certificate; {
	case c != nil && c.Void != "":
		s.Intro = c.Void
	case c != nil:
		s.Title, s.Intro = "Certificate", "For this one attempt on this recording, by "+string(c.Kind)
		if c.PValue > 0 {
			s.Intro += " (p = " + document.Digits(c.PValue) + ")"
		}
		s.Intro += ": " + c.Statement // last, because it ends with what it presumes
	case r.Refusal != nil:
		s.Title, s.Intro = "Nothing certifies", r.Refusal.Reason+"."
		if would := r.Refusal.Would; len(would) > 0 {
			s.Intro += " On this recording these would have been certified; on it a second attempt is void, so try them on fresh data:"
			s.Points = would
		}
	default:
		s.Intro = "A coverage guarantees nothing about misses: see --max-critical-miss and --max-critical-fnr."
	}
	return s
}

// earlyStopSection says what the early-stopping rule does, or why there is none.
func earlyStopSection(e *calibrate.EarlyStop) document.Section {
	if e.Refusal != nil {
		return document.NewSection("early-stop", "Nothing certifies a rule to stop early", e.Refusal.Reason+".")
	}
	order := "any order"
	if e.Order == policy.MembersOrder {
		order = "the order of the recording, which is that of the ensemble's members"
	}
	r := e.Rule
	intro := fmt.Sprintf("%s On these inputs it used %.3g of %d passes on average, which is %.3g times fewer. After %d to %d passes, "+
		"%d of %d inputs were decided early. Passes come in %s. The rule has %d fitted numbers.", r.Statement, r.MeanPasses, e.Passes, r.Saving, r.FirstAfter, r.LastAfter,
		r.Settled, e.CertifiedOn, order, r.Numbers)
	t := &document.Table{
		Caption: "What early decisions change", Says: fmt.Sprintf("The upper bounds hold with confidence %v.", e.Confidence),
		Head: []string{"inputs", "seen", "share", "at most"}, TextColumns: 1,
	}
	add := func(what string, b calibrate.BoundedShare) {
		if b.Inputs == 0 {
			t.Add(what, "none", nil, nil)
			return
		}
		t.Add(what, document.Of{b.Count, b.Inputs}, document.FineShare(share(b.Count, b.Inputs)), document.FineShare(b.AtMost))
	}
	add("decided otherwise than by all passes", r.Disagreements)
	add("deferred by all passes, retained instead", r.Released)
	if r.CriticalReleased != nil {
		add("the same of critical inputs", *r.CriticalReleased)
	}
	return document.NewSection("early-stop", "Early stopping", intro, t)
}

// fullDecisionSection says how certain the decision by all passes itself is.
func fullDecisionSection(e *calibrate.EarlyStop) document.Section {
	t := &document.Table{Caption: "The full decision beside the early one", Head: []string{"figure", "seen", "share", "95% interval"}, TextColumns: 1}
	add := func(what string, e *calibrate.ExactShare) {
		t.Add(what, document.Of{e.Count, e.Inputs}, document.Share(e.Share), document.ShareInterval(e.Interval))
	}
	add("two halves of the passes decide otherwise", e.HalvesDiffer)
	if r := e.Rule; r.CriticalFNR != nil {
		add("critical FNR with the rule in force", r.CriticalFNR)
		add("critical FNR of all passes", r.FullCriticalFNR)
	}
	return document.NewSection("full-decision", "What the full decision is worth",
		"Two halves of the passes, each decided by itself, say how much chance there is in the full decision itself.", t)
}

// comparisonSection shows the calibrated rule beside those that it was chosen over.
func comparisonSection(r *calibrate.Report) document.Section {
	t := &document.Table{Caption: "Rules", TextColumns: 2,
		Head: []string{"rule", "scope", "coverage", "accuracy", "critical FNR", "95% interval", "missed"}}
	for _, row := range r.Comparison {
		name := row.Rule
		if row.Calibrated {
			name = "* " + name
		}
		if row.Nothing {
			t.Add(name, string(row.Scope), "none", nil, nil, nil, nil)
			continue
		}
		t.Add(name, string(row.Scope), document.Share(row.Coverage), document.Share(row.Accuracy), document.Share(row.CriticalFNR),
			document.ShareInterval(row.CriticalFNRInterval), document.Of{row.Missed, row.CriticalRetained})
	}
	return document.NewSection("comparison", "Comparison", "On "+r.ComparisonBasis+". The critical FNR has its binomial interval.", t)
}
