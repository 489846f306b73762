package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// rowFlags say how recorded passes are read and decomposed. Flags that a policy has too are
// pointers, which tell whether they were given.
type rowFlags struct {
	Layout       record.Layout `default:"snk" placeholder:"LAYOUT" help:"Order of the axes: snk (passes, inputs, classes) or nsk (inputs, passes, classes). (${default})"`
	Kind         *string       `enum:"probabilities,logits,dirichlet" placeholder:"KIND" help:"What a row is: probabilities (the default), logits or dirichlet."`
	Variance     *string       `enum:"sample,population" placeholder:"DIVISOR" help:"Divisor of variances: sample (S-1, the default) or population (S)."`
	SumTolerance *float64      `placeholder:"X" help:"How far the sum of a row of probabilities may be from 1. Default 0.001."`
}

// check refuses values that make no sense. The commands' Validate calls it.
func (f *rowFlags) check() error {
	if t := f.SumTolerance; t != nil && (!(*t > 0) || math.IsInf(*t, 1)) {
		return fmt.Errorf("--sum-tolerance %v: expected a finite number above 0", *t)
	}
	return nil
}

// spec returns what the flags ask for, over k classes and without sets.
func (f *rowFlags) spec(k int) decomp.Spec {
	spec := decomp.Spec{Classes: k}
	if f.Kind != nil {
		spec.Kind = map[string]decomp.Kind{"logits": decomp.Logits, "dirichlet": decomp.Dirichlet}[*f.Kind]
	}
	if f.Variance != nil && *f.Variance == "population" {
		spec.Variance = decomp.Population
	}
	if f.SumTolerance != nil {
		spec.SumTolerance = *f.SumTolerance
	}
	return spec
}

// read reads the passes of a file, and prints how it read them. If model is not nil, it says what
// the rows are.
func (f *rowFlags) read(ctx *cmdContext, path string, model *policy.Policy) (*record.Passes, error) {
	defer (&stageBars{ctx: ctx}).during("reading " + path)()
	passes, err := f.open(path, model)
	if err != nil {
		return nil, err
	}
	return passes, f.checkPasses(ctx, passes, passes.Note(), model)
}

// open reads the passes of a file, unlaid ones as [passes, inputs, classes].
func (f *rowFlags) open(path string, model *policy.Policy) (*record.Passes, error) {
	kind, _ := f.rows(model)
	passes, err := record.ReadPasses(path, record.Options{Layout: max(f.Layout, record.SNK), Concentrations: kind == policy.Dirichlet})
	if err != nil {
		return nil, err
	}
	if model != nil && passes.K != len(model.Classes) {
		return nil, fmt.Errorf("%s has %d classes, but model %s has %d: %s", path, passes.K, model.Name,
			len(model.Classes), firstNames(model.Classes))
	}
	return passes, nil
}

// checkPasses prints a note on how passes were read, and finds those that are not rows of their kind.
func (f *rowFlags) checkPasses(ctx *cmdContext, passes *record.Passes, note string, model *policy.Policy) error {
	fmt.Fprintf(ctx.Stderr, "ckd: %s: %s\n", passes.Name, note)
	kind, tolerance := f.rows(model)
	return checkRows(passes, kind, tolerance)
}

// rows returns what the rows are, by the policy if there is one.
func (f *rowFlags) rows(model *policy.Policy) (kind policy.Kind, tolerance float64) {
	if model != nil {
		return model.Kind, model.SumTolerance
	}
	kind, tolerance = policy.Probabilities, decomp.DefaultSumTolerance
	if f.Kind != nil {
		kind = policy.Kind(*f.Kind)
	}
	if f.SumTolerance != nil {
		tolerance = *f.SumTolerance
	}
	return kind, tolerance
}

// warn prints the signs that the passes of a file are not what they seem, for commands without a report
// to say so.
func warn(ctx *cmdContext, path string, signs []passcheck.Sign) {
	for _, s := range signs {
		fmt.Fprintf(ctx.Stderr, "ckd: warning: %s: %s\n", path, s.Text)
	}
}

