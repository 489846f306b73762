package answer

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Printer writes answers in some format.
type Printer interface {
	Answer(*Answer) error
	Refusal(*Refusal) error
	// End writes buffered output. It is called once, after the last answer.
	End() error
}

// Form holds the fields that all answers of a recording share.
type Form struct {
	Classes     []string
	Pairs       []decomp.Pair
	Reliability float64 // skewness above which C_k is not trusted
	Decides     bool    // a policy decides
	Assesses    bool    // and has a risk model
}

// NewPrinter returns a printer in the format "csv" or "table" or, for any other, of JSON lines.
func NewPrinter(format string, w io.Writer, f Form) (Printer, error) {
	switch format {
	case "csv":
		return newCSVPrinter(w, f)
	case "table":
		return newTablePrinter(w, f), nil
	}
	return jsonPrinter{NewEncoder(w)}, nil
}

type jsonPrinter struct{ *json.Encoder }

func (p jsonPrinter) Answer(l *Answer) error   { return p.Encode(l) }
func (p jsonPrinter) Refusal(r *Refusal) error { return p.Encode(r) }
func (p jsonPrinter) End() error               { return nil }

// csvPrinter writes a header, and a record for every input. Each number of the JSON line has a
// column of its own.
type csvPrinter struct {
	w       *csv.Writer
	columns []csvColumn
	record  []string
}

type csvColumn struct {
	name  string
	value func(*Answer) string
}

func newCSVPrinter(w io.Writer, f Form) (*csvPrinter, error) {
	p := &csvPrinter{w: csv.NewWriter(w)}
	add := func(name string, value func(*Answer) string) {
		p.columns = append(p.columns, csvColumn{name, value})
	}
	vector := func(name string, of func(*Answer) []float64) {
		for k, class := range f.Classes {
			add(name+"_"+class, func(l *Answer) string { return nullable(of(l)[k]).String() })
		}
	}
	add("index", func(l *Answer) string { return strconv.Itoa(l.Index) })
	add("predicted", func(l *Answer) string { return l.Predicted.String() })
	vector("mean", func(l *Answer) []float64 { return l.Mean })
	vector("variance", func(l *Answer) []float64 { return l.Variance })
	vector("third_moment", func(l *Answer) []float64 { return l.ThirdMoment })
	vector("c", func(l *Answer) []float64 { return l.C })
	vector("skewness", func(l *Answer) []float64 { return l.Skewness })
	vector("m", func(l *Answer) []float64 { return l.M })
	add("entropy", func(l *Answer) string { return l.Entropy.String() })
	add("expected_entropy", func(l *Answer) string { return l.ExpectedEntropy.String() })
	add("mi", func(l *Answer) string { return l.MI.String() })
	add("sum_c", func(l *Answer) string { return l.SumC.String() })
	for s := range decomp.Score(decomp.NumScores) {
		add("score_"+s.String(), func(l *Answer) string { return nullable(l.Scores[s]).String() })
	}
	add("degenerate", func(l *Answer) string { return strconv.FormatBool(l.Degenerate) })
	add("saturated", func(l *Answer) string { return strconv.FormatBool(l.Saturated) })
	add("passes", func(l *Answer) string { return strconv.Itoa(l.Passes) })
	add("dominant", func(l *Answer) string { return l.Dominant.String() })
	vector("c3", func(l *Answer) []float64 { return l.C3 })
	add("sum_c_top", func(l *Answer) string { return l.SumCTop.String() })
	add("sum_c_weighted", func(l *Answer) string { return l.SumCWeighted.String() })
	for i, pair := range f.Pairs {
		names := "_" + f.Classes[pair.A] + "_" + f.Classes[pair.B]
		add("confusion"+names, func(l *Answer) string { return nullable(l.Pairs[i].Confusion).String() })
		add("correlation"+names, func(l *Answer) string { return nullable(l.Pairs[i].Correlation).String() })
	}
	if f.Assesses {
		add("risk", func(l *Answer) string { return l.Risk.String() })
		add("priority", func(l *Answer) string { return l.Priority.String() })
		add("priority_percentile", func(l *Answer) string { return l.Percentile.String() })
	}
	if f.Decides {
		add("action", func(l *Answer) string { return l.Decision.Action })
		add("score", func(l *Answer) string { return l.Decision.Score })
		add("value", func(l *Answer) string { return l.Decision.Value.String() })
		add("threshold", func(l *Answer) string { return l.Decision.Threshold.String() })
		add("gate", func(l *Answer) string { return l.Decision.Gate })
		add("class", func(l *Answer) string { return l.Decision.Class.String() })
		add("reason", func(l *Answer) string { return l.Decision.Reason })
	}
	for _, c := range p.columns {
		p.record = append(p.record, c.name)
	}
	p.record = append(p.record, "error_reason", "error_message") // both empty where there is a result
	return p, p.w.Write(p.record)
}

