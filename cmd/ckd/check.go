package main

import (
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// checkCmd is `ckd check`: it prints what is wrong with policy files, or what they mean.
type checkCmd struct {
	Files  []string `arg:"" optional:"" name:"file" help:"Policy files, or directories whose *.yaml and *.yml are read."`
	Strict bool     `help:"Treat warnings as faults."`
	Schema bool     `help:"Print the JSON schema of policy files, for editors, and do nothing else."`
}

// Help returns the text that follows the usage in ckd check --help.
func (*checkCmd) Help() string {
	return `All files are one set, as the daemon loads them. Every fault of every file is printed to the standard error as
file:line:col: model "x": field: reason. Without faults, the standard output says what each policy means, one sentence
a line, and warns of what is legal but unwise.

Exit codes: 0 no faults; 1 faults, or warnings with --strict; 2 wrong usage.`
}

// Run checks the files.
func (c *checkCmd) Run(ctx *cmdContext) error {
	if c.Schema {
		_, err := ctx.Stdout.Write(policy.JSONSchema())
		return err
	}
	if len(c.Files) == 0 {
		return fail(exitUsage, errors.New("no policy file given, expected at least one file or directory"))
	}
	set, err := store.Load(c.Files...)
	var faults policy.Faults
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			fmt.Fprintln(ctx.Stderr, f.Error())
		}
		return fail(exitFault, fmt.Errorf("%s found", document.Noun(len(faults), "fault")))
	case err != nil:
		return fail(exitFault, err)
	}
	warnings := 0
	for i, p := range set.All() {
		if i > 0 {
			fmt.Fprintln(ctx.Stdout)
		}
		fmt.Fprintln(ctx.Stdout, header(p))
		for _, sentence := range p.Explain() {
			fmt.Fprintln(ctx.Stdout, "  "+sentence)
		}
		for _, w := range p.Warnings() {
			fmt.Fprintln(ctx.Stdout, "  warning: "+w)
			warnings++
		}
	}
	if c.Strict && warnings > 0 {
		return fail(exitFault, fmt.Errorf("%s found, which --strict takes for faults", document.Noun(warnings, "warning")))
	}
	return nil
}

// header names a policy: the model, the owner's version, and the hash that the daemon's answers
// carry.
func header(p *policy.Policy) string {
	version := ""
	if p.Version != "" {
		version = fmt.Sprintf(", version %s", p.Version)
	}
	return fmt.Sprintf("%s%s, hash %s", p.Name, version, p.Hash)
}
