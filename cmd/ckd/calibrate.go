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
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// calibrateCmd makes a policy from a labelled recording.
type calibrateCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Labels string `placeholder:"FILE" help:"The true class of each input, by number, by name or one-hot: .npy or .npz. Not needed with --settle alone."`
	classFlags
	rowFlags
	policyFlags

	Coverage        *float64 `placeholder:"C" help:"Objective: the share of inputs to retain."`
	ReviewsPer1000  *float64 `name:"reviews-per-1000" placeholder:"N" help:"Objective: how many of 1000 inputs people can review; coverage in other words."`
	MaxCriticalMiss *float64 `placeholder:"X" help:"Objective: the largest share of critical inputs that may be retained and called safe, on average (conformal risk control)."`
	MaxCriticalFNR  *float64 `name:"max-critical-fnr" placeholder:"X" help:"Objective: the largest share of the retained critical inputs that may be called safe, with --confidence (Learn-then-Test)."`
	Settle          *float64 `placeholder:"X" help:"Learn when an input is settled before its last pass, so that at most this share is decided otherwise than by all passes. Beside an objective, or alone for a --policy with thresholds, which stay."`
	Confidence      *float64 `placeholder:"P" help:"Confidence of --max-critical-fnr and of --settle. Default 0.95, of --settle 0.9."`
	Ordered         bool     `help:"The passes are the members of an ensemble, one fixed list: --settle keeps their order, here and live."`

	Scope       policy.Scope `enum:"all,predicted-safe" default:"all" help:"Which inputs may be deferred: ${enum}. (${default})"`
	Reliability *float64     `name:"reliability-threshold" placeholder:"X" help:"Skewness up to which C_k is trusted. Default 0.3, or the policy's."`
	Posterior   string       `placeholder:"NAME" help:"How the passes were sampled, as mc-dropout or ensemble: written to the policy, and held against what clients state."`
	Name        string       `placeholder:"MODEL" help:"Name of the model, where no --policy names it. Default: from the file of passes."`
	Seed        uint64       `default:"42" placeholder:"N" help:"Seed of the random folds and parts. (${default})"`

	Format string `enum:"table,json" default:"table" help:"Form of the report: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write the policy to a file, and the report to the standard output. Default: the policy to the standard output, the report to the standard error; JSON has both."`
}

