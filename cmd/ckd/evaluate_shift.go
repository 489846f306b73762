package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report"
	"github.com/ckd-project/ckd/eval"
)

// oodCmd compares recordings of known and of foreign inputs.
type oodCmd struct {
	ID      []string `required:"" name:"id" sep:"none" placeholder:"FILE" help:"Passes of known inputs. Repeat it for more seeds, each with its --ood."`
	OOD     []string `required:"" name:"ood" sep:"none" placeholder:"FILE" help:"Passes of foreign inputs by the same model, in the order of --id."`
	Classes []string `placeholder:"NAME" help:"Names of the classes, in order. Default 0,1,..."`
	rowFlags

	Full   bool   `help:"Print everything, not one screen."`
	Format string `enum:"table,json" default:"table" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd evaluate ood --help.
func (*oodCmd) Help() string {
	return `Says how well five scores, and the C_k of every class, tell inputs that the model was not made for from those it
was, and how the skewness of every class differs.

    ckd evaluate ood --id test.npy --ood foreign.npy
    ckd evaluate ood --id seed0/test.npy --ood seed0/foreign.npy --id seed1/test.npy --ood seed1/foreign.npy

Exit codes: 0 the report is out; 1 a file has a fault; 2 wrong usage. docs/evaluate.md explains every figure.`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *oodCmd) Validate() error {
	if len(c.ID) != len(c.OOD) {
		return fmt.Errorf("%d x --id and %d x --ood, expected one of each for every seed", len(c.ID), len(c.OOD))
	}
	return c.check()
}

// Run compares the recordings.
func (c *oodCmd) Run(ctx *cmdContext) error {
	paths := slices.Concat(c.ID, c.OOD)
	return writeOutput(ctx, c.Out, paths, func(w io.Writer) error { return c.write(ctx, w, paths) })
}

func (c *oodCmd) write(ctx *cmdContext, w io.Writer, paths []string) error {
	tables, files, err := readTables(ctx, &c.rowFlags, paths)
	if err != nil {
		return err
	}
	seeds := len(c.ID)
	classes, _, err := classNames(c.Classes, tables[0].K, c.ID[0])
	if err != nil {
		return err
	}
	r, err := eval.Detect(tables[:seeds], tables[seeds:], classes)
	if err != nil {
		return err
	}
	r.Source.Software, r.Source.ID, r.Source.OOD = software(), files[:seeds], files[seeds:]
	if c.Format == "json" {
		return writeJSON(w, r)
	}
	return writeDocument(w, report.OOD(r), c.Format, c.Full)
}

// disentangleCmd compares recordings of models trained under label noise.
type disentangleCmd struct {
	Levels []levelFile `required:"" name:"level" sep:"none" placeholder:"LEVEL=FILE" help:"Passes of the model trained under this level of label noise. Repeat it; the lowest level is the baseline."`
	rowFlags

	Full   bool   `help:"Print everything, not one screen."`
	Format string `enum:"table,json" default:"table" help:"Form of the output: ${enum}. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// Help is the long text of ckd evaluate disentangle --help.
func (*disentangleCmd) Help() string {
	return `Says how far epistemic uncertainty follows aleatoric when a share of the training labels is replaced: a level is that
share. All recordings are of the same clean inputs.

    ckd evaluate disentangle --level 0=clean.npy --level 0.1=noise10.npy --level 0.2=noise20.npy

Exit codes: 0 the report is out; 1 a file has a fault; 2 wrong usage. docs/evaluate.md explains every figure.`
}

// levelFile is a level of noise and the recording of it.
type levelFile struct {
	level float64
	path  string
}

// UnmarshalText reads LEVEL=FILE.
func (l *levelFile) UnmarshalText(text []byte) error {
	level, path, ok := strings.Cut(string(text), "=")
	if !ok || path == "" {
		return fmt.Errorf("%q: expected LEVEL=FILE, as in 0.1=noise10.npy", text)
	}
	value, err := strconv.ParseFloat(level, 64)
	if err != nil || !(value >= 0) || math.IsInf(value, 1) {
		return fmt.Errorf("%q: level %q: expected a finite number from 0", text, level)
	}
	*l = levelFile{value, path}
	return nil
}

// Validate refuses flags that make no sense; kong calls it.
func (c *disentangleCmd) Validate() error {
	if len(c.Levels) < 2 {
		return fmt.Errorf("%d x --level, expected it for the baseline and for at least one level above", len(c.Levels))
	}
	seen := make(map[float64]bool)
	for _, l := range c.Levels {
		if seen[l.level] {
			return fmt.Errorf("--level %v is given twice, expected one recording for each level", l.level)
		}
		seen[l.level] = true
	}
	return c.check()
}

// Run compares the recordings.
func (c *disentangleCmd) Run(ctx *cmdContext) error {
	slices.SortFunc(c.Levels, func(a, b levelFile) int { return cmp.Compare(a.level, b.level) })
	var paths []string
	for _, l := range c.Levels {
		paths = append(paths, l.path)
	}
	return writeOutput(ctx, c.Out, paths, func(w io.Writer) error { return c.write(ctx, w, paths) })
}

func (c *disentangleCmd) write(ctx *cmdContext, w io.Writer, paths []string) error {
	tables, files, err := readTables(ctx, &c.rowFlags, paths)
	if err != nil {
		return err
	}
	levels := make([]eval.Level, len(tables))
	for i, t := range tables {
		levels[i] = eval.Level{Level: c.Levels[i].level, Table: t}
	}
	r, err := eval.Disentangle(levels)
	if err != nil {
		return err
	}
	r.Source.Software, r.Source.Passes = software(), files
	if c.Format == "json" {
		return writeJSON(w, r)
	}
	return writeDocument(w, report.Disentanglement(r), c.Format, c.Full)
}

// readTables decomposes recordings of the same classes, one at a time: a table is much smaller than
// its recording.
func readTables(ctx *cmdContext, rows *rowFlags, paths []string) ([]*eval.Table, []eval.File, error) {
	files := make([]eval.File, len(paths))
	for i, path := range paths {
		var err error
		if files[i], err = hashFile(path); err != nil {
			return nil, nil, err
		}
	}
	tables := make([]*eval.Table, len(paths))
	bars := stageBars{ctx: ctx}
	defer bars.stop()
	for i, path := range paths {
		passes, err := rows.read(ctx, path, nil)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 && passes.K != tables[0].K {
			return nil, nil, fmt.Errorf("%s has %d classes, expected %d, as %s has", path, passes.K, tables[0].K, paths[0])
		}
		recording := evalRecording(passes)
		recording.Sort(nil)
		if tables[i], err = eval.NewTable(ctx.Ctx, recording, rows.spec(passes.K), bars.mover("decomposing "+path)); err != nil {
			return nil, nil, err
		}
		warn(ctx, path, tables[i].Signs)
	}
	return tables, files, nil
}
