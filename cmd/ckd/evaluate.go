package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/report"
	"github.com/ckd-project/ckd/policy"
)

// evaluateCmd turns recordings into evidence.
type evaluateCmd struct {
	Recording   recordingCmd   `cmd:"" default:"withargs" help:"Evaluate a labelled recording: what ckd evaluate does where it is told nothing else."`
	OOD         oodCmd         `cmd:"" name:"ood" help:"Tell foreign inputs (out of distribution) from known ones."`
	Disentangle disentangleCmd `cmd:"" help:"See whether epistemic uncertainty rises with label noise."`
}

// recordingCmd evaluates one labelled recording.
type recordingCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Labels string `required:"" placeholder:"FILE" help:"The true class of each input, as a number: .npy or .npz."`
	classFlags
	rowFlags
	policyFlags

	Coverage    float64  `default:"0.8" placeholder:"C" help:"The share of inputs retained in the figures at one coverage. (${default})"`
	Reliability *float64 `name:"reliability-threshold" placeholder:"X" help:"Skewness up to which C_k is trusted. Default 0.3, or the policy's."`
	Bootstrap   int      `default:"200" placeholder:"N" help:"Resamples for intervals; 0 for none. (${default})"`
	Seed        uint64   `default:"42" placeholder:"N" help:"Seed of the resamples. (${default})"`

	Format string `enum:"table,json,html" default:"table" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd evaluate recording --help.
func (*recordingCmd) Help() string {
	return `Prints what a labelled recording says of the model, of every deferral score and of a policy: all the tables of
the paper.

    ckd evaluate --passes mc_predictions.npy --labels y_true.npy --classes 0,1,2,3 --critical 2,3
    ckd evaluate --passes FILE.npy --labels FILE.npy --policy deploy/policy --format html --out report.html

