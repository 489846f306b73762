package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// calibration holds a report with the rows that are told first; nil where there are none.
type calibration struct {
	*calibrate.Report
	file      string // of the policy; "" for the standard output
	own, none *calibrate.Row
}

func newCalibration(r *calibrate.Report, policyFile string) *calibration {
	c := &calibration{Report: r, file: policyFile}
	c.own = c.row(func(row *calibrate.Row) bool { return row.Calibrated })
	c.none = c.row(func(row *calibrate.Row) bool { return row.Rule == "no deferral" })
	return c
}

// row returns the first row of the policy's scope that suits, and has figures.
func (c *calibration) row(suits func(*calibrate.Row) bool) *calibrate.Row {
	for i := range c.Comparison {
		if row := &c.Comparison[i]; !row.Nothing && (row.Scope == c.Scope || row.Rule == "no deferral") && suits(row) {
			return row
		}
	}
	return nil
}

// rule returns the row of a rule by name.
func (c *calibration) rule(name string) *calibrate.Row {
	return c.row(func(row *calibrate.Row) bool { return row.Rule == name || row.Rule == name+" with guard" })
}

// keepsCalls reports whether the policy never defers an input called critical by its score.
func (c *calibration) keepsCalls() bool {
	return c.Scope == policy.PredictedSafe || c.Chosen != nil && c.Chosen.Primary.Score == string(policy.RiskScore)
}

// screen returns what is said first.
func (c *calibration) screen() document.Screen {
	s := document.Screen{Warnings: passcheck.Texts(c.Signs), Lead: c.lead(), Table: c.fiveRows(), Rests: c.rests(), Next: c.next()}
	if c.EarlyStop != nil && c.EarlyStop.Rule != nil {
		s.Table = earlyStopTable(c.EarlyStop)
	}
	return s
}

// lead begins with the sentence that decides whether the policy is wanted.
func (c *calibration) lead() string {
	var said []string
	switch {
	case c.EarlyStop != nil:
		return c.earlyStopLead()
	case c.Refused() && c.Unsupported != "":
		return c.Unsupported
	case c.Refused() && len(passcheck.Void(c.Signs)) > 0:
		return "No policy: this recording is not what it seems, and certifies nothing."
	case c.Refused():
		return "No policy: nothing certifies what was asked for. " + sentence(capital(c.Refusal.Reason))
	case c.Unsupported != "":
		said = append(said, c.Unsupported, "It was written because --force asks for it.")
	}
	switch {
	case c.Certificate != nil && c.Certificate.Void == "":
		said = append(said, c.certified())
	case c.own != nil:
		said = append(said, c.misses())
	}
	if c.own != nil {
		said = append(said, c.calls())
	}
	return strings.Join(append(said, ruleSays(c.Chosen)), " ")
}

// misses says what the policy misses, beside what is missed without review.
func (c *calibration) misses() string {
	text := fmt.Sprintf("With %s this policy misses %s", c.reviews(c.own), missedOfCritical(c.own))
	if c.none != nil {
		text += fmt.Sprintf("; without review %s", document.Count(c.none.Missed))
	}
	return text + "."
}

// missedOfCritical returns "9 of 471 critical inputs (1.9%, 95%: 0.9 to 3.6)".
func missedOfCritical(row *calibrate.Row) string {
	text := fmt.Sprintf("%s of %s", document.Count(row.Missed), document.Noun(row.CriticalInputs, "critical input"))
	if row.CriticalMissRate != nil && row.CriticalMissRateInterval != nil {
		i := row.CriticalMissRateInterval
		text += fmt.Sprintf(" (%s, 95%%: %.1f to %.1f)", document.Percent(*row.CriticalMissRate), 100*i[0], 100*i[1])
	}
	return text
}

// reviews returns how many of 1,000 inputs people see.
func (c *calibration) reviews(row *calibrate.Row) string {
	return perThousand(1000*share(row.Reviews, row.Inputs)) + " reviews per 1,000 inputs"
}

