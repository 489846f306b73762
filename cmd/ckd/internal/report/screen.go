package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// screen returns what the report says first: what review saves and misses, beside the model alone.
func screen(e *evaluation) document.Screen {
	s := document.Screen{Warnings: passcheck.Texts(e.report.Signs)}
	switch {
	case !e.classes.anyCritical:
		s.Lead, s.Table = e.errorsLead(), e.fiveByErrors()
		s.Rests = []string{e.data(), "No class is declared critical, so that errors of any kind count alike."}
		s.Next = []string{"Name the classes that must not be missed: --critical. A policy needs them."}
	case !e.byRisk:
		s.Lead = fmt.Sprintf("This recording cannot support a policy: none of its %s is of a critical class (%s), so that nothing "+
			"critical can be missed.", document.Noun(e.report.Summary.Inputs, "input"), e.criticalNames())
		s.Rests, s.Next = []string{e.data()}, []string{"Record and label inputs of the critical classes, then run this again."}
	default:
		s.Lead, s.Table = e.missesLead(), e.fiveByMisses()
		s.Rests, s.Next = e.rests(), e.next()
	}
	if !e.given.Alone {
		return s
	}
	const few = 2
	if n := len(e.report.Notes); n > few {
		s.Rests = append(s.Rests, document.Noun(n, "note")+" on this recording: --full.")
	} else {
		s.Rests = append(s.Rests, e.report.Notes...)
	}
	s.Next = append(s.Next, "Every table: --full. To show a colleague: --format html --out report.html.")
	return s
}

// rule is what the screen speaks of: the policy, or the best simple score among inputs called safe.
type rule struct {
	name string // for sentences
	at   eval.At
	gain *eval.RuleGain
}

func (e *evaluation) rule() rule {
	g := e.report.Gain
	if g == nil {
		return rule{at: e.report.Summary.WithoutDeferral}
	}
	if isPolicy(g.Rule) && e.report.Policy != nil {
		return rule{"this policy", e.report.Policy.At, g}
	}
	r := rule{plain(g.Rule), e.report.Summary.WithoutDeferral, g}
	if row := e.row(g.Scope, g.Rule); row != nil {
		r.at = row.At
	}
	return r
}

// missesLead says what the rule misses at its reviews, what is missed without, and which critical calls
// nobody looks at. Where the rule gains nothing, that comes first.
func (e *evaluation) missesLead() string {
	s, r := e.report.Summary, e.rule()
	all := document.Noun(s.Critical, "critical input")
	lead := ""
	if p := e.report.Policy; p != nil && p.Observes {
		lead = fmt.Sprintf("This policy only observes: it sends nothing to people, and %s of %s are missed. ", document.Count(s.Missed), all)
	}
	switch {
	case s.Missed == 0:
		return lead + fmt.Sprintf("This recording cannot support a policy: without review the model misses 0 of %s, so that no rule can be "+
			"seen to save one.", all)
	case r.gain == nil:
		return lead + fmt.Sprintf("Without review %s of %s are missed %s.", document.Count(s.Missed), all, e.rate(s.WithoutDeferral))
	case r.gain.Deferred == 0:
		return lead + fmt.Sprintf("This recording cannot support a policy: %s sends nothing to people, and %s of %s are missed %s.", r.name,
			document.Count(r.at.CriticalMissed), all, e.rate(r.at))
	case !r.gain.Supports:
		return lead + fmt.Sprintf("This recording cannot support a policy: with %s %s of %s %s missed %s, without review %s, and with as many "+
			"reviews drawn at random about %s.", reviews(r.at), document.Count(r.at.CriticalMissed), all, isAre(s.Critical), e.rate(r.at),
			document.Count(s.Missed), document.Count(int(math.Round(r.gain.ByChance()))))
	case r.name == "this policy":
		lead += fmt.Sprintf("With %s per 1,000 inputs%s this policy misses %s of %s %s; without review %s.",
			noun(r.at.Per1000.Reviews, "review"), e.callsAmong(), document.Count(r.at.CriticalMissed), all, e.rate(r.at), document.Count(s.Missed))
	default:
		lead += fmt.Sprintf("With %s per 1,000 inputs%s a plain rule misses %s of %s %s; without review %s. It sends the inputs called safe "+
			"whose %s.", noun(r.at.Per1000.Reviews, "review"), e.callsAmong(), document.Count(r.at.CriticalMissed), all, e.rate(r.at),
			document.Count(s.Missed), puts(r.gain.Rule))
	}
	return strings.TrimSpace(strings.Join([]string{lead, e.plainIsBetter(r), e.unreviewed(r)}, " "))
}

