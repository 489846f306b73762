package main

import (
	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/policy"
)

// earlyStopCmd completes a policy with an early-stopping rule.
type earlyStopCmd struct {
	Policy string `required:"" placeholder:"FILE" help:"The policy file, or folder of them, with thresholds. All but its rule stays."`
	Name   string `placeholder:"MODEL" help:"Which model's policy, where there are several."`
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Labels string `placeholder:"FILE" help:"The true class of each input, by number or by name, for what becomes of critical inputs: .npy or .npz."`
	Groups string `placeholder:"FILE" help:"A whole number for each input, the same for inputs that are not independent, such as images of one patient: .npy or .npz. Halves and certificates are by group."`

	MaxDisagreement float64 `default:"0.01" placeholder:"X" help:"The largest share of all inputs that the rule may decide otherwise than all passes would. (${default})"`
	MaxReleased     float64 `default:"0.05" placeholder:"X" help:"The largest share, of the inputs that all passes defer, that the rule may retain instead. (${default})"`
	Confidence      float64 `default:"0.9" placeholder:"P" help:"Confidence of each of the two. (${default})"`
	Ordered         bool    `help:"The passes are the members of an ensemble, one fixed list: the rule keeps their order, here and live."`

	resultFlags
}

// Help returns the long text of ckd calibrate early-stop --help.
func (*earlyStopCmd) Help() string {
	return `One half of the recording, at random, teaches from which pass on an input need not be waited for; the other half
certifies that, and says what it saves and costs. Passes are taken for draws of one posterior, whose order is of no account,
unless they are an ensemble's members. A rule that uses more than 1/1.1 of the passes is refused.

    ckd calibrate early-stop --policy policy.yaml --passes P.npy --labels Y.npy --out settled.yaml

Exit codes: 0 the policy is written; 1 a file or the policy has a fault; 2 wrong usage; 3 nothing certifies: no policy is
written, and the report says how far off it is. docs/calibrate.md tells the method.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *earlyStopCmd) Validate() error {
	return checkNumbers(
		numberFlag{"--max-disagreement", &c.MaxDisagreement, 0, 1, true}, numberFlag{"--max-released", &c.MaxReleased, 0, 1, true},
		numberFlag{"--confidence", &c.Confidence, 0, 1, true},
	)
}

// Run learns and certifies the rule, and writes the policy and the report.
func (c *earlyStopCmd) Run(ctx *cmdContext) error {
	model, err := loadPolicy(c.Policy, c.Name, "--name")
	if err != nil {
		return err
	}
	if calibration := model.Calibration; !c.Ordered && calibration != nil && policy.IsEnsemble(calibration.Posterior) {
		return usageError("model %s of %s was calibrated on an ensemble, whose members are one fixed list: expected --ordered", model.Name, c.Policy)
	}
	return c.write(ctx, []string{c.Passes, c.Labels, c.Policy, c.Groups}, func() (*calibrate.Report, error) { return c.learn(ctx, model) })
}

// learn reads the recording, and learns and certifies the rule.
func (c *earlyStopCmd) learn(ctx *cmdContext, model *policy.Policy) (*calibrate.Report, error) {
	rec, err := unlaidFlags(c.Passes, c.Labels, c.Policy).readRecording(ctx, model)
	if err != nil {
		return nil, err
	}
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	o := calibrate.EarlyStopOptions{
		Base: model, Disagreement: c.MaxDisagreement, Released: c.MaxReleased, Confidence: c.Confidence, Ordered: c.Ordered,
		Seed: calibrationSeed, Progress: bars.update,
		Source: calibrate.Source{Software: software(), Passes: rec.passesFile, Labels: rec.labelsFile},
	}
	if c.Groups != "" {
		if o.Groups, o.Source.Groups, err = readGroups(c.Groups, rec.passes); err != nil {
			return nil, err
		}
	}
	rec.sort(o.Groups)
	if o.Replaces, err = c.atOut(model.Name); err != nil {
		return nil, err
	}
	return calibrate.LearnEarlyStop(ctx.Ctx, rec.forEval(), o)
}
