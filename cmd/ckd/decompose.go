package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// decomposeCmd computes recorded passes here, without a daemon. The flags that
// a policy would settle are pointers, so that one can tell whether they were
// given beside it.
type decomposeCmd struct {
	Passes string        `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Layout record.Layout `default:"snk" placeholder:"LAYOUT" help:"Order of the axes: snk (passes, inputs, classes) or nsk (inputs, passes, classes). (${default})"`

	Classes      []string `placeholder:"NAME" help:"Names of the classes, in order. Default 0,1,..."`
	Critical     []string `placeholder:"NAME" help:"Classes that must not be missed."`
	Safe         []string `placeholder:"NAME" help:"Classes whose confusion with critical ones counts. Default: all that are not critical."`
	Kind         *string  `enum:"probabilities,logits,dirichlet" placeholder:"KIND" help:"What a row is: probabilities (the default), logits or dirichlet."`
	Variance     *string  `enum:"sample,population" placeholder:"DIVISOR" help:"Divisor of variances: sample (S-1, the default) or population (S)."`
	SumTolerance *float64 `placeholder:"X" help:"How far the sum of a row of probabilities may be from 1. Default 0.001."`

	Policy string `placeholder:"FILE" help:"Take classes, sets, kind, variance and tolerance from a policy, and decide by it."`
	Model  string `placeholder:"NAME" help:"Which model's policy, where there are several."`

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
		if c.Model != "" {
			return errors.New("--model names a model of a policy file, expected --policy too")
		}
		if t := c.SumTolerance; t != nil && (!(*t > 0) || math.IsInf(*t, 1)) {
			return fmt.Errorf("--sum-tolerance %v: expected a finite number above 0", *t)
		}
		if c.Safe != nil && c.Critical == nil {
			return errors.New("--safe without --critical: expected the classes that must not be missed too")
		}
		return nil
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
	model, err := c.policy()
	if err != nil {
		return err
	}
	passes, err := c.read(ctx, model)
	if err != nil {
		return err
	}
	d, err := c.decomposer(model, passes)
	if err != nil {
		return err
	}

	out := ctx.Stdout
	if c.Out != "" && sameFile(c.Out, c.Passes) {
		return fail(exitUsage, fmt.Errorf("--out %s is the recording itself, expected another file", c.Out))
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

// policy that the flags name, nil for none.
func (c *decomposeCmd) policy() (*policy.Policy, error) {
	if c.Policy == "" {
		return nil, nil
	}
	set, err := store.Load(c.Policy)
	if err != nil {
		return nil, err
	}
	all := set.All()
	if c.Model == "" && len(all) == 1 {
		return all[0], nil
	}
	if p, ok := set.Get(c.Model); ok {
		return p, nil
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	if c.Model == "" {
		return nil, usageError("%s has %d models, expected --model with one of: %s", c.Policy, len(all),
			strings.Join(names, ", "))
	}
	return nil, usageError("--model %s is not in %s, expected one of: %s", c.Model, c.Policy, strings.Join(names, ", "))
}

// read the passes, and say how they were read.
func (c *decomposeCmd) read(ctx *cmdContext, model *policy.Policy) (*record.Passes, error) {
	kind, tolerance := policy.Probabilities, decomp.DefaultSumTolerance
	switch {
	case model != nil:
		kind, tolerance = model.Kind, model.SumTolerance
	default:
		if c.Kind != nil {
			kind = policy.Kind(*c.Kind)
		}
		if c.SumTolerance != nil {
			tolerance = *c.SumTolerance
		}
	}
	passes, err := record.ReadPasses(c.Passes, record.Options{Layout: c.Layout, Concentrations: kind == policy.Dirichlet})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(ctx.Stderr, "ckd: %s: %s\n", c.Passes, passes.Note())
	if kind == policy.Probabilities {
		if err := passes.CheckRows(tolerance); err != nil {
			return nil, err
		}
	}
	return passes, nil
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
		return c.byPolicy(model, passes)
	}
	return c.byFlags(passes)
}

func (c *decomposeCmd) byPolicy(p *policy.Policy, passes *record.Passes) (*decomposer, error) {
	if passes.K != len(p.Classes) {
		return nil, fmt.Errorf("%s has %d classes, but model %s has %d: %s", c.Passes, passes.K, p.Name, len(p.Classes),
			firstNames(p.Classes))
	}
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
	spec, classes, err := c.spec(passes.K)
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

// spec is what the flags ask for, over k classes, and the names of these.
func (c *decomposeCmd) spec(k int) (spec decomp.Spec, classes []string, err error) {
	spec.Classes = k
	classes = c.Classes
	if classes == nil {
		for i := range k {
			classes = append(classes, strconv.Itoa(i))
		}
	}
	if len(classes) != k {
		return spec, nil, usageError("--classes has %d names, expected %d, the classes of %s", len(classes), k, c.Passes)
	}
	index := make(map[string]int, k)
	for i, name := range classes {
		if name == "" {
			return spec, nil, usageError("--classes: class %d has no name", i)
		}
		if first, twice := index[name]; twice {
			return spec, nil, usageError("--classes has %q twice, as classes %d and %d", name, first, i)
		}
		index[name] = i
	}
	if spec.Critical, err = resolveClasses("--critical", c.Critical, classes, index); err != nil {
		return spec, nil, err
	}
	if spec.Safe, err = resolveClasses("--safe", c.Safe, classes, index); err != nil {
		return spec, nil, err
	}
	for _, s := range spec.Safe {
		if slices.Contains(spec.Critical, s) {
			return spec, nil, usageError("class %q is in both --critical and --safe, expected it in one", classes[s])
		}
	}
	if spec.Critical != nil && c.Safe == nil {
		for i := range k {
			if !slices.Contains(spec.Critical, i) {
				spec.Safe = append(spec.Safe, i)
			}
		}
	}
	if pairs := len(spec.Safe) * len(spec.Critical); pairs > policy.MaxPairs {
		return spec, nil, usageError("%d safe x %d critical classes, expected at most %d such pairs: name fewer with "+
			"--critical or --safe", len(spec.Safe), len(spec.Critical), policy.MaxPairs)
	}
	if c.Kind != nil {
		spec.Kind = map[string]decomp.Kind{"logits": decomp.Logits, "dirichlet": decomp.Dirichlet}[*c.Kind]
	}
	if c.Variance != nil && *c.Variance == "population" {
		spec.Variance = decomp.Population
	}
	if c.SumTolerance != nil {
		spec.SumTolerance = *c.SumTolerance
	}
	return spec, classes, nil
}

// resolveClasses turns names to classes.
func resolveClasses(flag string, names, classes []string, index map[string]int) (set []int, err error) {
	for _, name := range names {
		i, ok := index[name]
		switch {
		case !ok:
			return nil, usageError("%s: no class %q, expected some of: %s", flag, name, firstNames(classes))
		case slices.Contains(set, i):
			return nil, usageError("%s has %q twice", flag, name)
		}
		set = append(set, i)
	}
	return set, nil
}

// firstNames is the first names of a list that may be long.
func firstNames(names []string) string {
	const most = 40
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, ... (%d in all)", strings.Join(names[:most], ", "), len(names))
}

// usageError is an error of the command line.
func usageError(format string, args ...any) error {
	return fail(exitUsage, fmt.Errorf(format, args...))
}

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
	p := &tablePrinter{w, d, table.NewWriter()}
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
	p.t.AppendHeader(header)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Format.Header = text.FormatDefault
	p.t.SetStyle(style)
	var columns []table.ColumnConfig
	for _, c := range right {
		columns = append(columns, table.ColumnConfig{Number: c, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	p.t.SetColumnConfigs(columns)
	return p
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
	switch policy.Reason(d.Reason) {
	case policy.AboveThreshold:
		return d.Action + ": " + value + " > " + shortNumber(float64(d.Threshold))
	case policy.UnderThreshold:
		return d.Action + ": " + value + " <= " + shortNumber(float64(d.Threshold))
	case policy.Observing:
		return d.Action + ": " + value
	}
	return d.Action + ": " + d.Reason
}

// shortNumber is a number for people.
func shortNumber(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// sameFile reports whether two paths name one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