// certified says what is certified, and what was seen of it.
func (c *calibration) certified() string {
	const most = 3
	var bounds []string
	limits := c.Certificate.Limits()
	for _, l := range limits[:min(most, len(limits))] {
		of := "critical inputs"
		if l.Class != "" {
			of = document.Label(l.Class) + " inputs"
		}
		if l.Bounds == policy.CriticalFNR {
			of = "retained " + of
		}
		bounds = append(bounds, fmt.Sprintf("at most %s of %s are missed", document.RoundPercent(l.Target), of))
	}
	if more := len(limits) - most; more > 0 {
		bounds = append(bounds, document.Noun(more, "further bound")+" hold")
	}
	text := document.List(bounds) + fmt.Sprintf(", with %s confidence", document.RoundPercent(c.Certificate.Confidence))
	switch {
	case c.own != nil && c.none != nil:
		return fmt.Sprintf("With %s %s: it missed %s of %s, and without review %s.", c.reviews(c.own), text, document.Count(c.own.Missed),
			document.Noun(c.own.CriticalInputs, "critical input"), document.Count(c.none.Missed))
	case c.Expected != nil:
		e := c.Expected
		return fmt.Sprintf("With %s reviews per 1,000 inputs (95%%: %s to %s) %s.", perThousand(1000*(1-e.Coverage)),
			perThousand(1000*(1-e.CoverageInterval[1])), perThousand(1000*(1-e.CoverageInterval[0])), text)
	}
	return capital(text) + "."
}

// calls says what becomes of inputs called critical.
func (c *calibration) calls() string {
	kept := fmt.Sprintf("%s such calls, %s of them false,", document.Count(c.own.CriticalKept), document.Count(c.own.FalseKept))
	switch {
	case c.CriticalCalls == eval.Reviewed:
		return "People review inputs called critical anyway: " + kept + " that are not deferred count as reviews."
	case c.keepsCalls() && c.Chosen != nil && c.Chosen.Guard != nil:
		return "It sends inputs called critical only where they are unfamiliar: " + kept + " go unreviewed."
	case c.keepsCalls():
		return "It never sends inputs called critical: " + kept + " go unreviewed."
	}
	return "It sends inputs called critical too: " + kept + " go unreviewed."
}

// fiveRows shows the rules that matter, on the same inputs.
func (c *calibration) fiveRows() *document.Table {
	if c.none == nil {
		return nil
	}
	t := &document.Table{Caption: "Critical inputs missed, on inputs that chose nothing", TextColumns: 1,
		Head: []string{"rule", "missed of critical", "critical miss rate", "95% interval", "reviews per 1,000", "critical calls unreviewed", "of these false"}}
	add := func(name string, row *calibrate.Row) {
		if row == nil {
			return
		}
		rate, interval := known(row.CriticalMissRate, row.CriticalMissRateInterval)
		t.Add(name, document.Of{row.Missed, row.CriticalInputs}, rate, interval, perThousand(1000*share(row.Reviews, row.Inputs)),
			row.CriticalKept-reviewedCalls(c.Report, row), row.FalseKept*oneIf(c.CriticalCalls != eval.Reviewed))
	}
	add("without review", c.none)
	add("mutual information", c.rule("mi"))
	add("the paper's rule", c.row(func(row *calibrate.Row) bool { return strings.HasPrefix(row.Rule, string(policy.AnyCritical)) }))
	if plain := c.plain(c.Scope); len(plain) > 0 {
		add(ruleWords(plain[0].Rule), plain[0])
	}
	if c.own != nil && !c.Refused() {
		add("this policy", c.own)
	} else {
		add("the refused policy", c.own)
	}
	return t
}

// reviewedCalls returns how many of the critical calls kept people see.
func reviewedCalls(r *calibrate.Report, row *calibrate.Row) int {
	return row.CriticalKept * oneIf(r.CriticalCalls == eval.Reviewed)
}

