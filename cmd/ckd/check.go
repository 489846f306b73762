package main

import (
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/cases"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// checkCmd is `ckd check`: it prints what is wrong with policy files, or what they mean.
type checkCmd struct {
	Files   []string `arg:"" optional:"" name:"file" help:"Policy files, or directories whose *.yaml and *.yml are read."`
	Full    bool     `help:"Print everything, not one screen."`
	Test    string   `placeholder:"FILE" help:"Decide the cases of this file, and fail if one is decided otherwise than it expects."`
	Against string   `placeholder:"PATH" help:"Print what the policies change, compared with this file or directory."`
	Strict  bool     `help:"Treat warnings as faults."`
	Schema  bool     `help:"Print the JSON schema of policy files, for editors, and do nothing else."`
}

// Help returns the text that follows the usage in ckd check --help.
func (*checkCmd) Help() string {
	return `All files are one set, as the daemon loads them. Faults go to the standard error as file:line:col: model "x": field:
reason. Without faults, ckd check says what a policy decides, what is expected of it, and what is legal but unwise.

    ckd check policy.yaml                           what it means
    ckd check --test policy.cases.yaml policy.yaml  whether known inputs are decided as they must be
    ckd check --against old.yaml policy.yaml        what it changes

Exit codes: 0 no faults; 1 faults, a case that fails, or warnings with --strict; 2 wrong usage.`
}

// Validate refuses flags that make no sense together; kong calls it.
func (c *checkCmd) Validate() error {
	switch {
	case c.Schema:
		return nil
	case len(c.Files) == 0:
		return errors.New("no policy file given, expected at least one file or directory")
	case c.Test != "" && c.Against != "":
		return errors.New("--test and --against are two commands, expected one of them")
	}
	return nil
}

// Run checks the files.
func (c *checkCmd) Run(ctx *cmdContext) error {
	if c.Schema {
		_, err := ctx.Stdout.Write(policy.JSONSchema())
		return err
	}
	set, err := store.Load(c.Files...)
	if err != nil {
		return faulty(ctx, err)
	}
	switch {
	case c.Test != "":
		return c.test(ctx, set)
	case c.Against != "":
		return c.compare(ctx, set)
	}
	return c.explain(ctx, set)
}

// faulty prints every fault, and returns how many there are.
func faulty(ctx *cmdContext, err error) error {
	faults := strictyaml.Faults{}
	if !errors.As(err, &faults) {
		return fail(exitFault, err)
	}
	for _, f := range faults {
		fmt.Fprintln(ctx.Stderr, f.Error())
	}
	return fail(exitFault, fmt.Errorf("%s found", document.Noun(len(faults), "fault")))
}

// explain prints what the policies mean: one at length, several in a line or two each.
func (c *checkCmd) explain(ctx *cmdContext, set *policy.Set) error {
	all := set.All()
	warnings := 0
	for i, p := range all {
		warnings += len(p.Warnings())
		if i > 0 && (c.Full || len(all) == 1) {
			fmt.Fprintln(ctx.Stdout)
		}
		if err := c.explainOne(ctx, p, len(all)); err != nil {
			return err
		}
	}
	if len(all) > 1 && !c.Full {
		fmt.Fprintf(ctx.Stdout, "%d policies, %s. --full says what each rests on.\n", len(all), document.Noun(warnings, "warning"))
	}
	if c.Strict && warnings > 0 {
		return fail(exitFault, fmt.Errorf("%s found, which --strict takes for faults", document.Noun(warnings, "warning")))
	}
	return nil
}

func (c *checkCmd) explainOne(ctx *cmdContext, p *policy.Policy, policies int) error {
	d := explained(p)
	switch {
	case c.Full:
		return document.Text(ctx.Stdout, d)
	case policies > 1:
		d.Screen.Rests, d.Screen.Next = nil, nil
	}
	_, err := d.Screen.WriteTo(ctx.Stdout)
	return err
}

// explained returns what a policy means.
func explained(p *policy.Policy) *document.Document {
	warnings, points := p.Warnings(), p.Explain()
	if c := p.Calibration; c != nil && c.Reference != nil {
		points = append(points, drift.Describe(c.Reference.Inputs))
	}
	id := "Hash " + p.Hash + "."
	if p.Version != "" {
		id = fmt.Sprintf("Version %s, hash %s.", p.Version, p.Hash)
	}
	d := &document.Document{
		Screen: document.Screen{
			Warnings: warnings,
			Lead:     p.Summary(), Rests: append(points, id), Next: next(p),
		},
	}
	if len(warnings) > 0 {
		d.Sections = []document.Section{{Title: "All warnings", Points: warnings}}
	}
	return d
}

// next says what to do with a policy.
func next(p *policy.Policy) []string {
	known := "Hold it to inputs whose decision you know: ckd check --test CASES FILE."
	switch {
	case p.Observes():
		return []string{"Serve it to see what your model does: ckd serve --policy FILE.", "Then calibrate on labelled passes: ckd calibrate."}
	case p.Calibration == nil || p.ChangedSinceCalibration():
		return []string{"Calibrate on labelled passes of your own model: ckd calibrate.", known}
	}
	return []string{known, "See what it changes, before you put it in force: ckd check --against OLD FILE.",
		"See what it misses on passes that it was not calibrated on: ckd evaluate --policy FILE."}
}

// mostListed bounds the cases and changes that are listed without --full.
const mostListed = 12

// test decides the cases of a file.
func (c *checkCmd) test(ctx *cmdContext, set *policy.Set) error {
	known, err := cases.Read(c.Test, set)
	if err != nil {
		return faulty(ctx, err)
	}
	results, err := cases.Judge(known)
	if err != nil {
		return fail(exitFault, err)
	}
	var failed, held []string
	for _, r := range results {
		if r.Holds {
			held = append(held, fmt.Sprintf("%s: %s: %s.", r.Place, r.Name, r.Found))
		} else {
			failed = append(failed, fmt.Sprintf("%s: %s: %s. Expected: %s.", r.Place, r.Name, r.Found, r.Expected))
		}
	}
	d := &document.Document{}
	if len(failed) == 0 {
		d.Screen.Lead = fmt.Sprintf("All %s hold.", document.Noun(len(results), "case"))
	} else {
		d.Screen.Lead = fmt.Sprintf("%d of %s failed.", len(failed), document.Noun(len(results), "case"))
		d.Sections = append(d.Sections, document.Section{Title: "Failed", Points: c.cut(failed)})
	}
	if c.Full && len(held) > 0 {
		d.Sections = append(d.Sections, document.Section{Title: "Held", Points: held})
	}
	if err := document.Text(ctx.Stdout, d); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fail(exitFault, errors.New("a policy decides a known input otherwise than it must"))
	}
	return nil
}