// Help is the long text of ckd calibrate --help.
func (*calibrateCmd) Help() string {
	return `From labelled passes to a policy that "ckd serve" loads. It compares every score alone, and gates over pairs of
scores with both thresholds chosen jointly, by cross-validation; the figures that it reports were measured on inputs
that did not choose the rule. Exactly one objective is needed, or --settle with a policy that has thresholds.

    ckd calibrate --passes P.npy --labels Y.npy --classes 0,1,2,3 --critical 2,3 --coverage 0.8 --out policy.yaml
    ckd calibrate --passes P.npy --labels Y.npy --policy old.yaml --max-critical-fnr 0.05 --confidence 0.95 --out policy.yaml
    ckd calibrate --passes P.npy --policy old.yaml --settle 0.01 --out policy.yaml

With --policy, the policy is completed: its name, classes, sets, kind, variance, weights and handling of identical passes
stay; its gate, scope, scores and thresholds are replaced, and it expects the recording's number of passes.

With --settle, one half of the recording, by --seed, calibrates and learns from which pass on an input need not be waited
for; the other half certifies that. Alone it needs no labels, and keeps the policy as it is but for its block settle. Passes
are taken for draws of one posterior, whose order is of no account, unless --ordered says that they are an ensemble's members.

Exit codes: 0 the policy is written; 1 a file or the policy has a fault; 2 wrong usage; 3 nothing certifies: no policy is
written, and the report says how far off it is. docs/calibrate.md tells the method.`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *calibrateCmd) Validate() error {
	given := 0
	for _, flag := range []struct {
		name        string
		value       *float64
		least, most float64
		inside      bool // the ends themselves are none
	}{
		{"--coverage", c.Coverage, 0, 1, false},
		{"--reviews-per-1000", c.ReviewsPer1000, 0, 1000, false},
		{"--max-critical-miss", c.MaxCriticalMiss, 0, 1, true},
		{"--max-critical-fnr", c.MaxCriticalFNR, 0, 1, true},
		{"--settle", c.Settle, 0, 1, true},
		{"--confidence", c.Confidence, 0, 1, true},
	} {
		if flag.value == nil {
			continue
		}
		if flag.name != "--confidence" && flag.name != "--settle" {
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
	switch {
	case given > 1 || given == 0 && c.Settle == nil:
		return errors.New("expected exactly one objective: --coverage, --reviews-per-1000, --max-critical-miss or --max-critical-fnr; " +
			"or --settle")
	case c.Confidence != nil && c.MaxCriticalFNR == nil && c.Settle == nil:
		return errors.New("--confidence is of --max-critical-fnr and --settle, expected one of them: nothing else has one")
	case given == 1 && c.Labels == "":
		return errors.New("an objective without --labels: expected the true class of each input")
	case (c.Coverage != nil || c.ReviewsPer1000 != nil) && c.objective().Coverage == 0:
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

// labelled are the flags that name the recording.
func (c *calibrateCmd) labelled() *labelledFlags {
	return &labelledFlags{c.Passes, c.Labels, c.classFlags, c.rowFlags, c.policyFlags}
}

// seeks reports whether there is an objective. Without one the policy is kept.
func (c *calibrateCmd) seeks() bool {
	return c.Coverage != nil || c.ReviewsPer1000 != nil || c.MaxCriticalMiss != nil || c.MaxCriticalFNR != nil
}

func (c *calibrateCmd) objective() calibrate.Objective {
	switch {
	case c.Coverage != nil:
		return calibrate.Objective{Coverage: *c.Coverage}
	case c.ReviewsPer1000 != nil:
		// Per mille in whole numbers, so that 200 is 0.8 and not 0.8 but for rounding.
		return calibrate.Objective{Coverage: (1000 - *c.ReviewsPer1000) / 1000}
	case c.MaxCriticalMiss != nil:
		return calibrate.Objective{MaxCriticalMiss: *c.MaxCriticalMiss}
	}
	o := calibrate.Objective{MaxCriticalFNR: *c.MaxCriticalFNR, Confidence: 0.95}
	if c.Confidence != nil {
		o.Confidence = *c.Confidence
	}
	return o
}

// Run calibrates, and writes the policy and the report.
func (c *calibrateCmd) Run(ctx *cmdContext) error {
	model, err := c.labelled().model()
	if err != nil {
		return err
	}
	out, err := openOutput(ctx, c.Out, c.Passes, c.Labels, c.Policy)
	if err != nil {
		return err
	}
	defer out.discard()
	found, err := c.calibrate(ctx, model)
	if err != nil {
		return interrupted(ctx, err)
	}
	return c.write(ctx, out, found)
}

// calibration is a result with where it came from, as --format json prints it.
type calibration struct {
	Software   string    `json:"software"`
	PassesFile eval.File `json:"passes_file"`
	LabelsFile eval.File `json:"labels_file"`
	*calibrate.Result
	// Settle is when inputs are settled early; nil without --settle.
	Settle *settling `json:"settle"`
	// PolicyHash and PolicyText are of the policy that is written; empty where
	// nothing certifies.
	PolicyHash string `json:"policy_hash"`
	PolicyText string `json:"policy"`
}

func (c *calibrateCmd) calibrate(ctx *cmdContext, model *policy.Policy) (*calibration, error) {
	rec, err := c.readRecording(ctx, model)
	if err != nil {
		return nil, err
	}
	base := model
	if base == nil {
		if base, err = c.base(rec); err != nil {
			return nil, err
		}
	}
	if c.Reliability != nil {
		copied := *base
		copied.ReliabilityThreshold = *c.Reliability
		base = &copied
	}
	was, err := c.atOut(base.Name)
	if err != nil {
		return nil, err
	}
	if c.Settle != nil {
		if err := c.checkSettleable(base, rec); err != nil {
			return nil, err
		}
	}
	rec.spec = engine.Spec(base) // with its weights: the policy decides by them
	found := &calibration{Software: software(), PassesFile: rec.passesFile, LabelsFile: rec.labelsFile}
	learns, certifies := halves(rec.passes.N, c.Seed)
	switch {
	case c.seeks() && c.Settle != nil:
		found.Result, err = c.search(ctx, rec, base, learns)
	case c.seeks():
		found.Result, err = c.search(ctx, rec, base, nil)
	default:
		found.Result, err = c.keep(ctx, rec, base)
	}
	if err != nil {
		return nil, err
	}
	if model != nil && found.Policy != nil && (found.Policy.FewestPasses != base.FewestPasses || found.Policy.ExpectedPasses != base.ExpectedPasses) {
		found.Notes = append(found.Notes, fmt.Sprintf("the policy had passes {fewest: %d, expected: %d}, and has {fewest: %d, expected: %d} now",
			base.FewestPasses, base.ExpectedPasses, found.Policy.FewestPasses, found.Policy.ExpectedPasses))
	}
	if c.seeks() && found.Policy != nil {
		found.tellOrigin(c.Posterior)
	}
	if c.Settle != nil && found.Policy != nil {
		if err := c.settle(ctx, rec, base, found, learns, certifies); err != nil {
			return nil, err
		}
	}
	return found, c.complete(ctx, base, found, was)
}

// search for the rule and its thresholds, on some inputs of the recording, nil for all.
func (c *calibrateCmd) search(ctx *cmdContext, rec *labelledRecording, base *policy.Policy, inputs []int) (*calibrate.Result, error) {
	table, err := newTable(ctx, rec.passes, rec.spec)
	if err != nil {
		return nil, err
	}
	labels := rec.labels
	if inputs != nil {
		table, labels = table.Take(inputs), make([]int, len(inputs))
		for at, i := range inputs {
			labels[at] = rec.labels[i]
		}
	}
	searching := newLateBar(ctx, "comparing rules")
	defer searching.stop()
	r, err := calibrate.Run(ctx.Ctx, table, labels, calibrate.Options{
		Base: base, Objective: c.objective(), Scope: c.Scope, Seed: c.Seed, Settles: c.Settle != nil, Progress: searching.update,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Passes, err)
	}
	return r, nil
}

// tellOrigin of the thresholds in the policy.
func (found *calibration) tellOrigin(posterior string) {
	p := found.Policy
	p.Calibration.Software, p.Calibration.Posterior = found.Software, posterior
	rec := &p.Calibration.Recording
	rec.PassesFile, rec.PassesSHA256 = printablePath(found.PassesFile.Name), found.PassesFile.SHA256
	rec.LabelsFile, rec.LabelsSHA256 = printablePath(found.LabelsFile.Name), found.LabelsFile.SHA256
}

// complete the policy with its hash, and hold it against what a policy may be, and
// against the one that was there.
func (c *calibrateCmd) complete(ctx *cmdContext, base *policy.Policy, found *calibration, was *policy.Policy) error {
	p := found.Policy
	if p == nil {
		return nil
	}
	parsed, err := parsedBack(p)
	if err != nil {
		return err
	}
	found.PolicyHash = parsed.Hash
	if c.seeks() || ofItself(base) {
		p.Calibration.PolicyHash = parsed.Hash
	}
	if c.seeks() {
		found.heed(was)
	}
	if c.Settle != nil {
		found.heedRule(ctx, was, base)
	}
	if parsed, err = parsedBack(p); err != nil {
		return err
	}
	if c.Settle != nil && parsed.SettleRule() == nil {
		return errors.New("internal fault, please report it: the rule is not in force in the policy that it was learned for")
	}
	for _, w := range parsed.Warnings() {
		if strings.HasPrefix(w, "settle.") { // a rule that is not in force any more, or promises little
			found.warn(ctx, "%s", w)
			continue
		}
		found.Notes = append(found.Notes, "ckd check will warn: "+w)
	}
	found.PolicyText = policyHead + string(p.Marshal())
	return nil
}

// parsedBack is the policy as the daemon will read it.
func parsedBack(p *policy.Policy) (*policy.Policy, error) {
	set, err := policy.Parse(policy.File{Name: "the calibrated policy", Data: p.Marshal()})
	if err != nil {
		return nil, fmt.Errorf("internal fault, please report it: %w", err)
	}
	return set.All()[0], nil
}

const policyHead = `# Written by ckd calibrate. "ckd check" says what it means; docs/policy.md explains every field.
`

// printablePath is the last part of a path, as far as a policy can hold it.
func printablePath(path string) string {
	const most = 200
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(filepath.Base(path), "?"))
	for len(name) > most {
		name = name[1:]
	}
	return strings.ToValidUTF8(name, "")
}

// base is the policy to complete where no --policy is given: it observes.
func (c *calibrateCmd) base(rec *labelledRecording) (*policy.Policy, error) {
	p := &policy.Policy{
		Name: c.Name, Classes: rec.classes, Critical: rec.spec.Critical, Safe: rec.spec.Safe,
		Kind: policy.Probabilities, FewestPasses: 2, SumTolerance: policy.DefaultSumTolerance, Tensor: policy.DefaultTensor,
		Variance:   policy.Sample,
		TopClasses: min(10, len(rec.classes)), ReliabilityThreshold: policy.DefaultReliabilityThreshold,
		Gate: policy.Never, Scope: policy.AllInputs,
		Primary: policy.Rule{Score: policy.MI}, Fallback: policy.Rule{Score: policy.CBEC},
		Pairs: policy.SafeCriticalPairs,
		// Confident models saturate single inputs in float32. Identical passes that
		// are not one-hot are dropout that is off.
		Degenerate: policy.HandleDefer, Saturated: policy.HandleByScore,
	}
	if c.Kind != nil {
		p.Kind = policy.Kind(*c.Kind)
	}
	if p.Kind == policy.Dirichlet {
		p.FewestPasses, p.ExpectedPasses = 1, 1
	}
	if c.Variance != nil {
		p.Variance = policy.Variance(*c.Variance)
	}
	if c.SumTolerance != nil {
		p.SumTolerance = *c.SumTolerance
	}
	if p.Name == "" {
		p.Name = nameFrom(c.Passes)
	}
	set, err := policy.Parse(policy.File{Name: "the classes and flags", Data: p.Marshal()})
	if err != nil {
		return nil, err
	}
	return set.All()[0], nil
}

// nameFrom a file of passes: fetal-health of fetal-health.passes.npy.
func nameFrom(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-"), "-._")
	if !policy.IsName(name) {
		return "model"
	}
	return name
}

// atOut is the policy that --out holds already, nil for none. It would be
// replaced, so that it must be of the same model, and alone.
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

// heed an earlier attempt to certify on the same recording, which the policy
// tells that was there: then this one is void, and so will be the next. To seek
// the same again finds the same policy, and is no further attempt.
func (found *calibration) heed(was *policy.Policy) {
	p := found.Result.Policy
	if p == nil {
		return
	}
	if found.Certificate != nil && found.PassesFile.SHA256 == "" {
		found.Notes = append(found.Notes, "the passes came by a pipe, and nothing tells them from others: an earlier attempt on them cannot "+
			"be noticed, nor a later one")
	}
	if was == nil || was.Calibration == nil {
		return
	}
	c, rec := was.Calibration, was.Calibration.Recording
	same := rec.PassesSHA256 != "" && rec.PassesSHA256 == found.PassesFile.SHA256 && rec.LabelsSHA256 == found.LabelsFile.SHA256
	if !same {
		return
	}
	earlier := c.EarlierAttempt
	if c.Certificate != nil && (c.Objective != found.Objective || was.Hash != found.PolicyHash) {
		earlier = fmt.Sprintf("%s, scope %s, seed %d", c.Objective, c.Scope, c.Seed)
	}
	if earlier == "" {
		return
	}
	p.Calibration.EarlierAttempt = earlier
	if found.Certificate != nil && found.Certificate.Void == "" {
		found.Void("a certificate was sought on the same recording before (" + earlier + ")")
	}
}

// write policy and report to where they belong.
func (c *calibrateCmd) write(ctx *cmdContext, out *output, found *calibration) error {
	report := ctx.Stderr
	if c.Out != "" || c.Format == "json" {
		report = ctx.Stdout
	}
	if found.refused() {
		if err := c.writeReport(report, found); err != nil {
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
	return c.writeReport(report, found)
}

// refused reports whether nothing certifies.
func (found *calibration) refused() bool {
	return found.Refusal != nil || found.Settle != nil && found.Settle.Refusal != nil
}

func (c *calibrateCmd) writeReport(w io.Writer, found *calibration) error {
	if c.Format == "json" {
		return writeJSON(w, found)
	}
	return writeCalibrationTables(w, found, c.Out)
}
