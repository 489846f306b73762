package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/cmd/ckd/internal/replay"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// mostLines bounds what a command about outcomes prints unless asked for everything.
const mostLines = 40

// outcomesFiguresCmd prints what outcomes say about each policy.
type outcomesFiguresCmd struct {
	daemonFlags
	Model  string `placeholder:"NAME" help:"Only of this model."`
	All    bool   `help:"Print the figures of every policy and model version, however many lines that takes."`
	Format string `enum:"text,json" default:"text" help:"Form of the output: ${enum}. (${default})"`
}

// Help is the long text of ckd outcomes figures --help.
func (*outcomesFiguresCmd) Help() string {
	return `First what outcomes say of each policy and model version, the worst first; then what to do where an alarm is up;
then figures, as the triage page shows them, as far as 40 lines go.

    ckd outcomes figures --addr 127.0.0.1:8590 --model fetal-health

Exit codes: 0 the figures are printed, whatever they say; 1 the daemon cannot be asked; 2 wrong usage.`
}

// Run asks for the promises and prints them.
func (c *outcomesFiguresCmd) Run(ctx *cmdContext) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	reply, err := daemon.Outcomes().ListPromises(ctx.Ctx, &ckdv1.ListPromisesRequest{Model: c.Model})
	if err != nil {
		return errors.New(replay.StatusText(err))
	}
	if c.Format == "json" {
		text, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true}.Marshal(reply)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(ctx.Stdout, "%s\n", text)
		return err
	}
	_, err = fmt.Fprint(ctx.Stdout, figuresText(reply.GetPromises(), c.All))
	return err
}

// badness orders verdicts for the reader: what needs them comes first.
var badness = map[ckdv1.Verdict]int{
	ckdv1.Verdict_VERDICT_VIOLATED: -4, ckdv1.Verdict_VERDICT_IN_DOUBT: -3, ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES: -2, ckdv1.Verdict_VERDICT_NO_LINE: -1,
}

// figuresText says of each promise whether it holds, what to do about alarms, and then prints figures, all of
// them or what mostLines leave room for.
func figuresText(all []*ckdv1.PromiseFigures, whole bool) string {
	if len(all) == 0 {
		return "Nothing is known: no daemon has told of a policy with audits or receipts, or the identity may use none of the models.\n"
	}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *ckdv1.PromiseFigures) int {
		return cmp.Compare(badness[a.GetPromise().GetVerdict()], badness[b.GetPromise().GetVerdict()])
	})
	var b strings.Builder
	stated := len(all)
	if !whole {
		stated = min(stated, mostLines-30) // figures have 26 lines, and what is hidden and what to do one each
	}
	for _, p := range all[:stated] {
		if len(all) > 1 {
			b.WriteString(promiseTitle(p) + ": ")
		}
		b.WriteString(p.GetPromise().GetStatement() + "\n")
	}
	if stated < len(all) {
		fmt.Fprintf(&b, "... and %d more: --all, or --model NAME\n", len(all)-stated)
	}
	if all[0].GetPromise().GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED {
		fmt.Fprintf(&b, "What to do: %s\n", actsText(all[0]))
	}
	lines, hidden := strings.Count(b.String(), "\n")+1, 0
	for i, p := range all {
		text := promiseText(p)
		if n := strings.Count(text, "\n"); i == 0 || whole || lines+n <= mostLines {
			b.WriteString(text)
			lines += n
			continue
		}
		hidden++
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "\nFigures of %d more: --all, or --model NAME\n", hidden)
	}
	return b.String()
}

// actsText says what to do about an alarm, the first thing first.
func actsText(p *ckdv1.PromiseFigures) string {
	since := ""
	for _, f := range figuresShown(p) {
		if at := f.GetMonitor().GetSince(); at != nil {
			since = " since " + moment(at.AsTime())
			break
		}
	}
	return fmt.Sprintf("defer everything called safe, where the policy does not do so already. Look again at what was retained%s. Find the "+
		"cause. Then calibrate on current inputs, or end the alarm: ckd outcomes clear --model %s --reason WHY --by WHO",
		since, p.GetPromise().GetPolicy().GetModel())
}

// promiseTitle names a promise by model, model version and policy.
func promiseTitle(p *ckdv1.PromiseFigures) string {
	promise := p.GetPromise()
	return fmt.Sprintf("%s, version %s, policy %.12s", promise.GetPolicy().GetModel(), cmp.Or(promise.GetModelVersion(), "not stated"), promise.GetPolicy().GetHash())
}

// promiseText returns the figures of a promise, in 26 lines at most.
func promiseText(p *ckdv1.PromiseFigures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", promiseTitle(p))
	for _, why := range p.GetWhy()[:min(3, len(p.GetWhy()))] {
		if !strings.Contains(p.GetPromise().GetStatement(), why) {
			fmt.Fprintf(&b, "  not holding: %s\n", why)
		}
	}
	table(&b, riskRows(p))
	if f := figuresShown(p); len(f) > 0 {
		writeFirst(&b, p, f[0])
	}
	if said := p.GetExpected().GetStatement(); said != "" && !strings.HasSuffix(p.GetPromise().GetStatement(), said) {
		fmt.Fprintf(&b, "  %s\n", said)
	}
	table(&b, strataRows(p))
	fmt.Fprintf(&b, "  %s\n", dueText(p))
	if share := p.GetTraffic().GetShare(); share != nil && share.GetValue() < 0.9995 {
		fmt.Fprintf(&b, "  Only %s of the inputs come from clients that take receipts: nothing is known of the others.\n", percent(share.GetValue()))
	}
	if y := p.GetMature().GetYieldWrong().GetShare(); y != nil {
		fmt.Fprintf(&b, "  Of the deferred %s (95%%: %s) were predicted wrong.\n", percent(y.GetValue()), limits(y))
	}
	if r := p.GetMature().GetReaders(); r.GetMissed() > 0 {
		fmt.Fprintf(&b, "  Of %d inputs called safe and read as critical, %d are unconfirmed by a second source and %d withdrawn.\n", r.GetMissed(), r.GetUnconfirmed(), r.GetWithdrawn())
	}
	return b.String()
}

