package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
)

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.writePolicy(&b)
	r.writeClasses(&b)
	r.writeRules(&b)
	r.writeTop(&b)
	r.writeOutcomes(&b)
	fmt.Fprintf(&b, "\nThe daemon of this demo (--keep leaves it up):\ngRPC API %s\nHTTP API %s\nmetrics  %s\npage     %s\n",
		r.Addresses.API, r.Addresses.HTTP, r.Addresses.Metrics, r.Addresses.Page)
	_, err := io.WriteString(w, b.String())
	return err
}

// writePolicy writes how the policy was tuned, and how it decided.
func (r *Report) writePolicy(b *strings.Builder) {
	fmt.Fprintf(b, "Model %s: %s.\n", r.Model, r.Recording)
	fmt.Fprintf(b, "Thresholds were set on %d other inputs, to retain %.0f%% of those that each score decides:\n", r.Tuning.Inputs, 100*r.Tuning.Coverage)
	fmt.Fprintf(b, "  %s at %.4g nats where every critical class is reliable, else %s at %.4g.\n",
		r.Policy.Primary.Score, r.Policy.Primary.Threshold, r.Policy.Fallback.Score, r.Policy.Fallback.Threshold)
	fmt.Fprintf(b, "  (%s)\n", r.Tuning.Permutation)
	if s := r.Policy.Settle; s != nil {
		fmt.Fprintf(b, "Its early-stopping rule, which the traffic of --keep uses, took %.1f of %d passes on average where it was certified,\n", s.MeanPasses, r.Passes)
		fmt.Fprintf(b, "  with confidence %.0f%%, to decide at most %.4g%% of the inputs otherwise than all passes do.\n", 100*s.Confidence, 100*s.Disagreement)
	}
	fmt.Fprintf(b, "\n%d inputs x %d passes streamed and decided in %.2f s: %d retained, %d deferred to a person.\n",
		r.Inputs, r.Passes, r.Seconds, r.Retained, r.Deferred)
	fmt.Fprintf(b, "%d of them (%.0f%%) were decided by the fallback score, %s.\n\n", r.Fallback, 100*float64(r.Fallback)/float64(r.Inputs), r.Policy.Fallback.Score)
}

func (r *Report) writeClasses(b *strings.Builder) {
	fmt.Fprintln(b, "What the model is ignorant about, by class (C_k in nats; unreliable: skewness over the policy's threshold)")
	classes := newTable("class", "mean C_k", "unreliable", "dominant")
	for _, c := range r.Classes {
		name := c.Name
		if c.Critical {
			name += " (critical)"
		}
		classes.AppendRow(table.Row{name, fmt.Sprintf("%.4f", c.MeanC), document.Percent(c.Unreliable), document.Percent(c.Dominant)})
	}
	fmt.Fprintf(b, "%s\n\n", classes.Render())
}

func (r *Report) writeRules(b *strings.Builder) {
	fmt.Fprintln(b, "What was retained, judged by the labels (missed: critical, predicted safe and retained)")
	rules := newTable("rule", "retained", "missed of critical", "critical miss rate", "accuracy")
	for _, rule := range r.Rules {
		rules.AppendRow(table.Row{
			rule.Name, fmt.Sprintf("%d (%s)", rule.Retained, document.Percent(rule.Coverage)),
			fmt.Sprintf("%d of %d", rule.Missed, rule.CriticalInputs), fmt.Sprintf("%.4f", rule.CriticalMissRate),
			fmt.Sprintf("%.4f", rule.Accuracy),
		})
	}
	fmt.Fprintf(b, "%s\n\n", rules.Render())
}

// writeOutcomes writes what outcomes say, and what happened when misses became more frequent.
func (r *Report) writeOutcomes(b *strings.Builder) {
	o := r.Outcomes
	fmt.Fprintf(b, "\nIs it keeping its promise? Simulated readers looked at what was deferred, and at %d inputs of those called safe and retained,\n", o.Audits)
	fmt.Fprintf(b, "drawn at random. Of %d inputs (drawn from the same), %d outcomes came back in %.1f s:\n", o.Inputs, o.Outcomes, o.Seconds)
	figures := newTable("critical FNR of the retained", "share")
	figures.AppendRows([]table.Row{
		{"truth, by the labels of all inputs", fmt.Sprintf("%.4f", o.Truth)},
		{"by outcomes, weighted", fmt.Sprintf("%.4f (95%% interval %.4f to %.4f, valid at all times)", o.Estimate, o.Low, o.High)},
		{"by outcomes, WITHOUT weights: do not", fmt.Sprintf("%.4f", o.Unweighted)},
		{"line, which its user chose", fmt.Sprintf("%.4f", o.Line)},
	})
	fmt.Fprintf(b, "%s\nVerdict: %s.\n", figures.Render(), strings.ReplaceAll(o.Verdict, "_", " "))
	s := o.Shift
	if s == nil {
		return
	}
	fmt.Fprintf(b, "\nThen inputs like the missed ones came %d times as often: of %d inputs the FNR is %.4f, by their labels.\n", s.Times, s.Inputs, s.Truth)
	fmt.Fprintf(b, "Drift, which sees no labels, raised %s.\n", count(s.DriftAlarms, "alarm"))
	if s.Raised {
		fmt.Fprintf(b, "Outcomes raised the alarm after %d of them, %d of which cost an audit, within %.1f s.\n", s.AlarmOutcomes, s.AlarmAudits, s.Seconds)
	} else {
		fmt.Fprintf(b, "Outcomes raised no alarm in %.1f s.\n", s.Seconds)
	}
}

// count returns a number of things in words.
func count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "one " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// writeTop writes the deferred inputs, with a bar for C_k of each class.
func (r *Report) writeTop(b *strings.Builder) {
	fmt.Fprintf(b, "The %d deferred inputs furthest over their thresholds (bars: C_k of each class; ? where it is unreliable)\n", len(r.Top))
	for _, d := range r.Top {
		fmt.Fprintf(b, "  %s: predicted %s, labelled %s; %s\n", d.Input, d.Predicted, d.Label, d.why())
		for k, c := range d.C {
			mark := " "
			if d.Skewness[k] > r.Policy.Reliability {
				mark = "?"
			}
			fmt.Fprintf(b, "    %-12s %s %s %.4f\n", r.Classes[k].Name, bar(c, d.C), mark, c)
		}
	}
}

// why returns in words why an input was deferred.
func (d *Deferred) why() string {
	text := fmt.Sprintf("%s %.4g is over %.4g", d.Score, d.Value, d.Threshold)
	if d.Class != "" {
		text += ", most of it from " + d.Class
	}
	if d.Gate == "fallback" {
		text += " (fallback: a critical class is unreliable)"
	}
	return text
}

// bar draws a value against the largest of its vector, in eighths of a cell.
func bar(value float64, of []float64) string {
	const cells = 16
	largest := 0.0
	for _, v := range of {
		largest = max(largest, v)
	}
	eighths := 0
	if largest > 0 {
		eighths = int(value/largest*cells*8 + 0.5)
	}
	drawn := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		drawn += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text.Pad(drawn, cells, ' ')
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