// plain returns the rows of the scores that need no decomposition, the fewest missed first, the
// simplest of equals.
func (c *calibration) plain(scope policy.Scope) (rows []*calibrate.Row) {
	for _, name := range []string{"maxprob", "entropy", "p_critical"} {
		for i := range c.Comparison {
			if row := &c.Comparison[i]; row.Scope == scope && !row.Nothing && (row.Rule == name || row.Rule == name+" with guard") {
				rows = append(rows, row)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b *calibrate.Row) int { return a.Missed - b.Missed })
	return rows
}

// rests says what the lead rests on, what matters most first.
func (c *calibration) rests() (points []string) {
	add := func(texts ...string) {
		for _, text := range texts {
			if text != "" {
				points = append(points, text)
			}
		}
	}
	add(c.data(), c.gain(), c.plainSays(), c.guarantee(), c.heldOut(), c.halves())
	if c.Refusal != nil && len(c.Refusal.Would) > 0 {
		add("On this recording this would have been certified; on it a second attempt is void, so try it on fresh data: " +
			strings.Join(c.Refusal.Would, "; ") + ".")
	}
	const most = 8 // more do not fit
	for _, note := range c.Notes[:min(most, len(c.Notes))] {
		add(sentence(capital(note)))
	}
	return points
}

// data says what was learned from.
func (c *calibration) data() string {
	name := c.PassesFile.Name
	if c.FromOutcomes {
		return fmt.Sprintf("Data: %s, %s of them critical (%s).", document.Noun(c.Inputs, "reviewed input"), document.Count(c.Critical), name)
	}
	text := fmt.Sprintf("Data: %s, %s each", document.Noun(c.Inputs, "input"), document.Noun(c.Passes, "pass"))
	if c.Critical > 0 {
		text += fmt.Sprintf(", %s of them critical, of which the model misses %s", document.Count(c.Critical), document.Count(c.Missed))
	}
	if c.Groups > 0 {
		text += fmt.Sprintf("; %s", document.Noun(c.Groups, "group"))
	}
	if name != "" {
		text += " (" + name + ")"
	}
	return text + "."
}

// gain compares the policy with reviews drawn at random.
func (c *calibration) gain() string {
	g := c.Gain
	if g == nil || c.Unsupported != "" || g.Eligible == 0 {
		return ""
	}
	return fmt.Sprintf("Gain over chance: it saves %s of the %s missed without review; as many reviews drawn at random would save about %s (chance to do as well: %s).",
		document.Count(g.Without-g.Missed), document.Count(g.Without), perThousand(float64(g.Without)*share(g.Deferred, g.Eligible)), chance(g.P))
}

// chance returns a probability in few digits.
func chance(p float64) string {
	if p < 1e-4 {
		return "under 1 in 10,000"
	}
	return document.Digits(p)
}

// plainSays says whether scores without any decomposition do as well, with the recording's numbers.
func (c *calibration) plainSays() string {
	plain := c.plain(policy.PredictedSafe)
	if c.own == nil || len(plain) == 0 || c.Unsupported != "" {
		return ""
	}
	own := c.own.Missed
	var each []string
	few := 0
	for _, row := range plain {
		text := fmt.Sprintf("%s (%s", document.Count(row.Missed), ruleWords(row.Rule))
		if c.Certificate != nil { // each at its own number of reviews
			text += fmt.Sprintf(", with %s reviews", perThousand(1000*share(row.Reviews, row.Inputs)))
		}
		each = append(each, text+")")
		few += oneIf(float64(row.Missed-own) <= math.Sqrt(float64(row.Missed+own))) // a standard error at most
	}
	text := "Plain scores, which defer only inputs called safe here, miss " + document.List(each)
	switch {
	case c.Certificate != nil:
		return text + fmt.Sprintf("; this policy %s with %s.", document.Count(own), perThousand(1000*share(c.own.Reviews, c.own.Inputs)))
	case few == 0:
		return text + ": clearly more than this policy."
	case c.keepsCalls():
		return text + ": about as few as this policy. The gain is in deferring only inputs called safe; C_k says which class is in doubt."
	}
	row := plain[0]
	return text + fmt.Sprintf(". They leave %s critical calls, %s of them false, unreviewed: choose --scope %s where each of these is acted on.",
		document.Count(row.CriticalKept), document.Count(row.FalseKept), policy.PredictedSafe)
}

// guarantee says what is certified, or that nothing is.
func (c *calibration) guarantee() string {
	switch {
	case c.Refused() || c.EarlyStop != nil && c.Certificate == nil:
		return ""
	case c.Certificate == nil:
		return "No certificate: of misses nothing is guaranteed; --max-critical-miss asks for a bound."
	case c.Certificate.Void != "":
		return "No certificate. " + c.Certificate.Void
	case len(c.Certificate.Statement) > 400:
		return "Certificate: for this one attempt on this recording, if the labels are right."
	}
	return "Certificate, for this one attempt, if the labels are right: " + c.Certificate.Statement
}

// heldOut says of which inputs the figures are.
func (c *calibration) heldOut() string {
	if c.ComparisonBasis == "" {
		return ""
	}
	text := "Figures are of " + c.ComparisonBasis + "."
	if e := c.Expected; e != nil {
		text += fmt.Sprintf(" Expected of unseen inputs: %s retained (95%%: %.1f to %.1f).", document.Percent(e.Coverage), 100*e.CoverageInterval[0],
			100*e.CoverageInterval[1])
	}
	return text
}

// next says what to do.
func (c *calibration) next() (points []string) {
	add := func(format string, args ...any) { points = append(points, fmt.Sprintf(format, args...)) }
	file := c.file
	switch {
	case c.Refused() && c.Certificate == nil && strings.HasPrefix(c.Unsupported, "No policy is needed"):
		add("Serve the model as it is, or ask for a lower bound on fresh data: on this recording a second attempt is void.")
	case c.Refused() && c.Gain != nil && c.Gain.Without > 0 && c.Gain.Needed > c.Gain.Without:
		add("Record more: a rule that saves half of what random reviews leave shows with about %s critical inputs missed without review, here %s.",
			document.Count(c.Gain.Needed), document.Count(c.Gain.Without))
	case c.Refused() && c.Refusal != nil && c.Refusal.SmallestInputs > 0:
		add("Record about %s labelled inputs, or allow more misses.", document.Count(c.Refusal.SmallestInputs))
	case c.Refused() && c.EarlyStop != nil:
		add("Certify on more inputs: without any disagreement about %s could, of which all passes defer %s.", document.Count(c.EarlyStop.Refusal.FewestInputs),
			document.Count(c.EarlyStop.Refusal.FewestDeferred))
	case c.Refused():
		add("Record more labelled inputs, critical ones above all.")
	case file == "":
		add("Write the policy to a file with --out; here it is on the standard output.")
	default:
		add("Read what it means, then load it: ckd check %s; ckd serve --policy %s.", file, file)
	}
	if c.Refused() && c.Unsupported != "" {
		add("Serve a policy without thresholds meanwhile: it observes. --force writes this one, and says so in it.")
	}
	if n := len(c.Reread); n > 0 {
		var first []string
		for _, input := range c.Reread[:min(3, n)] {
			first = append(first, fmt.Sprintf("input %d (%s)", input.Input, document.Label(input.Label)))
		}
		add("Read labels again: of %s that the model calls safe it is surest of %s. --full lists the first, --format json all.",
			document.Noun(n, "critical input"), document.List(first))
	}
	if !c.Refused() && c.EarlyStop == nil {
		if file != "" {
			add("Plan the audits that show whether it keeps this: ckd outcomes plan --policy %s, on another recording.", file)
		}
		add("Have it signed: --format html prints one page.")
	}
	return points
}

// earlyStopLead says what the rule saves and what it changes.
func (c *calibration) earlyStopLead() string {
	e := c.EarlyStop
	if e.Rule == nil {
		return "No rule to stop early: " + sentence(e.Refusal.Reason)
	}
	return fmt.Sprintf("Inputs are answered after %.3g of %d passes on average, %.3g times fewer. With %s confidence each, at most %s of all inputs are "+
		"decided otherwise than by all passes, and at most %s of those that all passes defer are retained instead.", e.Rule.MeanPasses, e.Passes,
		e.Rule.Saving, document.RoundPercent(e.Confidence), document.RoundPercent(e.Epsilon), document.RoundPercent(e.Released))
}

// halves says how much chance is in the decision by all passes.
func (c *calibration) halves() string {
	if c.EarlyStop == nil || c.EarlyStop.HalvesDiffer == nil {
		return ""
	}
	h := c.EarlyStop.HalvesDiffer
	return fmt.Sprintf("Two halves of the passes decide %s of inputs differently (95%%: %.1f to %.1f): that much chance is in the decision by all passes.",
		document.Percent(h.Share), 100*h.Interval[0], 100*h.Interval[1])
}

// ruleSays says by what the policy defers, in words.
func ruleSays(c *calibrate.Chosen) string {
	if c == nil {
		return ""
	}
	text := "Policy: defer when " + above(c.Primary)
	if c.Fallback != nil {
		text += fmt.Sprintf("; where the contribution of a critical class cannot be trusted (skewness above %v), when %s", c.ReliabilityThreshold, above(*c.Fallback))
	}
	if c.Guard != nil {
		text += fmt.Sprintf(", and whatever is unfamiliar (mutual information above %.3g nats)", c.Guard.Threshold)
	}
	return text + "."
}

// scoreNames has the words for a score: in a sentence, its unit, and in a table.
var scoreNames = map[string]struct{ says, unit, short string }{
	"entropy":     {"the entropy", " nats", "entropy"},
	"mi":          {"the mutual information", " nats", "mutual information"},
	"maxprob":     {"the largest probability", "%", "largest probability"},
	"eu_var":      {"the variance over all classes", "", "variance, all classes"},
	"var_crit":    {"the largest variance of a critical class", "", "largest critical variance"},
	"eu_var_crit": {"the variance over the critical classes", "", "variance, critical classes"},
	"ova_mi":      {"the information on critical classes, each against the rest,", " nats", "critical against rest"},
	"sum_c":       {"the contribution of all classes", " nats", "sum of C_k"},
	"c_crit_sum":  {"the contribution of the critical classes", " nats", "sum of critical C_k"},
	"c_crit_max":  {"the largest contribution of a critical class", " nats", "largest critical C_k"},
	"cbec":        {"the confusion between safe and critical classes", " nats", "safe-critical confusion"},
	"p_critical":  {"the probability of the critical classes", "%", "probability of critical"},
	"risk":        {"the risk", "%", "risk"},
}

// above returns the condition of a threshold: "the risk is above 5.7%".
func above(t calibrate.Threshold) string {
	name, known := scoreNames[t.Score]
	switch {
	case !known:
		return fmt.Sprintf("%s is above %.3g", t.Score, t.Threshold)
	case t.Score == "maxprob":
		return fmt.Sprintf("%s is below %s", name.says, percentOf(1-t.Threshold))
	case name.unit == "%":
		return fmt.Sprintf("%s is above %s", name.says, percentOf(t.Threshold))
	}
	return fmt.Sprintf("%s is above %.3g%s", name.says, t.Threshold, name.unit)
}

// percentOf returns a share as a percentage, with more digits where it is small.
func percentOf(x float64) string {
	if x < 0.01 {
		return fmt.Sprintf("%.2g%%", 100*x)
	}
	return document.Percent(x)
}

// ruleWords returns the words for a row of the comparison.
func ruleWords(rule string) string {
	score, guarded := strings.CutSuffix(rule, " with guard")
	switch name, known := scoreNames[score]; {
	case known && guarded:
		return name.short + ", guarded"
	case known:
		return name.short
	case rule == "no deferral":
		return "without review"
	case rule == "calibrated":
		return "this procedure"
	case strings.HasPrefix(rule, string(policy.AnyCritical)):
		return "the paper's rule"
	}
	return rule
}

// capital returns a text that begins with a capital letter.
func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