// plainIsBetter says by which plain score clearly fewer critical inputs are missed than by the given policy, with as
// many reviews: one that may send the same inputs, or else one that sends only inputs called safe.
func (e *evaluation) plainIsBetter(r rule) string {
	p := e.report.Policy
	if r.name != "this policy" || math.Abs(p.Per1000.Deferred-1000*(1-e.report.Source.Coverage)) > 0.5 {
		return ""
	}
	for _, scope := range []policy.Scope{p.Scope, policy.PredictedSafe} {
		row := e.simplest(scope)
		if row == nil || !clearlyFewer(row.CriticalMissed, r.at.CriticalMissed) {
			continue
		}
		text := fmt.Sprintf("A plain score misses clearly fewer with as many reviews: %s by %s", document.Count(row.CriticalMissed), plain(row.Name))
		if scope != p.Scope {
			text += ", sending only inputs called safe, which is right only where each critical call is acted on"
		}
		return text + "."
	}
	return ""
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// puts says which inputs a score puts first: "entropy is highest".
func puts(score string) string {
	side := "highest"
	if score == decomp.MaxProb.String() {
		side = "lowest"
	}
	return policy.Score(score).Words() + " is " + side
}

// callsAmong says that reviews include the critical calls, where people review them.
func (e *evaluation) callsAmong() string {
	if e.report.Source.CriticalCalls == eval.Reviewed {
		return ", all critical calls among them,"
	}
	return ""
}

// unreviewed says which critical calls nobody looks at.
func (e *evaluation) unreviewed(r rule) string {
	without := e.report.Summary.WithoutDeferral.CalledCritical
	calls := callsUnreviewed(r.at.CalledCritical, r.at.FalseCalls)
	switch {
	case e.report.Source.CriticalCalls == eval.Reviewed:
		return ""
	case without == 0:
		return "It calls no input critical."
	case r.gain.Scope != policy.PredictedSafe:
		return callsSeen(float64(without), float64(r.at.CalledCritical), float64(r.at.FalseCalls))
	case r.at.CalledCritical < without && e.report.Summary.Degenerate > 0:
		return "It sends inputs called critical only where they are unfamiliar or their passes hardly differ: " + calls + "."
	case r.at.CalledCritical < without:
		return "It sends inputs called critical only where they are unfamiliar: " + calls + "."
	case e.report.Source.CriticalCalls == eval.ActedOn:
		return "It sends no input called critical, as these are acted on: " + calls + "."
	}
	return "It sends no input called critical: " + calls + ", which is right only where each is acted on."
}

// rate returns a critical miss rate with its interval: "(1.9%, 95%: 0.9 to 3.6)".
func (e *evaluation) rate(at eval.At) string {
	i := at.CriticalMissRateInterval
	if i == nil {
		return "(" + document.Percent(at.CriticalMissRate) + ")"
	}
	return within95(float64(at.CriticalMissRate), i[0], i[1])
}

func reviews(at eval.At) string { return noun(at.Per1000.Reviews, "review") + " per 1,000 inputs" }

// round1 rounds an expected count to a decimal.
func round1(x float64) float64 { return float64(int(10*x+0.5)) / 10 }

// fiveByMisses compares the model alone, mutual information, the paper's rule, the score of the fewest
// misses and the rule. Rules of the same figures share a row.
func (e *evaluation) fiveByMisses() *document.Table {
	t := &document.Table{
		Head: []string{"rule", "reviews per 1,000", "missed of critical", "critical miss rate", "95% interval",
			"critical calls nobody looks at"},
		TextColumns: 1,
	}
	reviewed := e.report.Source.CriticalCalls == eval.Reviewed
	if reviewed {
		t.Head = t.Head[:5]
	}
	without := e.report.Summary.WithoutDeferral
	add := func(name string, at eval.At) {
		cells := []any{name, perThousand(at.Per1000.Reviews), document.Of{at.CriticalMissed, e.report.Summary.Critical},
			document.Share(at.CriticalMissRate), document.Format(at.CriticalMissRateInterval),
			document.Of{at.CalledCritical, without.CalledCritical}}[:len(t.Head)]
		for _, row := range t.Rows {
			if slices.Equal(row[1:], cells[1:]) {
				row[0] = fmt.Sprint(name, "; ", row[0])
				return
			}
		}
		t.Add(cells...)
	}
	if reviewed {
		add("critical calls alone", without)
	} else {
		add(noReview, without)
	}
	r, scope := e.rule(), e.budgetScope()
	last := e.fewest(scope)
	if r.name == "this policy" {
		last = nil
	}
	for _, row := range distinct(e.row(scope, mi), e.row(scope, string(policy.AnyCritical)), last, e.simplest(policy.PredictedSafe)) {
		add(e.rowName(row), row.At)
	}
	if r.name == "this policy" {
		add(r.name, r.at)
	}
	return t
}

// budgetScope returns the scope in which rankings are compared at the same number of reviews. Where
// critical calls are reviewed anyway, rankings that defer different numbers of them differ in reviews,
// unless none is deferred.
func (e *evaluation) budgetScope() policy.Scope {
	if e.report.Source.CriticalCalls == eval.Reviewed {
		return policy.PredictedSafe
	}
	return policy.AllInputs
}

// simplest returns the simple score of the fewest misses in a scope, nil for none.
func (e *evaluation) simplest(scope policy.Scope) *eval.Row {
	var best *eval.Row
	for _, score := range eval.SimpleScores {
		if row := e.row(scope, score.String()); row != nil && (best == nil || row.CriticalMissed < best.CriticalMissed) {
			best = row
		}
	}
	return best
}

// distinct returns the rows that are not nil, each once.
func distinct(rows ...*eval.Row) (all []*eval.Row) {
	for _, row := range rows {
		if row != nil && !slices.Contains(all, row) {
			all = append(all, row)
		}
	}
	return all
}

// rowName names a ranking with the inputs that it may send.
func (e *evaluation) rowName(row *eval.Row) string {
	name := short(row.Name)
	switch {
	case !e.byRisk || e.budgetScope() == policy.PredictedSafe:
		return name
	case row.Scope == policy.PredictedSafe:
		return name + ", only called safe"
	}
	return name + ", any input"
}

// rests says what the lead rests on, the most important first: what does not fit is left out.
func (e *evaluation) rests() []string {
	r := e.rule()
	var all []string
	add := func(text string) {
		if text != "" {
			all = append(all, text)
		}
	}
	if p := e.report.Policy; p != nil && p.Certificate != nil {
		add(e.certificateSays(p.Certificate))
	} else if p != nil && len(p.Differs) > 0 {
		add("No evidence on this policy: " + strings.Join(p.Differs, "; ") + ".")
	}
	add(e.chance(r))
	gains := r.gain != nil && r.gain.Supports
	if gains {
		add(e.gainSays())
	}
	if gains && r.gain.Compared > 1 {
		var names []string
		for _, score := range eval.SimpleScores {
			names = append(names, short(score.String()))
		}
		add(fmt.Sprintf("The rule is the best of %s on these same inputs, which flatters it; ckd calibrate chooses and judges on "+
			"different ones.", document.List(names)))
	}
	add(e.data())
	add(e.fallbackSays())
	if w := worst(r.at); w != nil && w.Missed > 0 {
		add(fmt.Sprintf("Of the critical classes %s is missed most often: %s.", document.Label(w.Class), missedOfClass(*w)))
	}
	return all
}

// chance compares the rule with reviews drawn at random.
func (e *evaluation) chance(r rule) string {
	g := r.gain
	if g == nil || g.Without == 0 || g.Deferred == 0 {
		return ""
	}
	test := "exact test"
	if e.byGroup() {
		test = "test by group"
	}
	if g.Compared > 1 {
		test += " that allows for the choice"
	}
	return fmt.Sprintf("As many reviews drawn at random would save about %s of the %s; %s saves %s (%s, %s).",
		document.Count(int(math.Round(float64(g.Without)-g.ByChance()))), document.Noun(g.Without, "miss"), r.name,
		document.Count(float64(g.Without)-r.at.CriticalMissed), chanceOf(g.P), test)
}

// chanceOf returns a p-value for sentences.
func chanceOf(p float64) string {
	if p < 0.001 {
		return "p under 0.001"
	}
	return fmt.Sprintf("p = %.2g", p)
}

// gainSays says which part of the gain comes from the scope and which from the score, by this
// recording's numbers, and whether the scores by class or plain ones decide better.
func (e *evaluation) gainSays() string {
	byClass := []decomp.Score{decomp.CBEC, decomp.CCritMax}
	verdict := "Scores by class do not decide better here by more than chance (two standard errors); C_k says which class is in doubt."
	var misses []string
	for _, s := range []struct {
		scope policy.Scope
		where string
	}{{policy.AllInputs, "where critical calls are sent too"}, {policy.PredictedSafe, "where only inputs called safe are sent"}} {
		if s.scope == policy.AllInputs && e.budgetScope() != s.scope {
			continue
		}
		missed := e.missesBy(s.scope, slices.Concat(byClass, eval.SimpleScores)...)
		if missed == "" {
			return ""
		}
		misses = append(misses, s.where+": "+missed)
		switch {
		case e.clearlyBetter(s.scope, byClass, eval.SimpleScores):
			verdict = "Scores by class decide better " + s.where + "."
		case e.clearlyBetter(s.scope, eval.SimpleScores, byClass):
			verdict = "Plain scores decide better here by more than chance; C_k says which class is in doubt."
		}
	}
	return "Critical inputs missed " + strings.Join(misses, "; ") + ". " + verdict
}

// clearlyBetter reports whether the best of some scores misses clearly fewer than the best of others.
func (e *evaluation) clearlyBetter(scope policy.Scope, some, others []decomp.Score) bool {
	fewest := func(scores []decomp.Score) float64 {
		least := math.Inf(1)
		for _, score := range scores {
			if row := e.row(scope, score.String()); row != nil {
				least = min(least, row.CriticalMissed)
			}
		}
		return least
	}
	return clearlyFewer(fewest(some), fewest(others))
}

// missesBy lists what each of some scores misses, the fewest first.
func (e *evaluation) missesBy(scope policy.Scope, scores ...decomp.Score) string {
	var all []missedBy
	for _, score := range scores {
		if row := e.row(scope, score.String()); row != nil {
			all = append(all, missedBy{score.String(), row.CriticalMissed})
		}
	}
	return missesOf(all)
}

// fallbackSays says for how many inputs the contributions cannot be trusted.
func (e *evaluation) fallbackSays() string {
	if p := e.report.Policy; p != nil && p.ByFallback > 0 {
		return fmt.Sprintf("The policy decides %s of the inputs by its fallback score.", document.Percent(p.ByFallback))
	}
	if e.row(policy.AllInputs, string(policy.AnyCritical)) == nil {
		return ""
	}
	return fmt.Sprintf("For %s of the inputs some critical class is too skewed (over %s) for its C_k to be trusted: there the paper's rule falls back to "+
		"%s.", document.Percent(e.report.Summary.FallbackShare), document.Plain(e.report.Source.Reliability), plain(decomp.CBEC.String()))
}

// data names the recording.
func (e *evaluation) data() string {
	s, source := e.report.Summary, e.report.Source
	text := fmt.Sprintf("Data: %s, %s each, %s", document.Noun(s.Inputs, "input"), document.Noun(s.Passes, "pass"), document.Noun(s.Classes, "class"))
	if e.classes.anyCritical {
		text += fmt.Sprintf("; critical: %s (%s)", e.criticalNames(), document.Noun(s.Critical, "input"))
	}
	text += ". Labels are taken for the truth."
	if e.byRisk {
		text += " " + e.intervalsAre()
	}
	var hashes []string
	for _, f := range []struct {
		what string
		file eval.File
	}{{"passes", source.Passes}, {"labels", source.Labels}} {
		if hash := f.file.SHA256; hash != "" {
			hashes = append(hashes, fmt.Sprintf("of the %s %s", f.what, hash[:min(len(hash), 12)]))
		}
	}
	if len(hashes) > 0 {
		text += " SHA-256 " + strings.Join(hashes, ", ") + "."
	}
	return text
}

// criticalNames lists the critical classes, or counts them where they are many.
func (e *evaluation) criticalNames() string {
	const most = 3
	var names []string
	for _, c := range e.report.Classes {
		if c.Critical {
			names = append(names, document.Label(c.Name))
		}
	}
	if len(names) > most {
		return document.Noun(len(names), "class")
	}
	return document.List(names)
}

// next says what to do.
func (e *evaluation) next() []string {
	g := e.report.Gain
	switch {
	case g == nil:
		return nil
	case !g.Supports:
		return []string{e.needed(g), "Until then a policy without thresholds observes, and sends nothing to people."}
	case g.Rule != "policy":
		objective := []string{"--reviews-per-1000", document.Plain(math.Round(e.rule().at.Per1000.Reviews)), "--scope", "predicted-safe"}
		if calls := e.report.Source.CriticalCalls; calls != "" {
			objective = append(objective, "--critical-calls", string(calls))
		}
		calibrate := e.command("calibrate", append(objective, "--out", "policy.yaml")...)
		return []string{"Choose a policy and judge it on inputs that did not choose it:\n" + calibrate}
	case len(e.report.Policy.Differs) > 0:
		return []string{"Judge the policy on other labelled inputs, recorded as those that it was calibrated on: --passes and --labels."}
	}
	return []string{"Serve it: ckd serve --policy " + quote(cmp.Or(e.given.Policy, "FILE"))}
}

// needed says what a recording needs to support a policy.
func (e *evaluation) needed(g *eval.RuleGain) string {
	s := e.report.Summary
	if g.Needed == 0 {
		return "Ask for a number of reviews between none and all inputs called safe: --reviews-per-1000."
	}
	if !e.byGroup() && g.Needed <= g.Without {
		separates := "No score here separates"
		if isPolicy(g.Rule) {
			separates = "This policy does not separate"
		}
		return separates + " what the model misses from the rest: more labels will not help; look at the model or the passes."
	}
	what := "critical inputs that are missed without review"
	if e.byGroup() {
		what = "groups with critical inputs that are missed without review"
	}
	text := fmt.Sprintf("Record and label more: about %s %s are needed, and this recording has %s", document.Count(g.Needed), what,
		document.Noun(g.Without, "such input"))
	if s.Missed > 0 && !e.byGroup() && g.Needed > g.Without {
		text += fmt.Sprintf("; at its miss rate that takes about %s critical inputs", document.Count(g.Needed*s.Critical/s.Missed))
	}
	return text + "."
}

// errorsLead says how many errors remain where no class is critical.
func (e *evaluation) errorsLead() string {
	s, best := e.report.Summary, e.fewest(policy.AllInputs)
	wrong := s.Inputs - e.correct()
	if best == nil {
		return fmt.Sprintf("Without review %s of %s are wrong.", document.Count(wrong), document.Noun(s.Inputs, "input"))
	}
	return fmt.Sprintf("With %s, those that %s puts first, the model is wrong on %s of the %s that it decides (%s); without review on %s of "+
		"%s (%s).", reviews(best.At), plain(best.Name), document.Count(wrongOf(best.At)), document.Noun(best.Retained, "input"),
		document.Percent(1-best.Accuracy), document.Count(wrong), document.Count(s.Inputs), document.Percent(1-s.Accuracy))
}

// wrongOf returns how many of the retained inputs are wrong.
func wrongOf(at eval.At) float64 { return round1(float64(at.Retained) * (1 - float64(at.Accuracy))) }

// fiveByErrors compares simple scores where no class is critical.
func (e *evaluation) fiveByErrors() *document.Table {
	t := &document.Table{Head: []string{"rule", "reviews per 1,000", "errors of decided", "error rate", "95% interval"}, TextColumns: 1}
	if !e.resampled() {
		t.Head = t.Head[:4]
	}
	add := func(name string, at eval.At, interval any) {
		t.Add([]any{name, perThousand(at.Per1000.Deferred), document.Of{wrongOf(at), at.Retained}, document.Share(1 - at.Accuracy), interval}[:len(t.Head)]...)
	}
	add(noReview, e.report.Summary.WithoutDeferral, nil)
	for _, row := range distinct(e.row(policy.AllInputs, mi), e.row(policy.AllInputs, decomp.Entropy.String()),
		e.row(policy.AllInputs, decomp.MaxProb.String()), e.fewest(policy.AllInputs)) {
		low, high := 1-row.BootstrapAt.Accuracy.High, 1-row.BootstrapAt.Accuracy.Low
		add(e.rowName(row), row.At, document.ShareInterval{float64(low), float64(high)})
	}
	return t
}
