package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Report holds the demo's results.
type Report struct {
	recording *recordings.Recording
	model     *ckdv1.Model // as the daemon describes it
	tuned     int          // inputs that set the thresholds
	shown     []int        // inputs of the recording, with a result each
	results   []client.Result
	took      time.Duration // by streaming them
	outcomes  *outcomes

	api, http, admin string // where the daemon listens
}

// topDeferred bounds the deferred inputs that are listed.
const topDeferred = 5

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.writePolicy(&b)
	r.writeClasses(&b)
	r.writeRules(&b)
	r.writeTop(&b)
	r.outcomes.write(&b)
	fmt.Fprintf(&b, "\nThe daemon of this demo (--keep leaves it up):\ngRPC API %s\nHTTP API %s\nmetrics  %s/metrics\npage     %[3]s/\n",
		r.api, r.http, r.admin)
	_, err := io.WriteString(w, b.String())
	return err
}

// writePolicy writes how the policy was tuned, and how it decided.
func (r *Report) writePolicy(b *strings.Builder) {
	primary, fallback := r.model.GetPrimary(), r.model.GetFallback()
	fmt.Fprintf(b, "Model %s: %s.\n", r.model.GetPolicy().GetModel(), r.recording.Note)
	fmt.Fprintf(b, "Thresholds were set on %d other inputs, to retain %.0f%% of those that each score decides:\n", r.tuned, 100*coverage)
	fmt.Fprintf(b, "  %s at %.4g nats where every critical class is reliable, else %s at %.4g.\n",
		score(primary.GetScore()), primary.GetThreshold(), score(fallback.GetScore()), fallback.GetThreshold())
	fmt.Fprintf(b, "  (math/rand/v2, rand.New(rand.NewPCG(%d, %d)).Perm(N): first half tunes, second half is shown)\n", seed1, seed2)
	if s := r.model.GetSettle(); s != nil {
		fmt.Fprintf(b, "Its early-stopping rule, which the traffic of --keep uses, took %.1f of %d passes on average where it was certified,\n",
			s.GetMeanPasses(), r.recording.Passes.S)
		fmt.Fprintf(b, "  with confidence %.0f%%, to decide at most %.4g%% of the inputs otherwise than all passes do.\n",
			100*s.GetConfidence(), 100*s.GetDisagreement())
	}
	inputs, retained, byFallback := len(r.results), 0, 0
	for _, result := range r.results {
		if result.Retained() {
			retained++
		}
		if result.Decomposition.GetDecision().GetGate() == ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK {
			byFallback++
		}
	}
	fmt.Fprintf(b, "\n%d inputs x %d passes streamed and decided in %.2f s: %d retained, %d deferred to a person.\n",
		inputs, r.recording.Passes.S, r.took.Seconds(), retained, inputs-retained)
	fmt.Fprintf(b, "%d of them (%.0f%%) were decided by the fallback score, %s.\n\n", byFallback, 100*float64(byFallback)/float64(inputs),
		score(fallback.GetScore()))
}

func score(s ckdv1.Score) string { return answer.Word("SCORE_", s) }

func (r *Report) writeClasses(b *strings.Builder) {
	fmt.Fprintln(b, "What the model is ignorant about, by class (C_k in nats; unreliable: skewness over the policy's threshold)")
	classes := newTable("class", "mean C_k", "unreliable", "dominant")
	for k, name := range r.model.GetClasses() {
		var c, unreliable, dominant float64
		for _, result := range r.results {
			c += result.Decomposition.GetC()[k]
			if slices.Contains(result.Decomposition.GetUnreliable(), uint32(k)) {
				unreliable++
			}
			if result.Decomposition.Dominant != nil && result.Decomposition.GetDominant() == uint32(k) {
				dominant++
			}
		}
		if slices.Contains(r.recording.Critical, k) {
			name += " (critical)"
		}
		n := float64(len(r.results))
		classes.AppendRow(table.Row{name, fmt.Sprintf("%.4f", c/n), document.Percent(unreliable / n), document.Percent(dominant / n)})
	}
	fmt.Fprintf(b, "%s\n\n", classes.Render())
}

// rule is a rule of deferral with what it does, by the labels.
type rule struct {
	name string
	eval.Selective
}

