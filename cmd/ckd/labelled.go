package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// labelledFlags name a labelled recording, and a policy that may say how it is read.
type labelledFlags struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy or .npz; FILE.npz:NAME for one of several arrays."`
	Labels string `required:"" placeholder:"FILE" help:"The true class of each input, by number or by name: .npy or .npz."`
	classFlags
	rowFlags
	policyFlags
}

func (c *labelledFlags) check() error {
	if c.Policy != "" { // it has the critical classes
		return c.rowFlags.check()
	}
	return cmp.Or(c.policyFlags.check(), c.rowFlags.check(), c.classFlags.check())
}

// model is the policy that the flags name, nil for none.
func (c *labelledFlags) model() (*policy.Policy, error) {
	p, err := c.load()
	if p == nil || err != nil {
		return nil, err
	}
	return p, c.agree(p)
}

// agree refuses flags that contradict the policy. Flags may repeat what it says.
func (c *labelledFlags) agree(p *policy.Policy) error {
	names := func(classes []int) (names []string) {
		for _, k := range classes {
			names = append(names, p.Classes[k])
		}
		return slices.Sorted(slices.Values(names))
	}
	has := map[string][]string{
		"--classes": p.Classes, "--critical": names(p.Critical), "--safe": names(p.Safe), "--kind": textOf(&p.Kind),
		"--variance": textOf(&p.Variance), "--sum-tolerance": textOf(&p.SumTolerance),
	}
	for _, flag := range givenFlags(&c.classFlags, &c.rowFlags) {
		if want := has[flag.name]; !slices.Equal(flag.value, want) {
			return usageError("%s is %s, but model %s of %s has %s: expected the same, or no %s beside --policy",
				flag.name, firstNames(flag.value), p.Name, c.Policy, firstNames(want), flag.name)
		}
	}
	return nil
}

// labelledRecording holds a recording that was read. Labels may be nil.
type labelledRecording struct {
	passes                 *record.Passes
	labels                 []int
	index                  []int // place of each input in the file: see sort
	passesFile, labelsFile eval.File
	classes                []string
	// spec has no weights of pairs: the score cbec of a report is the paper's, while a policy
	// decides by its own.
	spec decomp.Spec
}

// forEval returns the recording as packages eval and calibrate take it.
func (l *labelledRecording) forEval() eval.Recording {
	r := evalRecording(l.passes)
	r.Labels, r.Index = l.labels, l.index
	return r
}

// sort puts the inputs, and their groups if there are any, into an order that does not depend on that
// of the file.
func (l *labelledRecording) sort(groups []int) {
	r := l.forEval()
	r.Sort(groups)
	l.index = r.Index
}

// unlaid is the layout of passes whose axes tell themselves which is which: see lay.
const unlaid record.Layout = -1

// unlaidFlags name a recording whose policy or lack of one says all else, and whose labels tell which
// axis is the inputs. labels and policyFile may be empty.
func unlaidFlags(passes, labels, policyFile string) *labelledFlags {
	return &labelledFlags{Passes: passes, Labels: labels, rowFlags: rowFlags{Layout: unlaid}, policyFlags: policyFlags{Policy: policyFile}}
}

// readRecording reads the passes, and the labels if a file is named. model may be nil.
func (c *labelledFlags) readRecording(ctx *cmdContext, model *policy.Policy) (*labelledRecording, error) {
	defer (&stageBars{ctx: ctx}).during("reading " + c.Passes)()
	var l labelledRecording
	var err error
	if l.passes, err = c.open(c.Passes, model); err != nil {
		return nil, err
	}
	if model != nil {
		l.spec, l.classes = engine.Spec(model), model.Classes
		l.spec.Weights = nil
	} else {
		l.spec = c.spec(l.passes.K)
		if l.classes, err = c.fill(&l.spec, c.Passes); err != nil {
			return nil, err
		}
	}
	if c.Labels != "" {
		if l.labels, err = readLabels(c.Labels, l.classes); err != nil {
			return nil, err
		}
		if l.labelsFile, err = hashFile(c.Labels); err != nil {
			return nil, err
		}
	}
	note := l.passes.Note()
	if c.Layout == unlaid {
		note = lay(l.passes, l.labels, model)
	}
	if err := c.checkPasses(ctx, l.passes, note, model); err != nil {
		return nil, err
	}
	if l.labels != nil {
		if err := l.forEval().CheckLabels(); err != nil {
			return nil, fmt.Errorf("%s: %w%s", c.Labels, err, otherLayout(l.passes, len(l.labels)))
		}
	}
	l.passesFile, err = hashFile(c.Passes)
	return &l, err
}