Exit codes: 0 the report is out; 1 a file or the policy has a fault; 2 wrong usage.
docs/evaluate.md explains every figure.`
}

// mostResamples bounds --bootstrap: the figures of every resample are kept.
const mostResamples = 100_000

// Validate refuses flags that make no sense; kong calls it.
func (c *recordingCmd) Validate() error {
	switch {
	case !(c.Coverage > 0 && c.Coverage <= 1):
		return fmt.Errorf("--coverage %v: expected a share above 0 and up to 1", c.Coverage)
	case c.Bootstrap < 0 || c.Bootstrap > mostResamples:
		return fmt.Errorf("--bootstrap %d: expected 0 to %d", c.Bootstrap, mostResamples)
	case c.Reliability != nil && (!(*c.Reliability > 0) || math.IsInf(*c.Reliability, 1)):
		return fmt.Errorf("--reliability-threshold %v: expected a finite number above 0", *c.Reliability)
	}
	if c.Policy != "" { // it has the critical classes
		return c.rowFlags.check()
	}
	return cmp.Or(c.policyFlags.check(), c.rowFlags.check(), c.classFlags.check())
}

// Run evaluates the recording.
func (c *recordingCmd) Run(ctx *cmdContext) error {
	model, err := c.load()
	if err != nil {
		return err
	}
	if model != nil {
		if err := c.agree(model); err != nil {
			return err
		}
	}
	out, err := openOutput(ctx, c.Out, c.Passes, c.Labels, c.Policy)
	if err != nil {
		return err
	}
	defer out.discard()
	if err := c.write(ctx, out, model); err != nil {
		return interrupted(ctx, err)
	}
	return out.commit()
}

// agree holds the flags that stand beside a policy against it: they may repeat
// what it settles.
func (c *recordingCmd) agree(p *policy.Policy) error {
	names := func(classes []int) (names []string) {
		for _, k := range classes {
			names = append(names, p.Classes[k])
		}
		return names
	}
	text := func(v any) []string { return []string{fmt.Sprint(v)} }
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	var given []settled
	if c.Classes != nil {
		given = append(given, settled{"--classes", c.Classes, p.Classes})
	}
	if c.Critical != nil {
		given = append(given, settled{"--critical", sorted(c.Critical), sorted(names(p.Critical))})
	}
	if c.Safe != nil {
		given = append(given, settled{"--safe", sorted(c.Safe), sorted(names(p.Safe))})
	}
	if c.Kind != nil {
		given = append(given, settled{"--kind", text(*c.Kind), text(p.Kind)})
	}
	if c.Variance != nil {
		given = append(given, settled{"--variance", text(*c.Variance), text(p.Variance)})
	}
	if c.SumTolerance != nil {
		given = append(given, settled{"--sum-tolerance", text(*c.SumTolerance), text(p.SumTolerance)})
	}
	for _, s := range given {
		if !slices.Equal(s.flag, s.policy) {
			return usageError("%s is %s, but model %s of %s has %s: expected the same, or no %s beside --policy",
				s.name, firstNames(s.flag), p.Name, c.Policy, firstNames(s.policy), s.name)
		}
	}
	return nil
}

// settled is a flag that a policy settles too.
type settled struct {
	name         string
	flag, policy []string
}

// write the report. model may be nil.
func (c *recordingCmd) write(ctx *cmdContext, w io.Writer, model *policy.Policy) error {
	passes, err := c.read(ctx, c.Passes, model)
	if err != nil {
		return err
	}
	labels, err := record.ReadLabels(c.Labels)
	if err != nil {
		return err
	}
	if err := eval.CheckLabels(c.Labels, labels, passes); err != nil {
		return err
	}
	source, err := hashFiles(c.Passes, c.Labels)
	if err != nil {
		return err
	}
	spec := c.spec(passes.K)
	o := eval.Options{
		Reliability: policy.DefaultReliabilityThreshold, Coverage: c.Coverage, Bootstrap: c.Bootstrap, Seed: c.Seed,
		Bands: c.Format == "html", Policy: model, PassesSHA256: source[0].SHA256,
	}
	if model != nil {
		spec, o.Classes, o.Reliability = specOf(model), model.Classes, model.ReliabilityThreshold
	} else if o.Classes, err = c.fill(&spec, c.Passes); err != nil {
		return err
	}
	if c.Reliability != nil {
		o.Reliability = *c.Reliability
	}
	t, r, err := evaluate(ctx, passes, labels, spec, o)
	if err != nil {
		return err
	}
	r.Source.Software, r.Source.Passes, r.Source.Labels = software(), source[0], source[1]
	switch c.Format {
	case "json":
		return writeJSON(w, r)
	case "html":
		return report.Write(w, r, t, labels)
	}
	return writeRecordingTables(w, r)
}

// evaluate decomposes passes, decides on them where there is a policy, and puts
// the report together.
func evaluate(ctx *cmdContext, passes *record.Passes, labels []int, spec decomp.Spec, o eval.Options) (*eval.Table, *eval.Report, error) {
	t, err := newTable(ctx, passes, spec)
	if err != nil {
		return nil, nil, err
	}
	if o.Policy != nil {
		deciding := newLateBar(ctx, "deciding")
		defer deciding.stop()
		if o.Decisions, err = eval.Decide(ctx.Ctx, passes, o.Policy, deciding.update); err != nil {
			return nil, nil, err
		}
		deciding.stop()
	}
	resampling := newLateBar(ctx, "resampling")
	defer resampling.stop()
	o.Progress = resampling.update
	r, err := eval.Evaluate(ctx.Ctx, t, labels, o)
	return t, r, err
}

// newTable decomposes passes, with a bar where that takes long.
func newTable(ctx *cmdContext, passes *record.Passes, spec decomp.Spec) (*eval.Table, error) {
	decomposing := newLateBar(ctx, "decomposing")
	defer decomposing.stop()
	return eval.NewTable(ctx.Ctx, passes, spec, decomposing.update)
}

// specOf is what a policy asks of the arithmetic. The weights of pairs are left
// out: the score cbec of a report is the paper's, and the policy decides by its own.
func specOf(p *policy.Policy) decomp.Spec {
	spec := decomp.Spec{Classes: len(p.Classes), Critical: p.Critical, Safe: p.Safe, SumTolerance: p.SumTolerance}
	switch p.Kind {
	case policy.Logits:
		spec.Kind = decomp.Logits
	case policy.Dirichlet:
		spec.Kind = decomp.Dirichlet
	}
	if p.Variance == policy.Population {
		spec.Variance = decomp.Population
	}
	return spec
}

func hashFiles(paths ...string) ([]eval.File, error) {
	var files []eval.File
	for _, path := range paths {
		file, err := hashFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// software is this program, for reports.
func software() string {
	info := buildinfo.Get()
	if info.Revision == "unknown" {
		return "ckd " + info.Version
	}
	return fmt.Sprintf("ckd %s (%s)", info.Version, info.Revision)
}

// interrupted says in words what a context's error is.
func interrupted(ctx *cmdContext, err error) error {
	if ctx.Ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted: nothing was written")
	}
	return err
}

func writeJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(report)
}
