package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// decomposeCmd computes recorded passes here, without a daemon.
type decomposeCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	classFlags
	rowFlags
	policyFlags

	Format string `enum:"jsonl,csv,table" default:"jsonl" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd decompose --help.
func (*decomposeCmd) Help() string {
	return `Every input gives a line: what its passes say of each class, and with --policy the decision. An input whose
passes are refused gives a line with an error in its place, and the rest goes on.

    ckd decompose --passes FILE.npy --classes normal,suspect,pathologic --critical suspect,pathologic
    ckd decompose --passes FILE.npy --policy deploy/policy --format table

Exit codes: 0 every input has a result; 1 some were refused, or the file or the policy has a fault; 2 wrong usage.
docs/cli.md says what every field means.`
}

// Validate refuses flags that contradict each other. kong calls it, and what it
// returns is a usage error.
func (c *decomposeCmd) Validate() error {
	if c.Policy == "" {
		return cmp.Or(c.policyFlags.check(), c.rowFlags.check(), c.classFlags.check())
	}
	var settled []string
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--classes", c.Classes != nil},
		{"--critical", c.Critical != nil},
		{"--safe", c.Safe != nil},
		{"--kind", c.Kind != nil},
		{"--variance", c.Variance != nil},
		{"--sum-tolerance", c.SumTolerance != nil},
	} {
		if flag.given {
			settled = append(settled, flag.name)
		}
	}
	if settled != nil {
		return fmt.Errorf("--policy says already what %s would: expected one or the other", strings.Join(settled, ", "))
	}
	return nil
}

// Run decomposes every input of the file, in order.
func (c *decomposeCmd) Run(ctx *cmdContext) (err error) {
	model, err := c.load()
	if err != nil {
		return err
	}
	passes, err := c.read(ctx, c.Passes, model)
	if err != nil {
		return err
	}
	d, err := c.decomposer(model, passes)
	if err != nil {
		return err
	}

	out := ctx.Stdout
	if c.Out != "" && sameFile(c.Out, diskPath(c.Passes)) {
		return usageError("--out %s is the recording itself, expected another file", c.Out)
	}
	if c.Out != "" {
		file, createErr := os.Create(c.Out)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	w := bufio.NewWriterSize(out, 1<<16)
	p, err := c.printer(w, d)
	if err != nil {
		return err
	}
	refused, err := d.run(ctx, passes, p)
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	return refused.err(passes.N, "were refused")
}

// decomposer computes the inputs of a file, by flags or by a policy.
type decomposer struct {
	classes     []string
	plan        *decomp.Plan
	reliability float64 // skewness above which C_k is not trusted
	decides     bool
	reset       func(decomp.Tensor) error
	line        func(i int) (*line, error) // overwrites the line before
}

func (c *decomposeCmd) decomposer(model *policy.Policy, passes *record.Passes) (*decomposer, error) {
	if model != nil {
		return byPolicy(model)
	}
	return c.byFlags(passes)
}

func byPolicy(p *policy.Policy) (*decomposer, error) {
	model, err := engine.New(p)
	if err != nil {
		return nil, err
	}
	batch, o := model.NewBatch(), model.NewOutcome()
	return &decomposer{
		classes:     p.Classes,
		plan:        model.Plan(),
		reliability: p.ReliabilityThreshold,
		decides:     true,
		reset:       batch.Reset,
		line: func(i int) (*line, error) {
			if err := batch.Outcome(i, o); err != nil {
				return nil, err
			}
			return resultLine(i, model.Plan(), o.Result, p.TopClasses, &o.Decision), nil
		},
	}, nil
}

func (c *decomposeCmd) byFlags(passes *record.Passes) (*decomposer, error) {
	spec := c.spec(passes.K)
	classes, err := c.fill(&spec, c.Passes)
	if err != nil {
		return nil, err
	}
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Passes, err)
	}
	batch, r := plan.NewBatch(), plan.NewResult()
	return &decomposer{
		classes:     classes,
		plan:        plan,
		reliability: policy.DefaultReliabilityThreshold,
		reset:       batch.Reset,
		line: func(i int) (*line, error) {
			if err := batch.Result(i, r); err != nil {
				return nil, err
			}
			return resultLine(i, plan, r, min(defaultTopClasses, passes.K), nil), nil
		},
	}, nil
}

// defaultTopClasses is what a policy has too where it says nothing.
const defaultTopClasses = 10

// run prints a line for every input of the file.
func (d *decomposer) run(ctx *cmdContext, passes *record.Passes, p printer) (refused refusals, err error) {
	t := decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64}
	if passes.Layout == record.NSK {
		t.Layout = decomp.NSK
	}
	all := d.reset(t)
	if tooFew := (*decomp.PassesError)(nil); all != nil && !errors.As(all, &tooFew) {
		return refused, all
	}
	for i := range passes.N {
		if ctx.Ctx.Err() != nil {
			return refused, fmt.Errorf("interrupted after %d of %d inputs", i, passes.N)
		}
		l, err := (*line)(nil), all
		if err == nil {
			l, err = d.line(i)
		}
		if err != nil {
			r := refusalLine(i, err)
			refused.add(r)
			err = p.refusal(r)
		} else {
			err = p.line(l)
		}
		if err != nil {
			return refused, fmt.Errorf("input %d: %w", i, err)
		}
	}
	return refused, p.end()
}

// refusals counts the inputs that were refused.
type refusals struct {
	count int
	first *refusal
}

func (r *refusals) add(line *refusal) {
	if r.count++; r.first == nil {
		r.first = line
	}
}

// err says what they were of n inputs, if there are any.
func (r *refusals) err(n int, what string) error {
	if r.count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d inputs %s; the first: input %d: %s", r.count, n, what,
		r.first.Index, r.first.Error.Message)
}

// printer writes lines in some format.
type printer interface {
	line(*line) error
	refusal(*refusal) error
	end() error
}

func (c *decomposeCmd) printer(w io.Writer, d *decomposer) (printer, error) {
	switch c.Format {
	case "csv":
		return newCSVPrinter(w, d)
	case "table":
		return newTablePrinter(w, d), nil
	}
	return jsonPrinter{newLineEncoder(w)}, nil
}

type jsonPrinter struct{ *json.Encoder }

func (p jsonPrinter) line(l *line) error       { return p.Encode(l) }
func (p jsonPrinter) refusal(r *refusal) error { return p.Encode(r) }
func (p jsonPrinter) end() error               { return nil }

// csvPrinter writes a header and a record for every input: each number of the
// JSON line in a column of its own.
type csvPrinter struct {
	w       *csv.Writer
	columns []csvColumn
	record  []string
}

type csvColumn struct {
	name  string
	value func(*line) string
}

func newCSVPrinter(w io.Writer, d *decomposer) (*csvPrinter, error) {
	p := &csvPrinter{w: csv.NewWriter(w)}
	add := func(name string, value func(*line) string) {
		p.columns = append(p.columns, csvColumn{name, value})
	}
	vector := func(name string, of func(*line) []float64) {
		for k, class := range d.classes {
			add(name+"_"+class, func(l *line) string { return nullable(of(l)[k]).String() })
		}
	}
	add("index", func(l *line) string { return strconv.Itoa(l.Index) })
	add("predicted", func(l *line) string { return l.Predicted.String() })
	vector("mean", func(l *line) []float64 { return l.Mean })
	vector("variance", func(l *line) []float64 { return l.Variance })
	vector("third_moment", func(l *line) []float64 { return l.ThirdMoment })
	vector("c", func(l *line) []float64 { return l.C })
	vector("skewness", func(l *line) []float64 { return l.Skewness })
	vector("m", func(l *line) []float64 { return l.M })
	add("entropy", func(l *line) string { return l.Entropy.String() })
	add("expected_entropy", func(l *line) string { return l.ExpectedEntropy.String() })
	add("mi", func(l *line) string { return l.MI.String() })
	add("sum_c", func(l *line) string { return l.SumC.String() })
	for s := range decomp.Score(decomp.NumScores) {
		add("score_"+s.String(), func(l *line) string { return nullable(l.Scores[s]).String() })
	}
	add("degenerate", func(l *line) string { return strconv.FormatBool(l.Degenerate) })
	add("saturated", func(l *line) string { return strconv.FormatBool(l.Saturated) })
	add("passes", func(l *line) string { return strconv.Itoa(l.Passes) })
	add("dominant", func(l *line) string { return l.Dominant.String() })
	vector("c3", func(l *line) []float64 { return l.C3 })
	add("sum_c_top", func(l *line) string { return l.SumCTop.String() })
	add("sum_c_weighted", func(l *line) string { return l.SumCWeighted.String() })
	for i, pair := range d.plan.Pairs() {
		names := "_" + d.classes[pair.A] + "_" + d.classes[pair.B]
		add("confusion"+names, func(l *line) string { return nullable(l.Pairs[i].Confusion).String() })
		add("correlation"+names, func(l *line) string { return nullable(l.Pairs[i].Correlation).String() })
	}
	if d.decides {
		add("action", func(l *line) string { return l.Decision.Action })
		add("score", func(l *line) string { return l.Decision.Score })
		add("value", func(l *line) string { return l.Decision.Value.String() })
		add("threshold", func(l *line) string { return l.Decision.Threshold.String() })
		add("gate", func(l *line) string { return l.Decision.Gate })
		add("class", func(l *line) string { return l.Decision.Class.String() })
		add("reason", func(l *line) string { return l.Decision.Reason })
	}
	for _, c := range p.columns {
		p.record = append(p.record, c.name)
	}
	p.record = append(p.record, "error_reason", "error_message") // both empty where there is a result
	return p, p.w.Write(p.record)
}

func (p *csvPrinter) line(l *line) error {
	clear(p.record)
	for i, c := range p.columns {
		p.record[i] = c.value(l)
	}
	return p.w.Write(p.record)
}

func (p *csvPrinter) refusal(r *refusal) error {
	clear(p.record)
	p.record[0] = strconv.Itoa(r.Index)
	copy(p.record[len(p.columns):], []string{r.Error.Reason, r.Error.Message})
	return p.w.Write(p.record)
}

func (p *csvPrinter) end() error {
	p.w.Flush()
	return p.w.Error()
}

// tablePrinter shows what a person looks at first.
type tablePrinter struct {
	w io.Writer
	d *decomposer
	t table.Writer
}

// tableClasses is up to how many classes have a column of their own; with more,
// only the dominant one is shown.
const tableClasses = 8

func newTablePrinter(w io.Writer, d *decomposer) *tablePrinter {
	p := &tablePrinter{w: w, d: d}
	header := table.Row{"index", "predicted", "mi", "sum_c"}
	right := []int{1, 3, 4}
	if len(d.classes) <= tableClasses {
		for _, class := range d.classes {
			header = append(header, "c "+class)
			right = append(right, len(header))
		}
	} else {
		header = append(header, "dominant", "c")
		right = append(right, len(header))
	}
	header = append(header, "unreliable")
	if d.decides {
		header = append(header, "decision")
	}
	p.t = plainTable(header, right)
	return p
}

// plainTable is a table without lines but that under its header; the columns of
// some numbers, from 1, are aligned to the right.
func plainTable(header table.Row, right []int) table.Writer {
	t := table.NewWriter()
	t.AppendHeader(header)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	var columns []table.ColumnConfig
	for _, c := range right {
		columns = append(columns, table.ColumnConfig{Number: c, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

func (p *tablePrinter) line(l *line) error {
	row := table.Row{l.Index, p.d.classes[l.Predicted], shortNumber(float64(l.MI)), shortNumber(float64(l.SumC))}
	if len(p.d.classes) <= tableClasses {
		for _, c := range l.C {
			row = append(row, shortNumber(c))
		}
	} else if l.Dominant != noClass {
		row = append(row, p.d.classes[l.Dominant], shortNumber(l.C[l.Dominant]))
	} else {
		row = append(row, "", "")
	}
	var unreliable []string
	for k, s := range l.Skewness {
		if s > p.d.reliability {
			unreliable = append(unreliable, p.d.classes[k])
		}
	}
	if len(unreliable) > tableClasses {
		unreliable = []string{fmt.Sprintf("%d classes", len(unreliable))}
	}
	row = append(row, strings.Join(unreliable, ", "))
	if l.Decision != nil {
		row = append(row, sentence(l.Decision))
	}
	p.t.AppendRow(row)
	return nil
}

func (p *tablePrinter) refusal(r *refusal) error {
	p.t.AppendRow(table.Row{r.Index, "refused: " + r.Error.Reason})
	return nil
}

func (p *tablePrinter) end() error {
	_, err := fmt.Fprintln(p.w, p.t.Render())
	return err
}

// sentence is a decision in short.
func sentence(d *decision) string {
	value := d.Score + " " + shortNumber(float64(d.Value))
	switch d.Reason {
	case policy.AboveThreshold.String():
		return d.Action + ": " + value + " > " + shortNumber(float64(d.Threshold))
	case policy.UnderThreshold.String():
		return d.Action + ": " + value + " <= " + shortNumber(float64(d.Threshold))
	case policy.Observing.String():
		return d.Action + ": " + value
	}
	return d.Action + ": " + d.Reason
}

// shortNumber is a number for people.
func shortNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