// lay finds out which axis of passes, read as [passes, inputs, classes], is the inputs: the one that
// is as long as the labels, or without labels the one that is not as long as the policy's passes. It
// says how the passes are read.
func lay(p *record.Passes, labels []int, model *policy.Policy) (note string) {
	byLabels := labels != nil && len(labels) == p.S && len(labels) != p.N
	byPolicy := labels == nil && model != nil && model.ExpectedPasses == p.N && model.ExpectedPasses != p.S
	if byLabels || byPolicy {
		p.Transpose()
	}
	note = p.Form()
	if p.S == p.N {
		note += "; both axes are as long, and [passes, inputs, classes] is assumed"
	}
	return note
}

// readLabels reads labels by number or by name. classes has the names.
func readLabels(path string, classes []string) ([]int, error) {
	return record.ReadClassLabels(path, func(name string) (int, error) {
		if k := slices.Index(classes, name); k >= 0 {
			return k, nil
		}
		unnamed := ""
		if slices.Equal(classes, numbers(len(classes))) {
			unnamed = " (--classes gives them names)"
		}
		return 0, fmt.Errorf("expected one of the classes %s%s%s", firstNames(classes), unnamed, strictyaml.Suggest(name, classes))
	}, func(label int) error { return ambiguous(label, classes) })
}

// ambiguous returns an error for a label that is the number of one class and the name of another: with
// the classes 2, 0, 1, or 1, 2, 3, nobody can tell which of them is meant.
func ambiguous(label int, classes []string) error {
	named := slices.Index(classes, strconv.Itoa(label))
	if named < 0 || named == label {
		return nil
	}
	counted := "no class, as they count from 0"
	if label < len(classes) {
		counted = fmt.Sprintf("class %d, which is named %s", label, classes[label])
	}
	return fmt.Errorf("by name it is class %d, by position %s: the classes are named by other numbers, %s. Save the labels as text: "+
		"a.astype(str) if they are names, np.array(names)[a] if they are positions", named, counted, firstNames(classes))
}

// otherLayout says how to read passes so that they have this many inputs, where that takes the other
// layout.
func otherLayout(p *record.Passes, inputs int) string {
	if inputs == p.N || inputs != p.S { // calibrate has turned them round
		return ""
	}
	return fmt.Sprintf(" (it was read with as many passes: if these are the inputs, say --layout %v)", p.Layout.Other())
}

// checkReviews refuses a number of reviews per 1,000 inputs, where one is given, that comes to less than one input
// of a recording: a share, most likely. No review at all is meant as it stands.
func checkReviews(per1000 *float64, inputs int) error {
	if per1000 == nil || *per1000 == 0 || *per1000*float64(inputs) >= 1000 {
		return nil
	}
	meant := fmt.Sprintf("expected at least %.2g", math.Ceil(1e5/float64(inputs))/100)
	if *per1000 < 1 {
		meant = fmt.Sprintf("did you mean %.4g?", 1000**per1000)
	}
	return usageError("--reviews-per-1000 %v: %v per 1,000 is less than one of %s: %s", *per1000, *per1000, document.Noun(inputs, "input"), meant)
}

// readGroups reads a file of groups, one for each of the inputs of the passes.
func readGroups(path string, passes *record.Passes) ([]int, eval.File, error) {
	groups, err := record.ReadGroups(path)
	if err != nil {
		return nil, eval.File{}, err
	}
	if len(groups) != passes.N {
		return nil, eval.File{}, fmt.Errorf("%s has %d groups, expected %d: one for each input of %s", path, len(groups), passes.N,
			passes.Name)
	}
	file, err := hashFile(path)
	return groups, file, err
}