// warnOfPasses looks at passes that are not decomposed yet, as a policy or flags say they are. It leaves
// faults to the command.
func warnOfPasses(ctx *cmdContext, passes *record.Passes, kind decomp.Kind, tolerance float64) {
	r := evalRecording(passes)
	in, err := passcheck.Decompose(r.Passes, decomp.Spec{Classes: passes.K, Kind: kind, SumTolerance: tolerance})
	if err != nil {
		return
	}
	signs, _ := passcheck.Passes(r.Passes, kind, passes.K, in)
	warn(ctx, passes.Name, signs)
}

// checkRows finds passes that as a whole are not rows of a kind.
func checkRows(p *record.Passes, kind policy.Kind, tolerance float64) error {
	switch kind {
	case policy.Probabilities:
		return p.CheckRows(tolerance)
	case policy.Logits:
		return p.CheckLogits()
	}
	return p.CheckClasses()
}

// evalRecording returns recorded passes as package eval takes them, without labels.
func evalRecording(p *record.Passes) eval.Recording {
	return eval.Recording{Name: p.Name, Classes: p.K, Passes: decomp.Tensor{
		Passes: p.S, Inputs: p.N, Layout: decomp.Layout(p.Layout), Float32: p.Float32, Float64: p.Float64,
	}}
}

// classFlags name the classes, and those that matter.
type classFlags struct {
	Classes  []string `placeholder:"NAME" help:"Names of the classes, in order. Default 0,1,..."`
	Critical []string `placeholder:"NAME" help:"Classes that must not be missed."`
	Safe     []string `placeholder:"NAME" help:"Classes whose confusion with critical ones counts. Default: all that are not critical."`
}

func (f *classFlags) check() error {
	if f.Safe != nil && f.Critical == nil {
		return errors.New("--safe without --critical: expected the classes that must not be missed too")
	}
	return nil
}

// fill sets the class sets of a spec, for the passes of a file, and returns the names of the
// classes.
func (f *classFlags) fill(spec *decomp.Spec, path string) (classes []string, err error) {
	classes, index, err := classNames(f.Classes, spec.Classes, path)
	if err != nil {
		return nil, err
	}
	if spec.Critical, err = resolveClasses("--critical", f.Critical, classes, index); err != nil {
		return nil, err
	}
	if spec.Safe, err = resolveClasses("--safe", f.Safe, classes, index); err != nil {
		return nil, err
	}
	for _, s := range spec.Safe {
		if slices.Contains(spec.Critical, s) {
			return nil, usageError("class %q is in both --critical and --safe, expected it in one", classes[s])
		}
	}
	if spec.Critical != nil && f.Safe == nil {
		for i := range spec.Classes {
			if !slices.Contains(spec.Critical, i) {
				spec.Safe = append(spec.Safe, i)
			}
		}
	}
	if pairs := len(spec.Safe) * len(spec.Critical); pairs > policy.MaxPairs {
		return nil, usageError("%d safe x %d critical classes, expected at most %d such pairs: name fewer with "+
			"--critical or --safe", len(spec.Safe), len(spec.Critical), policy.MaxPairs)
	}
	return classes, nil
}

// classNames returns the names of the k classes of a file, given or by number, and the class of
// each name.
func classNames(given []string, k int, path string) (classes []string, index map[string]int, err error) {
	classes = given
	if classes == nil {
		classes = numbers(k)
	}
	if len(classes) != k {
		return nil, nil, usageError("--classes has %d names, expected %d, the classes of %s", len(classes), k, path)
	}
	index = make(map[string]int, k)
	for i, name := range classes {
		if name == "" {
			return nil, nil, usageError("--classes: class %d has no name", i)
		}
		if first, twice := index[name]; twice {
			return nil, nil, usageError("--classes has %q twice, as classes %d and %d", name, first, i)
		}
		index[name] = i
	}
	return classes, index, nil
}

