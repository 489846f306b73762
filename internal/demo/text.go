package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("Model %s: %s.", r.Model, r.Recording)
	line("Thresholds were set on %d other inputs, to retain %.0f%% of those that each score decides:", r.Tuning.Inputs, 100*r.Tuning.Coverage)
	line("  %s at %.4g nats where every critical class is reliable, else %s at %.4g.",
		r.Policy.Primary.Score, r.Policy.Primary.Threshold, r.Policy.Fallback.Score, r.Policy.Fallback.Threshold)
	line("  (%s)", r.Tuning.Permutation)
	if s := r.Policy.Settle; s != nil {
		line("Its early-stopping rule, which the traffic of --keep uses, took %.1f of %d passes on average where it was certified,", s.MeanPasses, r.Passes)
		line("  with confidence %.0f%%, to decide at most %.4g%% of the inputs otherwise than all passes do.", 100*s.Confidence, 100*s.Disagreement)
	}
	line("")
	line("%d inputs x %d passes streamed and decided in %.2f s: %d retained, %d deferred to a person.",
		r.Inputs, r.Passes, r.Seconds, r.Retained, r.Deferred)
	line("%d of them (%.0f%%) were decided by the fallback score, %s.", r.Fallback, 100*float64(r.Fallback)/float64(r.Inputs), r.Policy.Fallback.Score)
	line("")

	line("What the model is ignorant about, by class (C_k in nats; unreliable: skewness over the policy's threshold)")
	classes := newTable("class", "mean C_k", "unreliable", "dominant")
	for _, c := range r.Classes {
		name := c.Name
		if c.Critical {
			name += " (critical)"
		}
		classes.AppendRow(table.Row{name, fmt.Sprintf("%.4f", c.MeanC), percent(c.Unreliable), percent(c.Dominant)})
	}
	line("%s", classes.Render())
	line("")

	line("What was retained, judged by the labels (critical FNR: of the critical inputs retained, those predicted safe)")
	rules := newTable("rule", "retained", "accuracy", "critical FNR", "missed of critical")
	for _, rule := range r.Rules {
		rules.AppendRow(table.Row{
			rule.Name, fmt.Sprintf("%d (%s)", rule.Retained, percent(rule.Coverage)), fmt.Sprintf("%.4f", rule.Accuracy),
			fmt.Sprintf("%.4f", rule.CriticalFNR), fmt.Sprintf("%d of %d", rule.Missed, rule.Critical),
		})
	}
	line("%s", rules.Render())
	line("")

	line("The %d deferred inputs furthest over their thresholds (bars: C_k of each class; ? where it is unreliable)", len(r.Top))
	for _, d := range r.Top {
		line("  %s: predicted %s, labelled %s; %s", d.Input, d.Predicted, d.Label, d.why())
		for k, c := range d.C {
			mark := " "
			if d.Skewness[k] > r.Policy.Reliability {
				mark = "?"
			}
			line("    %-12s %s %s %.4f", r.Classes[k].Name, bar(c, d.C), mark, c)
		}
	}
	line("")
	line("The daemon of this demo (--keep leaves it up):")
	line("gRPC API %s", r.Addresses.API)
	line("HTTP API %s", r.Addresses.HTTP)
	line("metrics  %s", r.Addresses.Metrics)
	line("page     %s", r.Addresses.Page)
	_, err := io.WriteString(w, b.String())
	return err
}

// why says in words why an input was deferred.
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

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

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