// figuresShown returns the critical miss rate, and the other figures that have a line, six at most.
func figuresShown(p *ckdv1.PromiseFigures) (shown []*ckdv1.RiskFigure) {
	const most = 6
	for i, f := range p.GetMature().GetFigures() {
		if (i < 1 || f.Line != nil) && len(shown) < most {
			shown = append(shown, f)
		}
	}
	return shown
}

func riskRows(p *ckdv1.PromiseFigures) [][]string {
	rows := [][]string{{"share missed", "average since (95%)", "lately (95%)", "line", "evidence", "outcomes"}}
	for _, f := range figuresShown(p) {
		name := strings.ReplaceAll(strings.Replace(answer.Word("CERTIFIED_FIGURE_", f.GetFigure()), "fnr", "FNR", 1), "_", " ")
		if f.GetCriticalClass() != "" {
			name += " of " + f.GetCriticalClass()
		}
		line, evidence := "-", "-"
		if f.Line != nil {
			line = percent(f.GetLine())
		}
		if m := f.GetMonitor(); m != nil {
			evidence = fmt.Sprintf("%.0f%%", 100*m.GetLogEvidence())
			if m.GetRaised() {
				evidence += " ALARM"
			}
		}
		rows = append(rows, []string{name, shareText(f.GetAverage()), shareText(f.GetLately().GetShare()), line, evidence, document.Count(float64(f.GetOutcomes()))})
	}
	return rows
}

// writeFirst says what else is known of the first figure.
func writeFirst(b *strings.Builder, p *ckdv1.PromiseFigures, f *ckdv1.RiskFigure) {
	if f.GetOutcomesNeeded() > 0 && p.GetPromise().GetVerdict() == ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES {
		fmt.Fprintf(b, "  About %s more outcomes would do, if the risk is as it seems.\n", document.Count(math.Ceil(f.GetOutcomesNeeded())))
	}
	if o := f.GetOverdue(); o != nil && o.GetHigh() > o.GetLow() {
		fmt.Fprintf(b, "  If no overdue outcome were a miss it would be %s, if all were %s.\n", percent(o.GetLow()), percent(o.GetHigh()))
	}
	if f.GetAverage() != nil && f.Unweighted != nil {
		fmt.Fprintf(b, "  Naive average of the outcomes (wrong): %s.\n", percent(f.GetUnweighted()))
	}
	if m := f.GetMonitor(); m.GetRunLength() > 0 {
		fmt.Fprintf(b, "  At 100%% evidence the alarm sounds. A false alarm: at most one in %s outcomes", threeDigits(m.GetRunLength()))
		if m.RunLengthInputs != nil {
			fmt.Fprintf(b, ", about %s inputs", threeDigits(m.GetRunLengthInputs()))
		}
		b.WriteString(".\n")
	}
}

func strataRows(p *ckdv1.PromiseFigures) [][]string {
	rows := [][]string{{"stratum", "inputs", "reviews", "due", "came", "overdue"}}
	for _, s := range p.GetStrata() {
		count := func(n uint64) string { return document.Count(float64(n)) }
		overdue := count(s.GetOverdue())
		if late := s.GetLate().GetShare(); late != nil && s.GetOverdue() > 0 {
			overdue += " (" + percent(late.GetValue()) + ")"
		}
		rows = append(rows, []string{strings.ReplaceAll(answer.Word("STRATUM_", s.GetStratum()), "_", " "), count(s.GetDecisions()), count(s.GetReviews()),
			count(s.GetDue()), count(s.GetArrived()), overdue})
	}
	return rows
}

// dueText says how far outcomes are complete.
func dueText(p *ckdv1.PromiseFigures) string {
	next := p.GetNextMature()
	switch {
	case p.GetMatureCohorts() == 0:
		return "Nothing is complete yet: all periods still wait for readers."
	case next == nil:
		return "Outcomes are complete."
	}
	complete := next.AsTime().Add(-p.GetDue().AsDuration() - p.GetCohortPeriod().AsDuration())
	return fmt.Sprintf("Complete up to %s; %s still %s for readers.", moment(complete), document.Noun(int(p.GetOpenCohorts()), "later period"),
		map[bool]string{true: "waits", false: "wait"}[p.GetOpenCohorts() == 1])
}

// table writes rows in columns, indented.
func table(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder does not fail
}

func shareText(s *ckdv1.Share) string {
	if s == nil {
		return "not known"
	}
	return fmt.Sprintf("%s (%s)", percent(s.GetValue()), limits(s))
}

func limits(s *ckdv1.Share) string {
	return fmt.Sprintf("%s to %s", percent(s.GetLow()), percent(s.GetHigh()))
}

// threeDigits returns a large number with commas between thousands, rounded to three digits.
func threeDigits(n float64) string {
	scale := math.Pow(10, max(0, math.Floor(math.Log10(n))-2))
	return document.Count(math.Round(n/scale) * scale)
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
