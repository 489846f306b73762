package report

import (
	"fmt"
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
	c.none = c.row(func(row *calibrate.Row) bool { return row.Rule == noReview })
	return c
}

// row returns the first row of the policy's scope that suits, and has figures.
func (c *calibration) row(suits func(*calibrate.Row) bool) *calibrate.Row {
	for i := range c.Comparison {
		if row := &c.Comparison[i]; !row.Nothing && (row.Scope == c.Scope || row.Rule == noReview) && suits(row) {
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
	s := document.Screen{Warnings: passcheck.Texts(c.Signs), Lead: c.lead(), Ask: c.askCalls(), Table: c.fiveRows(), Rests: c.rests(), Next: c.next()}
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
		return "No policy: this recording is not what it seems."
	case c.Refused():
		return "No policy: nothing certifies what was asked for. " + sentence(capital(c.Refusal.Reason))
	case c.Unsupported != "":
		said = append(said, c.Unsupported, "It was written because --force asks for it.")
	}
	if text := c.tooLittle(); text != "" {
		said = append(said, text)
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

// tooLittle says that the interval of the expected critical miss rate promises nothing: it is wider than
// 20 points, or reaches above the rate without review.
func (c *calibration) tooLittle() string {
	const widest = 0.2
	if c.Expected == nil || c.Expected.CriticalMissRateInterval == nil || c.Certificate != nil && c.Certificate.Void == "" {
		return ""
	}
	low, high := c.Expected.CriticalMissRateInterval[0], c.Expected.CriticalMissRateInterval[1]
	above := c.none != nil && c.none.CriticalMissRate != nil && high > *c.none.CriticalMissRate
	if high-low <= widest && !above {
		return ""
	}
	text := fmt.Sprintf("Too little to promise: up to %s may be missed, and no alarm sounds", document.Percent(high))
	switch line := policy.LineOf(c.Lines, policy.CriticalMissRate, ""); {
	case line.Above == 0:
		return text + "."
	case document.Percent(line.Above) != document.Percent(high):
		return text + " below " + document.Percent(line.Above) + "."
	}
	return text + " below that."
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
		text += " " + within95(*row.CriticalMissRate, row.CriticalMissRateInterval[0], row.CriticalMissRateInterval[1])
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
		inputs := "critical inputs"
		if l.Class != "" {
			inputs = document.Label(l.Class) + " inputs"
		}
		if l.Bounds == policy.CriticalFNR {
			inputs = "retained " + inputs
		}
		bounds = append(bounds, fmt.Sprintf("at most %s of %s are missed", document.RoundPercent(l.Target), inputs))
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
	kept, falseKept := float64(c.own.CriticalKept), float64(c.own.FalseKept)
	unreviewed := ": " + callsUnreviewed(kept, falseKept) + "."
	switch {
	case c.CriticalCalls == eval.Reviewed:
		return "People review inputs called critical anyway, which count among the reviews."
	case c.keepsCalls() && c.Chosen != nil && c.Chosen.Guard != nil:
		return "It sends inputs called critical only where they are unfamiliar" + unreviewed
	case c.keepsCalls():
		return "It never sends inputs called critical" + unreviewed
	case c.own.CriticalKept == 0:
		return "It sends every input called critical too."
	}
	called := kept
	if c.none != nil {
		called = float64(c.none.CriticalKept)
	}
	return callsSeen(called, kept, falseKept)
}

// fiveRows shows the rules that matter, on the same inputs.
func (c *calibration) fiveRows() *document.Table {
	if c.none == nil {
		return nil
	}
	t := &document.Table{Caption: "Critical inputs missed, measured on inputs that were not used to set the rule", TextColumns: 1,
		Head: []string{"rule", "missed of critical", "critical miss rate", "95% interval", "reviews per 1,000", "critical calls unreviewed", "of these false"}}
	add := func(name string, row *calibrate.Row) {
		if row == nil {
			return
		}
		rate, interval := known(row.CriticalMissRate, row.CriticalMissRateInterval)
		t.Add(name, document.Of{row.Missed, row.CriticalInputs}, rate, interval, perThousand(1000*share(row.Reviews, row.Inputs)),
			row.CriticalKept-reviewedCalls(c.Report, row), row.FalseKept*oneIf(c.CriticalCalls != eval.Reviewed))
	}
	add(noReview, c.none)
	add(short(mi), c.rule(mi))
	add(short(string(policy.AnyCritical)), c.paperRow())
	if plain := c.plain(c.Scope); len(plain) > 0 {
		add(short(plain[0].Rule), plain[0])
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
	if c.Certificate != nil {
		add(c.guarantee())
	}
	add(c.data(), c.gain(), c.plainSays(), c.paperSays())
	if c.Certificate == nil {
		add(c.guarantee())
	}
	add(c.heldOut(), c.halves())
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
	return fmt.Sprintf("Gain over chance: it saves %s of the %s missed without review, as many reviews drawn at random about %.0f; they would do as well with "+
		"a chance of %s (at most %s is wanted).", document.Count(g.Without-g.Missed), document.Count(g.Without),
		float64(g.Without)*share(g.Deferred, g.Eligible), chance(g.P), document.RoundPercent(eval.GainLevel))
}

// chance returns a probability in percent.
func chance(p float64) string {
	if p < 0.001 {
		return "under 0.1%"
	}
	return document.Percent(p)
}

// plainSays says whether scores without any decomposition do as well, with the recording's numbers.
func (c *calibration) plainSays() string {
	plain := c.plain(policy.PredictedSafe)
	if c.own == nil || len(plain) == 0 || c.Unsupported != "" {
		return ""
	}
	own, few := float64(c.own.Missed), plain[0]
	clearlyMore := clearlyFewer(own, float64(few.Missed))
	if c.Certificate != nil { // each at its own number of reviews
		var each []string
		for _, row := range plain {
			each = append(each, fmt.Sprintf("%s %s with %s", short(row.Rule), document.Count(row.Missed), perThousand(1000*share(row.Reviews, row.Inputs))))
		}
		return fmt.Sprintf("Missed by plain scores, which defer only inputs called safe here, and reviews per 1,000 inputs that they need: %s; this policy %s with %s.",
			strings.Join(each, ", "), document.Count(own), perThousand(1000*share(c.own.Reviews, c.own.Inputs)))
	}
	var rules []missedBy
	for _, row := range plain {
		rules = append(rules, missedBy{row.Rule, float64(row.Missed)})
	}
	text := "Missed by plain scores, which defer only inputs called safe here: " + missesOf(rules)
	switch {
	case clearlyMore:
		return text + "; clearly more than by this policy."
	case clearlyFewer(float64(few.Missed), own):
		text += "; clearly fewer than by this policy."
	case c.keepsCalls():
		return text + "; about as few as by this policy. The gain is in deferring only inputs called safe; C_k says which class is in doubt."
	default:
		text += "; about as many as by this policy."
	}
	return text
}

// paperRow returns the row of the paper's rule.
func (c *calibration) paperRow() *calibrate.Row {
	return c.row(func(row *calibrate.Row) bool { return strings.HasPrefix(row.Rule, string(policy.AnyCritical)) })
}

// paperSays says why a policy of one score is kept where the paper's rule misses a few less.
func (c *calibration) paperSays() string {
	paper := c.paperRow()
	if c.own == nil || paper == nil || c.Chosen == nil || c.Chosen.Fallback != nil || paper.Missed >= c.own.Missed || c.Certificate != nil ||
		clearlyFewer(float64(paper.Missed), float64(c.own.Missed)) {
		return ""
	}
	return fmt.Sprintf("The paper's rule misses %s, this policy %s. This policy is kept: simpler, and no clear difference.",
		document.Count(paper.Missed), document.Count(c.own.Missed))
}

// askCalls asks what becomes of critical calls, where another answer gives a policy of fewer misses.
func (c *calibration) askCalls() string {
	if c.own == nil || c.CriticalCalls != "" || c.Scope == policy.PredictedSafe || c.keepsCalls() || c.Unsupported != "" {
		return ""
	}
	var other *calibrate.Row
	for i := range c.Comparison {
		if row := &c.Comparison[i]; row.Calibrated && !row.Nothing && row.Scope == policy.PredictedSafe {
			other = row
		}
	}
	if plain := c.plain(policy.PredictedSafe); other == nil && len(plain) > 0 {
		other = plain[0]
	}
	switch {
	case other == nil:
		return ""
	case c.Certificate != nil && other.Reviews < c.own.Reviews:
		return fmt.Sprintf("To be said first: what becomes of an input called critical that nobody is sent? If each is acted on anyway, the bound takes about "+
			"%s reviews per 1,000 inputs instead of %s: --critical-calls %s, on inputs that certified nothing yet.",
			perThousand(1000*share(other.Reviews, other.Inputs)), perThousand(1000*share(c.own.Reviews, c.own.Inputs)), eval.ActedOn)
	case c.Certificate != nil || other.Missed >= c.own.Missed:
		return ""
	}
	return fmt.Sprintf("To be said first: what becomes of an input called critical that nobody is sent? If each is acted on anyway, --critical-calls %s "+
		"gives a policy that misses about %s instead of %s, and leaves %s false calls instead of %s unreviewed.", eval.ActedOn,
		document.Count(other.Missed), document.Count(c.own.Missed), document.Count(other.FalseKept), document.Count(c.own.FalseKept))
}

// guarantee says what is certified, or that nothing is.
func (c *calibration) guarantee() string {
	switch {
	case c.Refused() || c.EarlyStop != nil && c.Certificate == nil:
		return ""
	case c.Certificate == nil:
		return c.notGuaranteed()
	case c.Certificate.Void != "":
		return "No certificate. " + c.Certificate.Void
	case len(c.Certificate.Statement) > 400:
		return "Certificate: for this one attempt on this recording, if the labels are right."
	}
	return "Certificate, for this one attempt, if the labels are right: " + c.Certificate.Statement
}

// notGuaranteed says what is expected where nothing is certified, and when it alarms.
func (c *calibration) notGuaranteed() string {
	text := "Of misses nothing is guaranteed"
	if e := c.Expected; e != nil && e.CriticalMissRate != nil {
		text += fmt.Sprintf(": expected are %s", document.Percent(*e.CriticalMissRate))
		if line := policy.LineOf(c.Lines, policy.CriticalMissRate, ""); line.Above > 0 {
			text += fmt.Sprintf(", and an alarm sounds above %s", document.Percent(line.Above))
		}
	}
	return text + ". --max-critical-miss asks for a bound instead of a number of reviews."
}

// heldOut says of which inputs the figures are.
func (c *calibration) heldOut() string {
	if c.ComparisonBasis == "" {
		return ""
	}
	text := "Figures are measured on " + c.ComparisonBasis + "."
	if e := c.Expected; e != nil {
		text += fmt.Sprintf(" Expected of unseen inputs: %s retained (%s).", document.Percent(e.Coverage),
			document.Interval95(e.CoverageInterval[0], e.CoverageInterval[1]))
	}
	return text
}

// mends says what to do about a recording that is not what it seems.
func (c *calibration) mends() (points []string) {
	for _, sign := range passcheck.Void(c.Signs) {
		switch sign.Name {
		case passcheck.DropoutOff:
			points = append(points, "Turn dropout on and record again.")
		case passcheck.ChanceLabels:
			points = append(points, "Check that labels and passes are of the same inputs in the same order.")
		default:
			points = append(points, "Mend what the warning names, and record again.")
		}
	}
	slices.Sort(points)
	return slices.Compact(points)
}

// next says what to do.
func (c *calibration) next() (points []string) {
	add := func(format string, args ...any) { points = append(points, fmt.Sprintf(format, args...)) }
	file := c.file
	mends := c.mends()
	switch {
	case len(mends) > 0 && c.Refused():
		points = append(points, mends...)
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
	case c.Refused() && c.Gain != nil && c.Gain.Deferred > 0 && c.Gain.Without > 0:
		add("No score here separates misses from the rest: try another model or sampling.")
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
		add("Have it signed: --format html prints one page. %s: %s.", capital(hashName), c.PolicyHash)
	}
	return points
}

// earlyStopLead says what the rule saves and what it changes.
func (c *calibration) earlyStopLead() string {
	e := c.EarlyStop
	if e.Rule == nil {
		return "No rule to stop early: " + sentence(e.Refusal.Reason)
	}
	return fmt.Sprintf("Inputs are answered after %.3g of %d passes on average, %.3g times fewer. With %s confidence each: at most %s of all inputs are "+
		"decided otherwise than by all passes, and at most %s of those that all passes defer are retained instead.", e.Rule.MeanPasses, e.Passes,
		e.Rule.Saving, document.RoundPercent(e.Confidence), document.RoundPercent(e.Epsilon), document.RoundPercent(e.Released))
}

// halves says how much chance is in the decision by all passes.
func (c *calibration) halves() string {
	if c.EarlyStop == nil || c.EarlyStop.HalvesDiffer == nil {
		return ""
	}
	h := c.EarlyStop.HalvesDiffer
	return fmt.Sprintf("Two halves of the passes decide %s of inputs differently (%s): that much chance is in the decision by all passes.",
		document.Percent(h.Share), document.Interval95(h.Interval[0], h.Interval[1]))
}

// ruleSays says by what the policy defers, in words.
func ruleSays(c *calibrate.Chosen) string {
	if c == nil {
		return ""
	}
	p := policy.Policy{Gate: policy.Never, ReliabilityThreshold: c.ReliabilityThreshold, Primary: policy.Rule{Score: policy.Score(c.Primary.Score), Threshold: c.Primary.Threshold}}
	if f := c.Fallback; f != nil {
		p.Gate, p.Fallback = c.Gate, policy.Rule{Score: policy.Score(f.Score), Threshold: f.Threshold}
	}
	text := "Policy: defer when " + p.Condition()
	if c.Guard != nil {
		text += ", or the input is unfamiliar: " + policy.Score(c.Guard.Score).Above(c.Guard.Threshold)
	}
	return text + "."
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