// cut bounds a list, unless everything is asked for.
func (c *checkCmd) cut(points []string) []string {
	if left := len(points) - mostListed; left > 0 && !c.Full {
		points = append(points[:mostListed:mostListed], fmt.Sprintf("%d more: --full has them.", left))
	}
	return points
}

// compare prints what changes, as the daemon logs it at a reload.
func (c *checkCmd) compare(ctx *cmdContext, after *policy.Set) error {
	before, err := store.Load(c.Against)
	if err != nil {
		return faulty(ctx, err)
	}
	d := &document.Document{}
	say := func(model string, changes ...string) {
		d.Sections = append(d.Sections, document.Section{Title: model, Points: c.cut(changes)})
	}
	same := 0
	for _, now := range after.All() {
		was, ok := before.Get(now.Name)
		if !ok {
			say(now.Name, "New. "+now.Summary())
			continue
		}
		if changes := policy.Changes(was, now); len(changes) > 0 {
			say(now.Name, changes...)
		} else {
			same++
		}
	}
	for _, was := range before.All() {
		if _, ok := after.Get(was.Name); !ok {
			say(was.Name, "Removed: inputs of this model are refused.")
		}
	}
	switch changed := len(d.Sections); changed {
	case 0:
		d.Screen.Lead = "Nothing changes: the policies decide, promise and record the same."
	case 1:
		d.Screen.Lead = fmt.Sprintf("1 of %s changes.", countPolicies(same+1))
	default:
		d.Screen.Lead = fmt.Sprintf("%d of %d policies change.", changed, changed+same)
	}
	return document.Text(ctx.Stdout, d)
}

func countPolicies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}