// rules judges what is retained without deferral, by mutual information alone for as many inputs, and by
// ckd.
func (r *Report) rules() []rule {
	labels, predicted, mi := make([]int, len(r.results)), make([]int, len(r.results)), make([]float64, len(r.results))
	all, byPolicy, kept := make([]bool, len(r.results)), make([]bool, len(r.results)), 0
	for i, result := range r.results {
		labels[i], predicted[i], mi[i] = r.recording.Labels[r.shown[i]], int(result.Decomposition.GetPredicted()), result.Decomposition.GetMi()
		all[i], byPolicy[i] = true, result.Retained()
		if byPolicy[i] {
			kept++
		}
	}
	judge := func(name string, retained []bool) rule {
		return rule{name, eval.Select(labels, predicted, retained, r.recording.Critical)}
	}
	return []rule{judge("no deferral", all), judge("mutual information alone", eval.Lowest(mi, kept)), judge("ckd", byPolicy)}
}

func (r *Report) writeRules(b *strings.Builder) {
	fmt.Fprintln(b, "What was retained, judged by the labels (missed: critical, predicted safe and retained)")
	rows := newTable("rule", "retained", "missed of critical", "critical miss rate", "accuracy")
	rules := r.rules()
	critical := rules[0].Critical // all of them are retained without deferral
	for _, rule := range rules {
		rows.AppendRow(table.Row{
			rule.name, fmt.Sprintf("%d (%s)", rule.Retained, document.Percent(rule.Coverage())),
			fmt.Sprintf("%d of %d", rule.Missed, critical), fmt.Sprintf("%.4f", float64(rule.Missed)/float64(critical)),
			fmt.Sprintf("%.4f", rule.Accuracy()),
		})
	}
	fmt.Fprintf(b, "%s\n\n", rows.Render())
}

// missed returns the inputs of the recording that are critical, called safe and retained.
func (r *Report) missed() (missed []int) {
	isCritical := func(class int) bool { return slices.Contains(r.recording.Critical, class) }
	for i, result := range r.results {
		if result.Retained() && isCritical(r.recording.Labels[r.shown[i]]) && !isCritical(int(result.Decomposition.GetPredicted())) {
			missed = append(missed, r.shown[i])
		}
	}
	return missed
}

// top returns the numbers of the deferred results that are furthest over their thresholds. The two scores
// have different scales, so that the rank is by the ratio.
func (r *Report) top() (top []int) {
	for i, result := range r.results {
		if !result.Retained() {
			top = append(top, i)
		}
	}
	over := func(i int) float64 {
		d := r.results[i].Decomposition.GetDecision()
		return d.GetValue() / d.GetThreshold()
	}
	slices.SortStableFunc(top, func(a, b int) int { return cmp.Compare(over(b), over(a)) })
	return top[:min(topDeferred, len(top))]
}

// writeTop writes the deferred inputs, with C_k of each class.
func (r *Report) writeTop(b *strings.Builder) {
	top, classes := r.top(), r.model.GetClasses()
	fmt.Fprintf(b, "The %d deferred inputs furthest over their thresholds (with C_k of each class; ? where it is unreliable)\n", len(top))
	for _, i := range top {
		result := r.results[i]
		d := result.Decomposition.GetDecision()
		fmt.Fprintf(b, "  %s: predicted %s, labelled %s; %s %.4g is over %.4g", result.ID, classes[result.Decomposition.GetPredicted()],
			classes[r.recording.Labels[r.shown[i]]], score(d.GetScore()), d.GetValue(), d.GetThreshold())
		if d.DecidingClass != nil {
			fmt.Fprintf(b, ", most of it from %s", classes[d.GetDecidingClass()])
		}
		if d.GetGate() == ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK {
			b.WriteString(" (fallback: a critical class is unreliable)")
		}
		var c []string
		for k, value := range result.Decomposition.GetC() {
			mark := ""
			if slices.Contains(result.Decomposition.GetUnreliable(), uint32(k)) {
				mark = "?"
			}
			c = append(c, fmt.Sprintf("%s %.4f%s", classes[k], value, mark))
		}
		fmt.Fprintf(b, "\n    %s\n", strings.Join(c, ", "))
	}
}

func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	columns := make([]table.ColumnConfig, 0, len(header))
	for i := range header[1:] {
		columns = append(columns, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}
