package policy

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Build returns the policy of a draft: checked, with every default filled in, and hashed. It is that of
// the file that says the same. The error is a Faults that lists everything wrong with the draft, each
// fault with the path of its key. The policy shares no memory with the draft.
func Build(d Draft) (*Policy, error) {
	for _, r := range []*Rule{&d.Primary, &d.Fallback} {
		r.HasThreshold = r.HasThreshold || r.Threshold != 0
	}
	found := fileFaults{isDraft: true}
	var p *Policy
	for _, b := range readFile(File{Data: d.marshal()}, &found) {
		p = b.build()
	}
	found.faults.Sort()
	for i := range found.faults {
		f := &found.faults[i]
		f.Line, f.Col, f.Field = 0, 0, strings.TrimPrefix(f.Field, modelsField+"[0].")
	}
	if err := found.faults.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// builder makes one policy of one draft, whose keys were checked while they were read. Rules that span
// several keys are methods of the blocks that they are about, and look only at keys without a fault.
type builder struct {
	*Draft
	origin
	p *Policy // what is built

	index map[string]int // index of each class; see classIndex
}

// fields returns the draft, for what goes through it key by key.
func (b *builder) fields() reflect.Value { return reflect.ValueOf(b.Draft).Elem() }

// build fills in what was not given, resolves names to classes, applies the rules that span several
// keys, and hashes.
func (b *builder) build() *Policy {
	fillDefaults(b.fields(), modelFields)
	b.Primary.Score, b.Fallback.Score = cmp.Or(b.Primary.Score, CCritMax), cmp.Or(b.Fallback.Score, CBEC)
	if c := b.Calibration; c != nil && reflect.ValueOf(*c).IsZero() {
		b.Calibration = nil
	}
	p := &Policy{
		Name: b.Name, Version: b.Version, Classes: b.Classes,
		Kind: b.Kind, FewestPasses: b.FewestPasses, ExpectedPasses: b.ExpectedPasses,
		SumTolerance: b.SumTolerance, Tensor: b.Tensor, Variance: b.Variance, TopClasses: b.TopClasses,
		ReliabilityThreshold: b.ReliabilityThreshold, Gate: b.Gate, Scope: b.Scope,
		Primary: b.Primary, Fallback: b.Fallback, Pairs: b.Pairs,
		Degenerate: b.Degenerate, Saturated: b.Saturated, Risk: b.Risk, Guard: b.Guard,
		Calibration: b.Calibration, Audit: b.Audit, EarlyStopping: b.EarlyStopping,
	}
	b.p = p
	b.resolveSets()
	b.resolveGate()
	b.resolvePasses()
	b.checkThresholds()
	b.checkNeeds()
	b.resolveWeights()
	b.resolveSizes()
	b.checkRisk(p)
	p.Calibration.validate(b, p)
	p.Audit.validate(b, p)
	p.EarlyStopping.resolve(b, p)
	if b.faults == 0 {
		p.Hash = p.hash()
	}
	return p
}

// classIndex returns the position of each class by its name.
func (b *builder) classIndex() map[string]int {
	if b.index == nil {
		b.index = make(map[string]int, len(b.Classes))
		for k, name := range b.Classes {
			if name != "" { // has a fault
				b.index[name] = k
			}
		}
	}
	return b.index
}

// classOf returns the class with a name. An unknown name is a fault, unless there are no classes to
// know it by.
func (b *builder) classOf(path, name string) (int, bool) {
	if name == "" {
		return 0, false // has a fault already
	}
	k, ok := b.classIndex()[name]
	if !ok && len(b.classIndex()) > 0 {
		b.fault(path, "%s is none of the classes%s", strictyaml.Quote(name), strictyaml.Suggest(name, b.Classes))
	}
	return k, ok
}

// has reports whether an ascending set has the class.
func has(set []int, class int) bool {
	_, ok := slices.BinarySearch(set, class)
	return ok
}
