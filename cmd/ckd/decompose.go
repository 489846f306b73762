package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// decomposeCmd computes recorded passes here, without a daemon.
type decomposeCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	classFlags
	rowFlags
	policyFlags

	Format string `enum:"jsonl,csv" default:"jsonl" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd decompose --help.
func (*decomposeCmd) Help() string {
	return `Every input gives a line: what its passes say of each class, and with --policy the decision. An input whose
passes are refused gives a line with an error in its place, and the rest goes on.

    ckd decompose --passes FILE.npy --classes normal,suspect,pathologic --critical suspect,pathologic
    ckd decompose --passes FILE.npy --policy deploy/policy --format csv

Exit codes: 0 every input has a result; 1 some were refused, or the file or the policy has a fault; 2 wrong usage.
docs/json.md says what every field means.`
}

// Validate refuses flags that contradict each other. kong calls it and reports its error as wrong
// usage.
func (c *decomposeCmd) Validate() error {
	if c.Policy == "" {
		return cmp.Or(c.policyFlags.check(), c.rowFlags.check(), c.classFlags.check())
	}
	var repeated []string
	for _, flag := range givenFlags(&c.classFlags, &c.rowFlags) {
		repeated = append(repeated, flag.name)
	}
	if repeated != nil {
		return fmt.Errorf("--policy says already what %s would: expected one or the other", strings.Join(repeated, ", "))
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
	spec := c.spec(passes.K)
	if model != nil {
		spec = engine.Spec(model)
	}
	warnOfPasses(ctx, passes, spec.Kind, spec.SumTolerance)
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
	p, err := answer.NewPrinter(c.Format, w, d.form)
	if err != nil {
		return err
	}
	refused, err := d.run(ctx, passes, p)
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	return refused.Err(passes.N, "were refused")
}

// decomposer computes the inputs of a file, by flags or by a policy.
type decomposer struct {
	form  answer.Form
	reset func(decomp.Tensor) error
	// answer computes input i. The result is valid until the next call.
	answer func(i int) (*answer.Answer, error)
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
	batch, o, run := model.NewBatch(), model.NewOutcome(), passcheck.NewRun(len(p.Classes), nil)
	return &decomposer{
		form: answer.Form{
			Classes: p.Classes, Pairs: model.Plan().Pairs(), Decides: true, Assesses: p.Risk != nil,
		},
		reset: func(t decomp.Tensor) error {
			batch.Watch(run)
			return batch.Reset(t)
		},
		answer: func(i int) (*answer.Answer, error) {
			if err := batch.Outcome(i, o); err != nil {
				return nil, err
			}
			return answer.FromOutcome(i, model, o), nil
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
		form:  answer.Form{Classes: classes, Pairs: plan.Pairs()},
		reset: batch.Reset,
		answer: func(i int) (*answer.Answer, error) {
			if err := batch.Result(i, r); err != nil {
				return nil, err
			}
			return answer.FromResult(i, plan, r, min(defaultTopClasses, passes.K)), nil
		},
	}, nil
}

// defaultTopClasses is also the default of policies.
const defaultTopClasses = 10

// run prints a line for every input of the file.
func (d *decomposer) run(ctx *cmdContext, passes *record.Passes, p answer.Printer) (refused answer.Refusals, err error) {
	all := d.reset(evalRecording(passes).Passes)
	if tooFew := (*decomp.PassesError)(nil); all != nil && !errors.As(all, &tooFew) {
		return refused, all
	}
	for i := range passes.N {
		if ctx.Ctx.Err() != nil {
			return refused, fmt.Errorf("interrupted after %d of %d inputs", i, passes.N)
		}
		l, err := (*answer.Answer)(nil), all
		if err == nil {
			l, err = d.answer(i)
		}
		if err != nil {
			r := answer.Refuse(i, err)
			refused.Add(r)
			err = p.Refusal(r)
		} else {
			err = p.Answer(l)
		}
		if err != nil {
			return refused, fmt.Errorf("input %d: %w", i, err)
		}
	}
	return refused, p.End()
}
