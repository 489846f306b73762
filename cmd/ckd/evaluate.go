package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/policy"
)

// evaluateCmd turns recordings into evidence.
type evaluateCmd struct {
	Recording   recordingCmd   `cmd:"" default:"withargs" help:"Say from labelled passes what deferral is worth, with intervals and diagnosis."`
	OOD         oodCmd         `cmd:"" name:"ood" help:"Tell foreign inputs (out of distribution) from known ones."`
	Disentangle disentangleCmd `cmd:"" help:"See whether epistemic uncertainty rises with label noise."`
}

// recordingCmd evaluates one labelled recording.
type recordingCmd struct {
	labelledFlags

	Coverage    *float64 `placeholder:"C" help:"The share of inputs retained in the figures at one coverage. Default: what the policy retains, without one 0.8."`
	Reviews     *float64 `name:"reviews-per-1000" placeholder:"N" help:"How many of 1000 inputs people can review, in place of a coverage. With --critical-calls reviewed it is all their reviews, and critical calls use up part of it."`
	Reliability *float64 `name:"reliability-threshold" placeholder:"X" help:"Skewness up to which C_k is trusted. Default 0.3, or the policy's."`
	Bootstrap   int      `default:"200" placeholder:"N" help:"Resamples for intervals; 0 for none. (${default})"`
	Seed        uint64   `default:"42" placeholder:"N" help:"Seed of the resamples. (${default})"`

	CriticalCalls string `enum:"acted-on,reviewed," default:"" placeholder:"WHAT" help:"What happens to inputs called critical and retained: acted-on without a look, or reviewed by people anyway, which counts as reviews. Default: the report says what must be true."`

	Groups string `placeholder:"FILE" help:"A whole number for each input, the same for inputs that are not independent, such as images of one patient: .npy or .npz. Resamples draw groups; intervals and tests count groups."`

	Full   bool   `help:"Print everything, not one screen."`
	Title  string `placeholder:"TEXT" help:"Title of the report with --full or as html. Default: it names the file of passes."`
	Format string `enum:"table,json,html" default:"table" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd evaluate --help.
func (*recordingCmd) Help() string {
	return `Prints on one screen what a labelled recording says of the model, of simple scores and of a policy: how many critical
inputs are missed, at which number of reviews, and whether the recording can support a policy at all. --full prints
every table, those of the paper included.

    ckd evaluate --passes mc_predictions.npy --labels y_true.npy --classes 0,1,2,3 --critical 2,3
    ckd evaluate --passes FILE.npy --labels FILE.npy --policy deploy/policy --format html --out report.html

Exit codes: 0 the report is out; 1 a file or the policy has a fault; 2 wrong usage.
docs/evaluate.md explains every figure.`
}

// mostResamples bounds --bootstrap, since the figures of every resample stay in memory.
const mostResamples = 100_000

// Validate refuses flags that make no sense; kong calls it.
func (c *recordingCmd) Validate() error {
	switch {
	case c.Coverage != nil && c.Reviews != nil:
		return errors.New("--coverage beside --reviews-per-1000: expected one of them")
	case c.Coverage != nil && !(*c.Coverage > 0 && *c.Coverage <= 1):
		return fmt.Errorf("--coverage %v: expected a share above 0 and up to 1", *c.Coverage)
	case c.Reviews != nil && !(*c.Reviews > 0 && *c.Reviews < 1000):
		return fmt.Errorf("--reviews-per-1000 %v: expected a number from 0 to 1000, not the ends", *c.Reviews)
	case c.Bootstrap < 0 || c.Bootstrap > mostResamples:
		return fmt.Errorf("--bootstrap %d: expected 0 to %d", c.Bootstrap, mostResamples)
	case c.Reliability != nil && (!(*c.Reliability > 0) || math.IsInf(*c.Reliability, 1)):
		return fmt.Errorf("--reliability-threshold %v: expected a finite number above 0", *c.Reliability)
	}
	return c.check()
}

// Run evaluates the recording.
func (c *recordingCmd) Run(ctx *cmdContext) error {
	model, err := c.model()
	if err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(50)) // little is allocated after the passes
	return writeOutput(ctx, c.Out, []string{c.Passes, c.Labels, c.Policy, c.Groups}, func(w io.Writer) error { return c.write(ctx, w, model) })
}

// write computes the report and writes it. model may be nil.
func (c *recordingCmd) write(ctx *cmdContext, w io.Writer, model *policy.Policy) error {
	rec, err := c.readRecording(ctx, model)
	if err != nil {
		return err
	}
	if err := checkReviews(c.Reviews, rec.passes.N); err != nil {
		return err
	}
	o := eval.Options{
		Classes: rec.classes, Reliability: policy.DefaultReliabilityThreshold,
		CriticalCalls: eval.CriticalCalls(c.CriticalCalls),
		Bootstrap:     c.Bootstrap, Seed: c.Seed,
		Policy: model, PassesSHA256: rec.passesFile.SHA256,
	}
	if c.Coverage != nil {
		o.Coverage = *c.Coverage
	}
	if c.Reviews != nil {
		o.Reviews = *c.Reviews / 1000
	}
	if model != nil {
		o.Reliability = model.ReliabilityThreshold
	}
	if c.Reliability != nil {
		o.Reliability = *c.Reliability
	}
	var groups *eval.File
	if c.Groups != "" {
		groups = &eval.File{}
		if o.Groups, *groups, err = readGroups(c.Groups, rec.passes); err != nil {
			return err
		}
	}
	rec.sort(o.Groups)
	passes := rec.forEval()
	rec.passes = nil // garbage once they are decomposed
	t, r, err := evaluate(ctx, passes, rec.spec, o)
	if err != nil {
		return err
	}
	r.Source.Software, r.Source.Passes, r.Source.Labels, r.Source.GroupsFile = software(), rec.passesFile, rec.labelsFile, groups
	if c.Format == "json" {
		return writeJSON(w, r)
	}
	d, err := report.Evaluation(r, t, rec.labels, report.Given{Title: c.Title, Recording: c.given(), Policy: c.Policy, Alone: c.Format == "table" && !c.Full})
	if err != nil {
		return err
	}
	return writeDocument(w, d, c.Format, c.Full)
}

// given returns the flags that name the recording, as ckd calibrate takes them.
func (c *recordingCmd) given() [][2]string {
	return slices.DeleteFunc([][2]string{
		{"--passes", c.Passes}, {"--labels", c.Labels}, {"--groups", c.Groups}, {"--policy", c.Policy},
		{"--classes", strings.Join(c.Classes, ",")}, {"--critical", strings.Join(c.Critical, ",")},
	}, func(flag [2]string) bool { return flag[1] == "" })
}

// evaluate decomposes a recording, decides on it if there is a policy, and returns the report. Without a
// coverage or reviews it takes the coverage of the policy, so that all rules have the same reviews.
func evaluate(ctx *cmdContext, recording eval.Recording, spec decomp.Spec, o eval.Options) (*eval.Table, *eval.Report, error) {
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	t, err := eval.NewTable(ctx.Ctx, recording, spec, bars.mover("decomposing"))
	if err != nil {
		return nil, nil, err
	}
	if o.Policy != nil {
		if o.Decisions, err = eval.Decide(ctx.Ctx, recording, o.Policy, bars.mover("deciding")); err != nil {
			return nil, nil, err
		}
	}
	if o.Coverage == 0 && o.Reviews == 0 {
		o.Coverage = coverageOf(o)
	}
	o.Progress = bars.mover("resampling")
	labels := recording.Labels
	recording = eval.Recording{} // its passes are garbage now
	defer bars.during("ranking inputs")()
	r, err := eval.Evaluate(ctx.Ctx, t, labels, o)
	return t, r, err
}

// coverageOf returns the share of inputs that a policy retains; 0.8 without a policy, or for one that
// retains nothing or everything.
func coverageOf(o eval.Options) float64 {
	retained := 0
	for _, d := range o.Decisions {
		if d.Action == policy.Retain {
			retained++
		}
	}
	if retained == 0 || retained == len(o.Decisions) {
		return 0.8
	}
	return float64(retained) / float64(len(o.Decisions))
}

// software returns the name and version of this program, for reports.
func software() string {
	info := buildinfo.Get()
	if info.Revision == "unknown" {
		return "ckd " + info.Version
	}
	return fmt.Sprintf("ckd %s (%s)", info.Version, info.Revision)
}

// interrupted replaces the error of a cancelled context by words.
func interrupted(ctx *cmdContext, err error) error {
	if ctx.Ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted: nothing was written")
	}
	return err
}

// writeDocument writes a report in the format "html" or, for any other, as plain text: its screen
// alone, or the whole.
func writeDocument(w io.Writer, d *document.Document, format string, full bool) error {
	switch {
	case format == "html":
		return document.HTML(w, d)
	case full:
		return document.Text(w, d)
	}
	_, err := d.Screen.WriteTo(w)
	return err
}

func writeJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(report)
}