// numbers returns the names of k classes that were given none.
func numbers(k int) []string {
	names := make([]string, k)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// resolveClasses returns the classes with these names.
func resolveClasses(flag string, names, classes []string, index map[string]int) (set []int, err error) {
	for _, name := range names {
		i, ok := index[name]
		switch {
		case !ok:
			return nil, usageError("%s: no class %q, expected some of: %s%s", flag, name, firstNames(classes),
				strictyaml.Suggest(name, classes))
		case slices.Contains(set, i):
			return nil, usageError("%s has %q twice", flag, name)
		}
		set = append(set, i)
	}
	return set, nil
}

// givenFlag holds a flag that was given, with its value.
type givenFlag struct {
	name  string
	value []string
}

// givenFlags returns the flags that were given, of those that a policy has too. Sets of classes are
// sorted.
func givenFlags(classes *classFlags, rows *rowFlags) []givenFlag {
	sorted := func(names []string) []string {
		names = slices.Clone(names)
		slices.Sort(names)
		return names
	}
	return slices.DeleteFunc([]givenFlag{
		{"--classes", classes.Classes},
		{"--critical", sorted(classes.Critical)},
		{"--safe", sorted(classes.Safe)},
		{"--kind", textOf(rows.Kind)},
		{"--variance", textOf(rows.Variance)},
		{"--sum-tolerance", textOf(rows.SumTolerance)},
	}, func(f givenFlag) bool { return f.value == nil })
}

// textOf returns the text of a value, or nil if it was not given.
func textOf[T any](value *T) []string {
	if value == nil {
		return nil
	}
	return []string{fmt.Sprint(*value)}
}

// firstNames lists names, up to 40 of them.
func firstNames(names []string) string {
	const most = 40
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, ... (%d in all)", strings.Join(names[:most], ", "), len(names))
}

// policyFlags name a policy.
type policyFlags struct {
	Policy string `placeholder:"FILE" help:"A policy file, or a folder of them: it says classes, sets, kind, variance and tolerance, and decides."`
	Model  string `placeholder:"NAME" help:"Which model's policy, where there are several."`
}

func (f *policyFlags) check() error {
	if f.Policy == "" && f.Model != "" {
		return errors.New("--model names a model of a policy file, expected --policy too")
	}
	return nil
}

// load reads the policy that the flags name, and returns nil if they name none.
func (f *policyFlags) load() (*policy.Policy, error) { return loadPolicy(f.Policy, f.Model, "--model") }

// loadPolicy reads the policy of a model from a file or folder; nil without one. The flag chooses
// among several models.
func loadPolicy(path, model, flag string) (*policy.Policy, error) {
	if path == "" {
		return nil, nil
	}
	set, err := store.Load(path)
	if err != nil {
		return nil, err
	}
	all := set.All()
	if model == "" && len(all) == 1 {
		return all[0], nil
	}
	if p, ok := set.Get(model); ok {
		return p, nil
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	if model == "" {
		return nil, usageError("%s has %d models, expected %s with one of: %s", path, len(all), flag, firstNames(names))
	}
	return nil, usageError("%s %s is not in %s, expected one of: %s%s", flag, model, path, firstNames(names),
		strictyaml.Suggest(model, names))
}

// hashFile returns the name and the SHA-256 of a file. For a member of an archive it is that of the
// archive; for a pipe, which can be read only once, it is empty.
func hashFile(path string) (eval.File, error) {
	file := eval.File{Name: path}
	info, err := os.Stat(diskPath(path)) // to open a pipe again would wait for ever
	if err != nil || !info.Mode().IsRegular() {
		return file, err
	}
	f, err := os.Open(diskPath(path))
	if err != nil {
		return file, err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return file, fmt.Errorf("%s: %w", path, err)
	}
	file.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return file, nil
}

// diskPath returns the path of the file on disk: FILE.npz for FILE.npz:NAME.
func diskPath(path string) string {
	file, _ := record.SplitPath(path)
	return file
}

// sameFile reports whether two paths name one file.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// usageError returns an error that exits with the code for wrong usage.
func usageError(format string, args ...any) error {
	return fail(exitUsage, fmt.Errorf(format, args...))
}
