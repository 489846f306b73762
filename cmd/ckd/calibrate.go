package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// calibrateCmd makes policies.
type calibrateCmd struct {
	Recording calibrateRecordingCmd `cmd:"" default:"withargs" help:"Choose a policy's gate, scores and thresholds from a labelled recording."`
	EarlyStop earlyStopCmd          `cmd:"" name:"early-stop" help:"Complete a policy with a rule that decides inputs before their last pass."`
	Outcomes  calibrateOutcomesCmd  `cmd:"" help:"Calibrate a policy anew on what people found about its own decisions."`
}

// calibrationSeed is the seed of the random folds, parts and orders: the same recording gives the
// same policy.
const calibrationSeed = 42

// calibrateRecordingCmd makes a policy from a labelled recording.
type calibrateRecordingCmd struct {
	Passes   string   `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Labels   string   `required:"" placeholder:"FILE" help:"The true class of each input, by number or by name: .npy or .npz."`
	Groups   string   `placeholder:"FILE" help:"A whole number for each input, the same for inputs that are not independent, such as images of one patient: .npy or .npz. Folds, parts and certificates are by group."`
	Classes  []string `placeholder:"NAME" help:"Names of the classes, in order. Default 0,1,..."`
	Critical []string `placeholder:"NAME" help:"Classes that must not be missed."`
	Policy   string   `placeholder:"FILE" help:"A policy file, or a folder of them, to complete: it says the classes and sets, and how rows are read."`
	Name     string   `placeholder:"MODEL" help:"Name of the model, or which of several that the policy file has. Default: from the file of passes."`

	Coverage       *float64 `placeholder:"C" help:"Objective: the share of inputs to retain."`
	ReviewsPer1000 *float64 `name:"reviews-per-1000" placeholder:"N" help:"Objective: how many of 1000 inputs people can review; coverage in other words. Where critical calls are reviewed too it is all reviews."`
	CostRatio      *float64 `name:"cost-ratio" placeholder:"N" help:"Objective: the least cost, where a miss costs as much as N reviews and a review finds the miss. Sets the threshold on risk."`
	boundFlags

	Scope         policy.Scope `enum:"all,predicted-safe" default:"all" help:"Which inputs may be deferred: ${enum}. (${default})"`
	CriticalCalls string       `name:"critical-calls" enum:"unsaid,acted-on,reviewed" default:"unsaid" help:"What becomes of a retained input called critical: ${enum}. In scope all only acted-on lets a rule be chosen that never defers one. reviewed counts it among the reviews. (${default})"`
	Guard         float64      `placeholder:"X" help:"Share of inputs that a policy on p_critical or risk defers as unfamiliar, those of the largest MI, within the coverage asked for. Default: 0, no guard."`
	Prevalence    *float64     `placeholder:"X" help:"Share of critical inputs where the model serves. Risk and its thresholds are shifted from the recording's share, which is usually higher. Default: the recording's."`

	forceFlag
	resultFlags
}

// Help returns the long text of ckd calibrate --help.
func (*calibrateRecordingCmd) Help() string {
	return `From labelled passes to a policy that "ckd serve" loads. The figures that it reports were measured on inputs that did
not choose the rule. Exactly one objective is needed; bounds on misses count as one.

    ckd calibrate --passes P.npy --labels Y.npy --classes 0,1,2,3 --critical 2,3 --coverage 0.8 --out policy.yaml
    ckd calibrate --passes P.npy --labels Y.npy --policy old.yaml --max-critical-fnr 0.05 --confidence 0.95 --out policy.yaml

A policy file is completed: its name, classes, sets, kind, variance, weights, reliability threshold, handling of
degenerate passes and stated lines stay; its gate, scope, scores and thresholds are replaced, and it expects the
recording's number of passes.

Exit codes: 0 the policy is written; 1 a file or the policy has a fault; 2 wrong usage; 3 no policy is written, because
nothing certifies or no gain is shown, and the report says how far off it is. docs/calibrate.md tells the method.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *calibrateRecordingCmd) Validate() error {
	limits, err := c.limits()
	if err != nil {
		return err
	}
	if err := checkNumbers(
		numberFlag{"--coverage", c.Coverage, 0, 1, false}, numberFlag{"--reviews-per-1000", c.ReviewsPer1000, 0, 1000, false},
		numberFlag{"--cost-ratio", c.CostRatio, 1, 1e9, true}, numberFlag{"--prevalence", c.Prevalence, 0, 1, true},
		numberFlag{"--confidence", c.Confidence, 0, 1, true},
	); err != nil {
		return err
	}
	given := min(len(limits), 1)
	for _, objective := range []*float64{c.Coverage, c.ReviewsPer1000, c.CostRatio} {
		if objective != nil {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("expected exactly one objective: --coverage, --reviews-per-1000, --cost-ratio, --max-critical-miss or --max-critical-fnr")
	case !(c.Guard >= 0 && c.Guard < 1):
		return fmt.Errorf("--guard %v: expected a share of at least 0 and below 1", c.Guard)
	case c.ReviewsPer1000 != nil && *c.ReviewsPer1000 == 0 && c.CriticalCalls == string(eval.Reviewed):
		return errors.New("--reviews-per-1000 0 with --critical-calls reviewed leaves no review for critical calls: expected more")
	case c.CostRatio != nil && c.Scope == policy.AllInputs && c.CriticalCalls != string(eval.ActedOn):
		return errors.New("--cost-ratio sets a threshold on risk, which never defers an input called critical: expected --critical-calls acted-on, " +
			"if critical calls are acted on at the site, or --scope predicted-safe")
	case c.Confidence != nil && len(limits) == 0:
		return errors.New("--confidence needs --max-critical-miss or --max-critical-fnr: nothing else has one")
	case c.Coverage != nil && *c.Coverage == 0 || c.ReviewsPer1000 != nil && *c.ReviewsPer1000 == 1000:
		return errors.New("a coverage of 0 defers everything: expected more")
	case c.Name != "" && !policy.IsName(c.Name):
		return fmt.Errorf("--name %q: expected %s", c.Name, policy.NameForm)
	case c.Critical == nil && c.Policy == "":
		return errors.New("expected --critical with the classes that must not be missed, or a --policy that names them")
	}
	return nil
}

func (c *calibrateRecordingCmd) objective() calibrate.Objective {
	switch {
	case c.Coverage != nil:
		return calibrate.Objective{Coverage: *c.Coverage}
	case c.ReviewsPer1000 != nil && c.CriticalCalls == string(eval.Reviewed):
		return calibrate.Objective{Reviews: *c.ReviewsPer1000 / 1000}
	case c.ReviewsPer1000 != nil:
		// The share is computed from whole numbers per mille, so that 200 gives exactly 0.8.
		return calibrate.Objective{Coverage: (1000 - *c.ReviewsPer1000) / 1000}
	case c.CostRatio != nil:
		return calibrate.Objective{CostRatio: *c.CostRatio}
	}
	return c.bounds()
}

// Run calibrates, and writes the policy and the report.
func (c *calibrateRecordingCmd) Run(ctx *cmdContext) error {
	model, err := loadPolicy(c.Policy, c.Name, "--name")
	if err != nil {
		return err
	}
	flags := unlaidFlags(c.Passes, c.Labels, c.Policy)
	flags.Classes, flags.Critical = c.Classes, c.Critical
	if model != nil {
		if err := flags.agree(model); err != nil {
			return err
		}
	}
	return c.write(ctx, []string{c.Passes, c.Labels, c.Policy, c.Groups}, func() (*calibrate.Report, error) {
		return c.calibrate(ctx, flags, model)
	})
}

// calibrate reads the recording and calibrates. model is the policy to complete; nil to make one.
func (c *calibrateRecordingCmd) calibrate(ctx *cmdContext, flags *labelledFlags, model *policy.Policy) (*calibrate.Report, error) {
	rec, err := flags.readRecording(ctx, model)
	if err != nil {
		return nil, err
	}
	if err := checkReviews(c.ReviewsPer1000, rec.passes.N); err != nil {
		return nil, err
	}
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	o := calibrate.Options{
		Base: model, Objective: c.objective(), Scope: c.Scope, Seed: calibrationSeed, Guard: c.Guard, Force: c.Force, Progress: bars.update,
		Source: calibrate.Source{Software: software(), Passes: rec.passesFile, Labels: rec.labelsFile},
	}
	if c.CriticalCalls != "unsaid" {
		o.CriticalCalls = eval.CriticalCalls(c.CriticalCalls)
	}
	if c.Groups != "" {
		if o.Groups, o.Source.Groups, err = readGroups(c.Groups, rec.passes); err != nil {
			return nil, err
		}
	}
	rec.sort(o.Groups)
	if c.Prevalence != nil {
		o.Prevalence = *c.Prevalence
	}
	if model == nil {
		if o.Base, err = c.base(rec); err != nil {
			return nil, err
		}
	}
	if o.Replaces, err = c.atOut(o.Base.Name); err != nil {
		return nil, err
	}
	found, err := calibrate.Run(ctx.Ctx, rec.forEval(), o)
	if err != nil {
		return nil, err
	}
	if now := found.Policy; model != nil && now != nil && (now.FewestPasses != model.FewestPasses || now.ExpectedPasses != model.ExpectedPasses) {
		found.Notes = append(found.Notes, fmt.Sprintf("the policy had passes {fewest: %d, expected: %d}, and has {fewest: %d, expected: %d} now",
			model.FewestPasses, model.ExpectedPasses, now.FewestPasses, now.ExpectedPasses))
	}
	return found, nil
}

// base returns the policy to complete if there is no --policy. It observes.
func (c *calibrateRecordingCmd) base(rec *labelledRecording) (*policy.Policy, error) {
	p, err := policy.Build(policy.Policy{
		Name: cmp.Or(c.Name, nameFrom(c.Passes)), Classes: rec.classes, Critical: rec.spec.Critical,
		Gate: policy.Never, Primary: policy.Rule{Score: policy.MI},
		// Confident models saturate single inputs in float32. Degenerate passes that are not one-hot mean
		// that dropout is off.
		Degenerate: policy.HandleDefer, Saturated: policy.HandleByScore,
	})
	if err != nil {
		return nil, fmt.Errorf("the classes and flags make no policy: %w", err)
	}
	return p, nil
}

// nameFrom returns a model's name for a file of passes: fetal-health for fetal-health.passes.npy.
func nameFrom(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-"), "-._")
	if !policy.IsName(name) {
		return "model"
	}
	return name
}

// boundFlags bound misses.
type boundFlags struct {
	MaxCriticalMiss []string `sep:"none" placeholder:"[CLASS=]X" help:"Objective: the largest share of all critical inputs, or of those of a class, that may be retained and called safe (Learn-then-Test). May be repeated for classes."`
	MaxCriticalFNR  []string `name:"max-critical-fnr" sep:"none" placeholder:"[CLASS=]X" help:"Objective: the largest share of the retained critical inputs, or of those of a class, that may be called safe (Learn-then-Test). May be repeated for classes, and stand beside the bound on critical misses."`
	Confidence      *float64 `placeholder:"P" help:"Confidence of all bounds on misses together. Default 0.95."`
}

// limits returns the bounds on misses, those of all critical inputs first.
func (f *boundFlags) limits() ([]calibrate.Limit, error) {
	misses, err := limitsOf("--max-critical-miss", f.MaxCriticalMiss, policy.CriticalMissRate)
	if err != nil {
		return nil, err
	}
	fnr, err := limitsOf("--max-critical-fnr", f.MaxCriticalFNR, policy.CriticalFNR)
	all := slices.Concat(misses, fnr)
	slices.SortStableFunc(all, func(a, b calibrate.Limit) int { return min(len(a.Class), 1) - min(len(b.Class), 1) })
	return all, err
}

// bounds returns the objective of the bounds on misses.
func (f *boundFlags) bounds() calibrate.Objective {
	o := calibrate.Objective{Confidence: 0.95}
	if f.Confidence != nil {
		o.Confidence = *f.Confidence
	}
	o.Limits, _ = f.limits() // Validate has refused faults
	return o
}

// limitsOf returns the values of a flag that bounds a figure, of all critical classes or of one.
func limitsOf(flag string, values []string, bounds policy.Figure) (limits []calibrate.Limit, err error) {
	for _, text := range values {
		l := calibrate.Limit{Bounds: bounds}
		number := text
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			l.Class, number = text[:i], text[i+1:]
			if l.Class == "" {
				return nil, fmt.Errorf("%s %q: expected the name of a class before the =", flag, text)
			}
		}
		if l.Most, err = strconv.ParseFloat(number, 64); err != nil || !(l.Most > 0 && l.Most < 1) {
			return nil, fmt.Errorf("%s %s: expected a number from 0 to 1, not the ends", flag, text)
		}
		if slices.ContainsFunc(limits, func(before calibrate.Limit) bool { return before.Class == l.Class }) {
			return nil, fmt.Errorf("%s %s: given twice, expected once", flag, text)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// numberFlag is a flag with a number from least to most; open leaves out both ends.
type numberFlag struct {
	name        string
	value       *float64 // nil if it was not given
	least, most float64
	open        bool
}

// checkNumbers refuses numbers out of their range.
func checkNumbers(flags ...numberFlag) error {
	for _, f := range flags {
		if f.value == nil {
			continue
		}
		v := *f.value
		if f.open && !(v > f.least && v < f.most) {
			return fmt.Errorf("%s %v: expected a number from %v to %v, not the ends", f.name, v, f.least, f.most)
		}
		if !(v >= f.least && v <= f.most) {
			return fmt.Errorf("%s %v: expected a number from %v to %v", f.name, v, f.least, f.most)
		}
	}
	return nil
}
