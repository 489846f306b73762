package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/policy"
)

// frontierCmd draws what deciding before the last pass saves.
type frontierCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Labels string `placeholder:"FILE" help:"The true class of each input, by number, by name or one-hot, for what becomes of critical inputs: .npy or .npz."`
	rowFlags
	policyFlags

	Groups  string `placeholder:"FILE" help:"A whole number for each input, the same for inputs that are not independent, such as images of one patient: .npy or .npz. The halves consist of whole groups; intervals count groups."`
	Ordered bool   `help:"The passes are an ensemble's members: they keep their order. Implied where the policy's own rule says so."`
	Seed    uint64 `default:"42" placeholder:"N" help:"Seed of the random halves and orders. (${default})"`

	Format string `enum:"table,json,html,svg" default:"table" help:"Form of the output: ${enum}; svg is the picture alone. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// settleForm turns the flag form, ckd evaluate --settle, into ckd evaluate settle.
func settleForm(args []string) []string {
	if len(args) < 2 || args[0] != "evaluate" || !strings.HasPrefix(args[1], "-") {
		return args
	}
	if i := slices.Index(args, "--settle"); i > 0 {
		return slices.Concat([]string{"evaluate", "settle"}, args[1:i], args[i+1:])
	}
	return args
}

// Help returns the long text of ckd evaluate settle --help.
func (*frontierCmd) Help() string {
	return `Draws the frontier: the passes that are saved by deciding before the last one, against the share of inputs that are
then decided otherwise than by all passes; with labels, against critical FNR too. Rules are learned on one random half of
the inputs and drawn on the other, beside the score alone and fewer passes for every input.

    ckd evaluate settle --policy deploy/policy --passes mc_predictions.npy --labels y_true.npy
    ckd evaluate --settle --policy deploy/policy --passes mc_predictions.npy --format html --out frontier.html

Exit codes: 0 the report is out; 1 a file or the policy has a fault, or nothing can be learned from them; 2 wrong usage.
docs/evaluate-shift.md explains every figure, docs/settle.md the rule.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *frontierCmd) Validate() error {
	if c.Policy == "" {
		return errors.New("expected --policy with the policy whose decisions may come early")
	}
	return c.rowFlags.check()
}

// Run draws the frontier.
func (c *frontierCmd) Run(ctx *cmdContext) error {
	flags := labelledFlags{Passes: c.Passes, Labels: c.Labels, rowFlags: c.rowFlags, policyFlags: c.policyFlags}
	model, err := flags.model()
	if err != nil {
		return err
	}
	return writeOutput(ctx, c.Out, []string{c.Passes, c.Labels, c.Policy, c.Groups}, func(w io.Writer) error {
		f, err := c.frontier(ctx, &flags, model)
		if err != nil {
			return err
		}
		return c.write(w, f)
	})
}

func (c *frontierCmd) write(w io.Writer, f *calibrate.Frontier) error {
	switch c.Format {
	case "json":
		return writeJSON(w, f)
	case "svg":
		return document.SVG(w, report.FrontierFigure(f))
	}
	return writeDocument(w, report.FrontierDocument(f), c.Format)
}

// frontier reads the recording and draws.
func (c *frontierCmd) frontier(ctx *cmdContext, flags *labelledFlags, model *policy.Policy) (*calibrate.Frontier, error) {
	if model.Kind == policy.Dirichlet { // before its concentrations are read as passes
		return nil, fmt.Errorf("model %s: no input can stop early: %s", model.Name, model.WhyNoEarlyStop())
	}
	rec, err := flags.readRecording(ctx, model)
	if err != nil {
		return nil, err
	}
	warnOfPasses(ctx, rec.passes, rec.spec.Kind, rec.spec.SumTolerance)
	o := calibrate.FrontierOptions{
		Ordered: c.Ordered, Seed: c.Seed,
		Source: calibrate.Source{Software: software(), Passes: rec.passesFile, Labels: rec.labelsFile},
	}
	if c.Groups != "" {
		if o.Groups, o.Source.Groups, err = readGroups(c.Groups, rec.passes); err != nil {
			return nil, err
		}
	}
	rec.sort(o.Groups)
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	o.Progress = bars.update
	return calibrate.DrawFrontier(ctx.Ctx, rec.forEval(), model, o)
}
