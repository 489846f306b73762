package policy

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Build returns the policy that a program made: checked, with every default filled in, and hashed. It is
// that of the file that says the same. The error is a Faults that lists everything wrong with it, each
// fault with the path of its key. The result shares no memory with d.
func Build(d Policy) (*Policy, error) {
	for _, r := range []*Rule{&d.Primary, &d.Fallback} {
		r.HasThreshold = r.HasThreshold || r.Threshold != 0
	}
	var found Faults
	var p *Policy
	for _, b := range readFile(File{Data: d.marshal()}, true, &found) {
		p = b.build()
	}
	found.Sort()
	for i := range found {
		f := &found[i]
		f.Line, f.Col, f.Field = 0, 0, strings.TrimPrefix(f.Field, modelsField+"[0].")
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// builder makes one policy, whose keys were checked while they were read. Rules that span several keys
// are methods of the blocks that they are about, and look only at keys without a fault.
type builder struct {
	p       *Policy
	isDraft bool // made by a program, which knows no lines
	root    strictyaml.Value
	values  map[string]strictyaml.Value // what was given, entries of lists included, by path
	faults  *Faults                     // of the file
	// faulty has the paths of fields with faults. Rules across fields leave those out, since their
	// faults would only repeat what was reported.
	faulty map[string]bool

	index map[string]int // index of each class; see classIndex
}

// build fills in what was not given, applies the rules that span several keys, and hashes.
func (b *builder) build() *Policy {
	p := b.p
	fillDefaults(reflect.ValueOf(p).Elem(), modelFields)
	p.Primary.Score, p.Fallback.Score = cmp.Or(p.Primary.Score, CCritMax), cmp.Or(p.Fallback.Score, CBEC)
	if c := p.Calibration; c != nil && reflect.ValueOf(*c).IsZero() {
		p.Calibration = nil
	}
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
	if !b.faultyWithin("") && p.Calibration != nil {
		p.Calibration.Lines.checkLowered(b, p)
	}
	if len(*b.faults) == 0 {
		p.Hash = p.hash()
	}
	return p
}

// classIndex returns the position of each class by its name.
func (b *builder) classIndex() map[string]int {
	if b.index == nil {
		b.index = make(map[string]int, len(b.p.Classes))
		for k, name := range b.p.Classes {
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
	k, ok := b.classIndex()[name]
	if !ok && len(b.classIndex()) > 0 {
		b.fault(path, "%s is none of the classes%s", strictyaml.Quote(name), strictyaml.Suggest(name, b.p.Classes))
	}
	return k, ok
}

// has reports whether an ascending set has the class.
func has(set []int, class int) bool {
	_, ok := slices.BinarySearch(set, class)
	return ok
}
