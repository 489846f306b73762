package answer

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"

	"github.com/ckd-project/ckd/decomp"
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
	Classes  []string
	Pairs    []decomp.Pair
	Decides  bool // a policy decides
	Assesses bool // and has a risk model
}

// NewPrinter returns a printer in the format "csv" or, for any other, of JSON lines.
func NewPrinter(format string, w io.Writer, f Form) (Printer, error) {
	if format == "csv" {
		return newCSVPrinter(w, f)
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
