package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// resultFlags say where a policy and the report on it go.
type resultFlags struct {
	Full   bool   `help:"Print everything, not one screen."`
	Format string `enum:"table,html,json" default:"table" help:"Form of the report: ${enum}. html is one page to sign, for two sides of paper. (${default})"`
	Out    string `placeholder:"PATH" help:"Write the policy to a file, and the report to the standard output. Default: the policy to standard output, the report to standard error; JSON has both."`
}

// forceFlag makes a policy that the recording does not support.
type forceFlag struct {
	Force bool `help:"Write a policy even where the recording shows no gain over reviews drawn at random. The policy says so."`
}

// write makes a policy, and writes it and the report. It fails before the work if --out cannot be
// written, or is one of the inputs.
func (f *resultFlags) write(ctx *cmdContext, inputs []string, calibrated func() (*calibrate.Report, error)) error {
	switch ext := filepath.Ext(f.Out); {
	case f.Format == "html" && f.Out == "":
		return usageError("--format html prints a page to sign: expected --out for the policy, as in --out policy.yaml --format html > page.html")
	case ext == ".html" || ext == ".htm" || ext == ".json":
		return usageError("--out %s: the policy goes there, and the report to the standard output: expected --out policy.yaml --format %s > %s",
			f.Out, strings.TrimPrefix(ext, "."), f.Out)
	}
	out, err := openOutput(ctx, f.Out, inputs...)
	if err != nil {
		return err
	}
	defer out.discard()
	found, err := calibrated()
	if err != nil {
		return interrupted(ctx, err)
	}
	for _, w := range found.Warnings {
		fmt.Fprintf(ctx.Stderr, "ckd: warning: %s\n", w)
	}
	destination := ctx.Stderr
	if f.Out != "" || f.Format == "json" {
		destination = ctx.Stdout
	}
	if found.Refused() {
		if err := f.writeReport(destination, found); err != nil {
			return err
		}
		why := "nothing certifies"
		switch {
		case len(passcheck.Void(found.Signs)) > 0:
			why = "the recording is not what it seems"
		case found.Unsupported != "":
			why = "no gain is shown"
		}
		return fail(exitUncertified, errors.New(why+": no policy is written"))
	}
	if f.Out != "" || f.Format != "json" {
		out.WriteString(found.PolicyText)
		if err := out.commit(); err != nil {
			return err
		}
	}
	return f.writeReport(destination, found)
}

func (f *resultFlags) writeReport(w io.Writer, found *calibrate.Report) error {
	switch f.Format {
	case "json":
		return writeJSON(w, found)
	case "html":
		return document.WriteSheet(w, report.CalibrationSheet(found, f.Out))
	}
	return writeDocument(w, report.Calibration(found, f.Out), f.Format, f.Full)
}

// atOut returns the policy that --out holds already, or nil. The file will be replaced, so it must
// hold a policy of the same model, and no other.
func (f *resultFlags) atOut(model string) (*policy.Policy, error) {
	if f.Out == "" {
		return nil, nil
	}
	info, err := os.Stat(f.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() == 0: // a pipe or a device holds no policy
		return nil, nil
	case info.Size() > policy.MaxFileBytes:
		return nil, usageError("--out %s is there and too large for a policy, expected a new file or a policy of one model", f.Out)
	}
	data, err := os.ReadFile(f.Out)
	if err != nil {
		return nil, err
	}
	set, err := policy.Parse(policy.File{Name: f.Out, Data: data})
	if err != nil {
		return nil, usageError("--out %s is there and no policy, expected a new file or a policy of one model: %w", f.Out, err)
	}
	for _, p := range set.All() {
		if p.Name != model {
			return nil, usageError("--out %s holds the policy of model %s, expected a new file or one of model %s alone: all of "+
				"it would be replaced", f.Out, p.Name, model)
		}
	}
	return set.All()[0], nil
}