func (p *csvPrinter) Answer(l *Answer) error {
	clear(p.record)
	for i, c := range p.columns {
		p.record[i] = c.value(l)
	}
	return p.w.Write(p.record)
}

func (p *csvPrinter) Refusal(r *Refusal) error {
	clear(p.record)
	p.record[0] = strconv.Itoa(r.Index)
	copy(p.record[len(p.columns):], []string{r.Error.Reason, r.Error.Message})
	return p.w.Write(p.record)
}

func (p *csvPrinter) End() error {
	p.w.Flush()
	return p.w.Error()
}

// tablePrinter shows the figures that a person looks at first.
type tablePrinter struct {
	w    io.Writer
	form Form
	t    table.Writer
}

// tableClasses bounds the classes that get columns of their own. With more, the table shows the
// dominant one alone.
const tableClasses = 8

func newTablePrinter(w io.Writer, f Form) *tablePrinter {
	p := &tablePrinter{w: w, form: f}
	header := table.Row{"index", "predicted", "mi", "sum_c"}
	right := []int{1, 3, 4}
	if len(f.Classes) <= tableClasses {
		for _, class := range f.Classes {
			header = append(header, "c "+class)
			right = append(right, len(header))
		}
	} else {
		header = append(header, "dominant", "c")
		right = append(right, len(header))
	}
	header = append(header, "unreliable")
	if f.Assesses {
		header = append(header, "risk", "priority percentile")
		right = append(right, len(header)-1, len(header))
	}
	if f.Decides {
		header = append(header, "decision")
	}
	p.t = document.NewTextTable(header, right)
	return p
}

func (p *tablePrinter) Answer(l *Answer) error {
	row := table.Row{l.Index, p.form.Classes[l.Predicted], shortNumber(float64(l.MI)), shortNumber(float64(l.SumC))}
	if len(p.form.Classes) <= tableClasses {
		for _, c := range l.C {
			row = append(row, shortNumber(c))
		}
	} else if l.Dominant != noClass {
		row = append(row, p.form.Classes[l.Dominant], shortNumber(l.C[l.Dominant]))
	} else {
		row = append(row, "", "")
	}
	var unreliable []string
	for k, s := range l.Skewness {
		if s > p.form.Reliability {
			unreliable = append(unreliable, p.form.Classes[k])
		}
	}
	if len(unreliable) > tableClasses {
		unreliable = []string{fmt.Sprintf("%d classes", len(unreliable))}
	}
	row = append(row, strings.Join(unreliable, ", "))
	if p.form.Assesses {
		row = append(row, shortOrNone(l.Risk), shortNumber(float64(l.Percentile)))
	}
	if l.Decision != nil {
		row = append(row, sentence(l.Decision))
	}
	p.t.AppendRow(row)
	return nil
}

func (p *tablePrinter) Refusal(r *Refusal) error {
	p.t.AppendRow(table.Row{r.Index, "refused: " + r.Error.Reason})
	return nil
}

func (p *tablePrinter) End() error {
	_, err := fmt.Fprintln(p.w, p.t.Render())
	return err
}

// sentence returns a decision in a few words.
func sentence(d *Decision) string {
	value := d.Score + " " + shortOrNone(d.Value)
	switch d.Reason {
	case policy.AboveThreshold.String():
		return d.Action + ": " + value + " > " + shortNumber(float64(d.Threshold))
	case policy.UnderThreshold.String():
		return d.Action + ": " + value + " <= " + shortNumber(float64(d.Threshold))
	case policy.Unfamiliar.String():
		return d.Action + ": " + d.Reason + ", " + value + " > " + shortNumber(float64(d.Threshold))
	case policy.Observing.String():
		return d.Action + ": " + value
	}
	return d.Action + ": " + d.Reason
}

// shortOrNone returns a number with four digits, or n/a for a missing one.
func shortOrNone(n nullable) string {
	if math.IsNaN(float64(n)) {
		return "n/a"
	}
	return shortNumber(float64(n))
}

// shortNumber returns a number with four digits.
func shortNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
