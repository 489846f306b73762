package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// labelledFlags name a labelled recording, and a policy that may settle how it is
// read.
type labelledFlags struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Labels string `required:"" placeholder:"FILE" help:"The true class of each input, by number, by name or one-hot: .npy or .npz."`
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

// agree holds the flags that stand beside a policy against it: they may repeat
// what it settles.
func (c *labelledFlags) agree(p *policy.Policy) error {
	names := func(classes []int) (names []string) {
		for _, k := range classes {
			names = append(names, p.Classes[k])
		}
		return names
	}
	text := func(v any) []string { return []string{fmt.Sprint(v)} }
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	var given []settled
	if c.Classes != nil {
		given = append(given, settled{"--classes", c.Classes, p.Classes})
	}
	if c.Critical != nil {
		given = append(given, settled{"--critical", sorted(c.Critical), sorted(names(p.Critical))})
	}
	if c.Safe != nil {
		given = append(given, settled{"--safe", sorted(c.Safe), sorted(names(p.Safe))})
	}
	if c.Kind != nil {
		given = append(given, settled{"--kind", text(*c.Kind), text(p.Kind)})
	}
	if c.Variance != nil {
		given = append(given, settled{"--variance", text(*c.Variance), text(p.Variance)})
	}
	if c.SumTolerance != nil {
		given = append(given, settled{"--sum-tolerance", text(*c.SumTolerance), text(p.SumTolerance)})
	}
	for _, s := range given {
		if !slices.Equal(s.flag, s.policy) {
			return usageError("%s is %s, but model %s of %s has %s: expected the same, or no %s beside --policy",
				s.name, firstNames(s.flag), p.Name, c.Policy, firstNames(s.policy), s.name)
		}
	}
	return nil
}

// settled is a flag that a policy settles too.
type settled struct {
	name         string
	flag, policy []string
}

// labelledRecording is one that was read.
type labelledRecording struct {
	passes                 *record.Passes
	labels                 []int
	passesFile, labelsFile eval.File
	classes                []string
	// spec leaves the weights of pairs out: the score cbec of a report is the
	// paper's, and a policy decides by its own.
	spec decomp.Spec
}

// readLabelled reads the recording. model may be nil.
func (c *labelledFlags) readLabelled(ctx *cmdContext, model *policy.Policy) (*labelledRecording, error) {
	var l labelledRecording
	var err error
	if l.passes, err = c.read(ctx, c.Passes, model); err != nil {
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
	if l.labels, err = readLabels(c.Labels, l.passes, l.classes); err != nil {
		return nil, err
	}
	if l.passesFile, err = hashFile(c.Passes); err != nil {
		return nil, err
	}
	l.labelsFile, err = hashFile(c.Labels)
	return &l, err
}

// readLabels reads the labels of passes over classes with those names.
func readLabels(path string, passes *record.Passes, classes []string) ([]int, error) {
	labels, err := record.ReadClassLabels(path, len(classes), func(name string) (int, error) {
		if k := slices.Index(classes, name); k >= 0 {
			return k, nil
		}
		unnamed := ""
		if slices.Equal(classes, numbers(len(classes))) {
			unnamed = " (--classes gives them names)"
		}
		return 0, fmt.Errorf("expected one of the classes %s%s%s", firstNames(classes), unnamed, strictyaml.Suggest(name, classes))
	})
	if err != nil {
		return nil, err
	}
	return labels, eval.CheckLabels(path, labels, passes)
}
