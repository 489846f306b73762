package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// calibrateCmd makes a policy from a labelled recording.
type calibrateCmd struct {
	Passes string `placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Labels string `placeholder:"FILE" help:"The true class of each input, by number, by name or one-hot: .npy or .npz. Not needed with --settle alone."`
	classFlags
	rowFlags
	policyFlags

	Coverage        *float64 `placeholder:"C" help:"Objective: the share of inputs to retain."`
	ReviewsPer1000  *float64 `name:"reviews-per-1000" placeholder:"N" help:"Objective: how many of 1000 inputs people can review; coverage in other words. With --critical-calls reviewed it is all their reviews, and critical calls use up part of it."`
	CostRatio       *float64 `name:"cost-ratio" placeholder:"N" help:"Objective: the least cost, where a miss costs as much as N reviews and a review finds the miss. Sets the threshold on risk."`
	MaxCriticalMiss []string `sep:"none" placeholder:"[CLASS=]X" help:"Objective: the largest share of all critical inputs, or of those of a class, that may be retained and called safe, with --confidence (Learn-then-Test). May be repeated for classes."`
	MaxCriticalFNR  []string `name:"max-critical-fnr" sep:"none" placeholder:"[CLASS=]X" help:"Objective: the largest share of the retained critical inputs, or of those of a class, that may be called safe, with --confidence (Learn-then-Test). May be repeated for classes, and stand beside --max-critical-miss."`
	Groups          string   `placeholder:"FILE" help:"A whole number for each input, the same for inputs that are not independent, such as images of one patient: .npy or .npz. Folds, parts and certificates are by group."`
	Attempts        string   `placeholder:"FILE" help:"Where the attempts at a certificate on this recording are remembered. Default: the file of passes with .attempts.jsonl added."`
	Settle          *float64 `placeholder:"X" help:"Learn an early-stopping rule that decides at most this share of the inputs otherwise than all their passes would. Beside an objective, or alone for a --policy with thresholds, which stay."`
	SettleReleased  *float64 `placeholder:"X" help:"The largest share, of the inputs that all passes defer, that the rule of --settle may retain instead; tested as --settle itself is. Default 0.05."`
	Confidence      *float64 `placeholder:"P" help:"Confidence of all bounds on misses together, and of --settle. Default 0.95, of --settle 0.9."`
	Ordered         bool     `help:"The passes are the members of an ensemble, one fixed list: --settle keeps their order, here and live."`

	Guard         float64  `placeholder:"X" help:"Share of inputs that a policy on p_critical or risk defers as unfamiliar, those of the largest MI, within the coverage asked for. Default: 0, no guard."`
	Prevalence    *float64 `placeholder:"X" help:"Share of critical inputs where the model serves. Risk and its thresholds are shifted from the recording's share, which is usually higher. Default: the recording's."`
	CriticalCalls string   `name:"critical-calls" enum:"unsaid,acted-on,reviewed" default:"unsaid" help:"What becomes of a retained input called critical: ${enum}. In scope all only acted-on lets a rule be chosen that never defers one. reviewed counts it among the reviews, and --reviews-per-1000 with it. (${default})"`

	AlarmAbove []string `sep:"none" placeholder:"[CLASS=]X" help:"State what outcomes are tested against: the critical FNR of the retained inputs, or of those of a class, above which an alarm is due. May be repeated for classes. Default: what is certified, or the upper end of what is expected."`

	Ledger       string  `placeholder:"DIR" help:"In place of passes and labels: calibrate --policy anew on the outcomes of its own decisions, from a ledger that no daemon has open."`
	Since        string  `placeholder:"DATE" help:"With --ledger: outcomes of decisions from this day or time on, named before anyone looked at them."`
	ModelVersion *string `placeholder:"TEXT" help:"With --ledger: the model version that the decisions were made for. Default: the policy's."`

	Scope       policy.Scope `enum:"all,predicted-safe" default:"all" help:"Which inputs may be deferred: ${enum}. (${default})"`
	Reliability *float64     `name:"reliability-threshold" placeholder:"X" help:"Skewness up to which C_k is trusted. Default 0.3, or the policy's."`
	Posterior   string       `placeholder:"NAME" help:"How the passes were sampled, as mc-dropout or ensemble: written to the policy, and held against what clients state."`
	Name        string       `placeholder:"MODEL" help:"Name of the model, where no --policy names it. Default: from the file of passes."`
	Seed        uint64       `default:"42" placeholder:"N" help:"Seed of the random folds and parts. (${default})"`

	Format string `enum:"table,json" default:"table" help:"Form of the report: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write the policy to a file, and the report to the standard output. Default: the policy to the standard output, the report to the standard error; JSON has both."`
}

// Help returns the long text of ckd calibrate --help.
func (*calibrateCmd) Help() string {
	return `From labelled passes to a policy that "ckd serve" loads. It compares the paper's scores, p_critical, risk and
the paper's gate, and keeps the simplest rule unless another is clearly better; the figures that it reports were measured
on inputs that did not choose the rule. Exactly one objective is needed, or --settle with a policy that has thresholds.

    ckd calibrate --passes P.npy --labels Y.npy --classes 0,1,2,3 --critical 2,3 --coverage 0.8 --out policy.yaml
    ckd calibrate --passes P.npy --labels Y.npy --policy old.yaml --max-critical-fnr 0.05 --confidence 0.95 --out policy.yaml
    ckd calibrate --passes P.npy --policy old.yaml --settle 0.01 --out policy.yaml

With --policy, the policy is completed: its name, classes, sets, kind, variance, weights and handling of degenerate passes
stay; its gate, scope, scores and thresholds are replaced, and it expects the recording's number of passes.

With --settle, one half of the recording, by --seed, calibrates and learns from which pass on an input need not be waited
for; the other half certifies that: at most the share --settle of the inputs is decided otherwise, and at most the share
--settle-released of those that all passes defer is retained instead. Alone it needs no labels, and keeps the policy as it is but for its block settle. Passes
are taken for draws of one posterior, whose order is of no account, unless --ordered says that they are an ensemble's members.

With --ledger, a policy is calibrated anew on what people found about its own decisions: one half of the outcomes, by
group, chooses a score and its threshold, the other certifies it. No passes are needed.

    ckd calibrate --ledger DIR --policy current.yaml --since 2026-10-31 --max-critical-fnr 0.1 --confidence 0.9 --out policy.yaml

Exit codes: 0 the policy is written; 1 a file or the policy has a fault; 2 wrong usage; 3 nothing certifies: no policy is
written, and the report says how far off it is. docs/calibrate.md tells the method.`
}

// Validate refuses flags that make no sense. kong calls it.
func (c *calibrateCmd) Validate() error {
	if err := c.checkLedger(); err != nil {
		return err
	}
	given := 0
	for _, flag := range []struct {
		name        string
		value       *float64
		least, most float64
		inside      bool // the value must lie between least and most, and equal neither
	}{
		{"--coverage", c.Coverage, 0, 1, false},
		{"--reviews-per-1000", c.ReviewsPer1000, 0, 1000, false},
		{"--prevalence", c.Prevalence, 0, 1, true},
		{"--cost-ratio", c.CostRatio, 1, 1e9, true},
		{"--settle", c.Settle, 0, 1, true},
		{"--settle-released", c.SettleReleased, 0, 1, true},
		{"--confidence", c.Confidence, 0, 1, true},
	} {
		if flag.value == nil {
			continue
		}
		if flag.name != "--confidence" && !strings.HasPrefix(flag.name, "--settle") && flag.name != "--prevalence" {
			given++
		}
		v := *flag.value
		ok := v >= flag.least && v <= flag.most
		if flag.inside {
			ok = v > flag.least && v < flag.most
		}
		if !ok {
			return fmt.Errorf("%s %v: expected a number from %v to %v%s", flag.name, v, flag.least, flag.most,
				map[bool]string{true: ", not the ends", false: ""}[flag.inside])
		}
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	given += min(len(limits), 1)
	if _, err := c.alarmAbove(); err != nil {
		return err
	}
	switch {
	case given > 1 || given == 0 && c.Settle == nil:
		return errors.New("expected exactly one objective: --coverage, --reviews-per-1000, --cost-ratio, --max-critical-miss or --max-critical-fnr; " +
			"or --settle")
	case !(c.Guard >= 0 && c.Guard < 1):
		return fmt.Errorf("--guard %v: expected a share of at least 0 and below 1", c.Guard)
	case c.ReviewsPer1000 != nil && *c.ReviewsPer1000 == 0 && c.CriticalCalls == string(eval.Reviewed):
		return errors.New("--reviews-per-1000 0 with --critical-calls reviewed leaves no review for critical calls: expected more")
	case c.CostRatio != nil && c.Scope == policy.AllInputs && c.CriticalCalls != string(eval.ActedOn):
		return errors.New("--cost-ratio sets a threshold on risk, which never defers an input called critical: expected --critical-calls acted-on, " +
			"if critical calls are acted on at the site, or --scope predicted-safe")
	case c.Confidence != nil && len(limits) == 0 && c.Settle == nil:
		return errors.New("--confidence needs --max-critical-miss, --max-critical-fnr or --settle: nothing else has one")
	case given == 1 && c.Labels == "" && c.Ledger == "":
		return errors.New("an objective without --labels: expected the true class of each input")
	case c.Coverage != nil && *c.Coverage == 0 || c.ReviewsPer1000 != nil && *c.ReviewsPer1000 == 1000:
		return errors.New("a coverage of 0 defers everything: expected more")
	case c.Reliability != nil && (!(*c.Reliability > 0) || math.IsInf(*c.Reliability, 1)):
		return fmt.Errorf("--reliability-threshold %v: expected a finite number above 0", *c.Reliability)
	case c.Posterior != "" && !policy.IsName(c.Posterior):
		return fmt.Errorf("--posterior %q: expected %s", c.Posterior, policy.NameForm)
	case c.Name != "" && !policy.IsName(c.Name):
		return fmt.Errorf("--name %q: expected %s", c.Name, policy.NameForm)
	case c.Name != "" && c.Policy != "":
		return errors.New("--name beside --policy, which names the model: expected one of them")
	case c.Seed > math.MaxInt64:
		return fmt.Errorf("--seed %d: expected at most %d", c.Seed, int64(math.MaxInt64))
	case given == 1 && c.Critical == nil && c.Policy == "":
		return errors.New("expected --critical with the classes that must not be missed, or a --policy that names them")
	}
	return cmp.Or(c.checkSettle(), c.labelled().check())
}

// checkSettle refuses flags that make no sense with or without --settle.
func (c *calibrateCmd) checkSettle() error {
	switch {
	case c.Settle == nil && c.SettleReleased != nil:
		return errors.New("--settle-released needs --settle: there is no rule to bound without it")
	case c.Settle == nil && c.Ordered:
		return errors.New("--ordered needs --settle: nothing else looks at the order of passes")
	case c.Settle == nil:
		return nil
	case policy.IsEnsemble(c.Posterior) && !c.Ordered:
		return errors.New("--settle for an ensemble, whose members are one fixed list: expected --ordered")
	case c.seeks():
		return nil
	case c.Policy == "":
		return errors.New("--settle alone keeps a policy as it is, expected --policy with it, or an objective")
	case c.Posterior != "" || c.Reliability != nil || c.Scope != policy.AllInputs:
		return errors.New("--posterior, --reliability-threshold and --scope need an objective: --settle alone keeps the policy as it is")
	}
	return nil
}

// labelled returns the flags that name the recording.
func (c *calibrateCmd) labelled() *labelledFlags {
	return &labelledFlags{c.Passes, c.Labels, c.classFlags, c.rowFlags, c.policyFlags}
}

// seeks reports whether there is an objective. Without one the policy is kept.
func (c *calibrateCmd) seeks() bool {
	return c.Coverage != nil || c.ReviewsPer1000 != nil || c.CostRatio != nil || len(c.MaxCriticalMiss) > 0 || len(c.MaxCriticalFNR) > 0
}

func (c *calibrateCmd) objective() calibrate.Objective {
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
	limits, _ := c.limits() // Validate has refused faults
	o := calibrate.Objective{ClassLimits: limits}
	o.ClassLimits = slices.DeleteFunc(o.ClassLimits, func(l calibrate.ClassLimit) bool {
		switch {
		case l.Class != "":
			return false
		case l.Bounds == policy.CriticalMissRate:
			o.MaxCriticalMiss = l.Most
		default:
			o.MaxCriticalFNR = l.Most
		}
		return true
	})
	o.Confidence = 0.95
	if c.Confidence != nil {
		o.Confidence = *c.Confidence
	}
	return o
}

// criticalCalls returns what becomes of critical calls; "" where that is unsaid.
func (c *calibrateCmd) criticalCalls() eval.CriticalCalls {
	if c.CriticalCalls == "unsaid" {
		return ""
	}
	return eval.CriticalCalls(c.CriticalCalls)
}

// limits returns the bounds on misses. Those of all critical inputs have no class.
func (c *calibrateCmd) limits() (limits []calibrate.ClassLimit, err error) {
	for _, flag := range []struct {
		name   string
		values []string
		bounds policy.Figure
	}{
		{"--max-critical-miss", c.MaxCriticalMiss, policy.CriticalMissRate},
		{"--max-critical-fnr", c.MaxCriticalFNR, policy.CriticalFNR},
	} {
		of, err := classLimits(flag.name, flag.values, flag.bounds)
		if err != nil {
			return nil, err
		}
		limits = append(limits, of...)
	}
	return limits, nil
}

// classLimits returns the values of a flag that bounds a figure, of all critical classes or of one.
func classLimits(flag string, values []string, bounds policy.Figure) (limits []calibrate.ClassLimit, err error) {
	for _, text := range values {
		l := calibrate.ClassLimit{Bounds: bounds}
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
		if slices.ContainsFunc(limits, func(before calibrate.ClassLimit) bool { return before.Class == l.Class }) {
			return nil, fmt.Errorf("%s %s: given twice, expected once", flag, text)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// alarmAbove returns the lines that outcomes are tested against, where they are stated.
func (c *calibrateCmd) alarmAbove() ([]calibrate.ClassLimit, error) {
	return classLimits("--alarm-above", c.AlarmAbove, policy.CriticalFNR)
}

// Run calibrates, and writes the policy and the report.
func (c *calibrateCmd) Run(ctx *cmdContext) error {
	model, err := c.labelled().model()
	if err != nil {
		return err
	}
	if c.Settle != nil && !c.Ordered && !c.seeks() && model.Calibration != nil && policy.IsEnsemble(model.Calibration.Posterior) {
		return usageError("model %s of %s was calibrated on an ensemble, whose members are one fixed list: expected --ordered", model.Name, c.Policy)
	}
	out, err := openOutput(ctx, c.Out, c.Passes, c.Labels, c.Policy, c.Groups)
	if err != nil {
		return err
	}
	defer out.discard()
	found, err := c.calibrate(ctx, model)
	if err != nil {
		return interrupted(ctx, err)
	}
	for _, w := range found.Warnings {
		fmt.Fprintf(ctx.Stderr, "ckd: warning: %s\n", w)
	}
	return c.write(ctx, out, found)
}

// calibrate reads the recording and calibrates. model is the policy to complete; nil to make one.
func (c *calibrateCmd) calibrate(ctx *cmdContext, model *policy.Policy) (*calibrate.Report, error) {
	if c.Ledger != "" {
		return c.fromLedger(model)
	}
	rec, err := c.labelled().readRecording(ctx, model)
	if err != nil {
		return nil, err
	}
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	o := calibrate.Options{
		Base: model, Scope: c.Scope, Seed: c.Seed, EarlyStop: c.earlyStop(), Progress: bars.update,
		CriticalCalls: c.criticalCalls(), Guard: c.Guard,
		Source: calibrate.Source{Software: software(), Posterior: c.Posterior, Passes: rec.passesFile, Labels: rec.labelsFile},
	}
	o.AlarmAbove, _ = c.alarmAbove() // Validate has refused faults
	if c.seeks() {
		o.Objective = c.objective()
	}
	if o.Attempts = c.Attempts; o.Attempts == "" {
		o.Attempts = diskPath(c.Passes) + ".attempts.jsonl"
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
	if c.Reliability != nil {
		o.ReliabilityThreshold = *c.Reliability
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

// earlyStop returns what --settle asks for, or nil.
func (c *calibrateCmd) earlyStop() *calibrate.EarlyStopOptions {
	if c.Settle == nil {
		return nil
	}
	o := &calibrate.EarlyStopOptions{Disagreement: *c.Settle, Confidence: 0.9, Ordered: c.Ordered}
	if c.SettleReleased != nil {
		o.Released = *c.SettleReleased
	}
	if c.Confidence != nil {
		o.Confidence = *c.Confidence
	}
	return o
}

// base returns the policy to complete if there is no --policy. It observes.
func (c *calibrateCmd) base(rec *labelledRecording) (*policy.Policy, error) {
	names := func(classes []int) []string {
		list := []string{}
		for _, k := range classes {
			list = append(list, rec.classes[k])
		}
		return list
	}
	d := policy.Draft{
		Name: cmp.Or(c.Name, nameFrom(c.Passes)), Classes: rec.classes,
		Critical: names(rec.spec.Critical), Safe: names(rec.spec.Safe),
		Gate: policy.Never, Primary: policy.Rule{Score: policy.MI},
		// Confident models saturate single inputs in float32. Degenerate passes that are not one-hot mean
		// that dropout is off.
		Degenerate: policy.HandleDefer, Saturated: policy.HandleByScore,
	}
	if c.Kind != nil {
		d.Kind = policy.Kind(*c.Kind)
	}
	if c.Variance != nil {
		d.Variance = policy.Variance(*c.Variance)
	}
	if c.SumTolerance != nil {
		d.SumTolerance = *c.SumTolerance
	}
	p, err := policy.Build(d)
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

// atOut returns the policy that --out holds already, or nil. The file will be replaced, so it must
// hold a policy of the same model, and no other.
func (c *calibrateCmd) atOut(model string) (*policy.Policy, error) {
	if c.Out == "" {
		return nil, nil
	}
	info, err := os.Stat(c.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() == 0: // a pipe or a device holds no policy
		return nil, nil
	case info.Size() > policy.MaxFileBytes:
		return nil, usageError("--out %s is there and too large for a policy, expected a new file or a policy of one model", c.Out)
	}
	data, err := os.ReadFile(c.Out)
	if err != nil {
		return nil, err
	}
	set, err := policy.Parse(policy.File{Name: c.Out, Data: data})
	if err != nil {
		return nil, usageError("--out %s is there and no policy, expected a new file or a policy of one model: %w", c.Out, err)
	}
	for _, p := range set.All() {
		if p.Name != model {
			return nil, usageError("--out %s holds the policy of model %s, expected a new file or one of model %s alone: all of "+
				"it would be replaced", c.Out, p.Name, model)
		}
	}
	return set.All()[0], nil
}

// write writes the policy and the report to where they belong.
func (c *calibrateCmd) write(ctx *cmdContext, out *output, found *calibrate.Report) error {
	to := ctx.Stderr
	if c.Out != "" || c.Format == "json" {
		to = ctx.Stdout
	}
	if found.Refused() {
		if err := c.writeReport(to, found); err != nil {
			return err
		}
		return fail(exitUncertified, errors.New("nothing certifies: no policy is written"))
	}
	if c.Out != "" || c.Format != "json" {
		out.WriteString(found.PolicyText)
		if err := out.commit(); err != nil {
			return err
		}
	}
	return c.writeReport(to, found)
}

func (c *calibrateCmd) writeReport(w io.Writer, found *calibrate.Report) error {
	if c.Format == "json" {
		return writeJSON(w, found)
	}
	return writeDocument(w, report.Calibration(found, c.Out), c.Format)
}
