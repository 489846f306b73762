package policy

import (
	"strings"

	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/internal/strictyaml"
)

// draft is a model's policy on its way from a file: what was read, and where.
type draft struct {
	p *Policy
	// Names as written, to be resolved to classes.
	classes, critical, safe []named
	weights                 []weight
	references              []reference
	steps                   []step

	root   strictyaml.Value
	given  map[string]strictyaml.Value // by path
	faulty map[string]bool             // by path: rules over such fields are not applied
	faults int
	// isMapping is false where there is nothing to resolve.
	isMapping bool
}

// named is a name at its place.
type named struct {
	text string
	at   strictyaml.Value
}

// weight is an entry of pair_weights.
type weight struct {
	at             strictyaml.Value
	safe, critical named
	weight         float64
}

// reference is an entry of calibration.reference.classes.
type reference struct {
	at    strictyaml.Value
	class named
	is    drift.ClassReference
}

func (d *draft) lastReference() *reference { return &d.references[len(d.references)-1] }

// readModel reads the fields of a model. Faults name the model where its name
// can be read, or else its place in the list.
func readModel(v strictyaml.Value, found *fileFaults) *draft {
	d := &draft{
		p: &Policy{
			Kind: Probabilities, SumTolerance: DefaultSumTolerance, Tensor: DefaultTensor, Variance: Sample,
			ReliabilityThreshold: DefaultReliabilityThreshold, Scope: AllInputs,
			Primary: Rule{Score: CCritMax}, Fallback: Rule{Score: CBEC},
			Pairs: SafeCriticalPairs, Degenerate: HandleDefer, Saturated: HandleDefer,
		},
		given:  make(map[string]strictyaml.Value),
		faulty: make(map[string]bool),
	}
	model := peekName(v)
	d.root = v.Under("", func(f strictyaml.Fault) {
		d.faults++
		if model == "" {
			f.Path = strings.TrimSuffix(v.Path()+"."+f.Path, ".")
		}
		found.add(model, f)
	})
	d.isMapping = d.readFields(d.root, modelFields)
	return d
}

// peekName is the name of a model, if it has a valid one.
func peekName(v strictyaml.Value) string {
	m, ok := v.Under("", func(strictyaml.Fault) {}).Mapping("name")
	if !ok {
		return ""
	}
	given, ok := m.Get("name")
	if !ok {
		return ""
	}
	name, ok := given.Text()
	if !ok || !namePattern.MatchString(name) {
		return ""
	}
	return name
}

// readFields of a mapping. It is false if the value is none.
func (d *draft) readFields(v strictyaml.Value, fields []field) bool {
	before := d.faults
	m, ok := v.Mapping(namesOf(fields)...)
	if d.faults > before {
		d.faulty[v.Path()] = true
	}
	if !ok {
		return false
	}
	for _, f := range fields {
		before := d.faults
		value, given := m.Get(f.name)
		switch {
		case given:
			d.given[value.Path()] = value
			f.is.read(d, value)
		case f.required:
			m.Need(f.name, f.is.words())
		}
		if d.faults > before && fieldsOf(f.is) == nil { // others see to their fields themselves
			d.faulty[m.PathTo(f.name)] = true
		}
	}
	return true
}

// fault reports a fault of a field: at its value, or, where it is not given, at
// the mapping that it could stand in.
func (d *draft) fault(path, format string, args ...any) {
	d.place(path).FaultIn(path, format, args...)
	d.faulty[path] = true
}

// has reports whether a field is given.
func (d *draft) has(path string) bool {
	_, given := d.given[path]
	return given
}

func (d *draft) place(path string) strictyaml.Value {
	if v, ok := d.given[path]; ok {
		return v
	}
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		return d.place(path[:dot])
	}
	return d.root
}

// sound reports whether none of the fields has a fault, nor a field that they
// stand in.
func (d *draft) sound(paths ...string) bool {
	for _, path := range paths {
		for dot := len(path); dot >= 0; dot = strings.LastIndexByte(path, '.') {
			path = path[:dot]
			if d.faulty[path] {
				return false
			}
		}
	}
	return true
}

// lastWeight is the entry of pair_weights that is being read.
func (d *draft) lastWeight() *weight { return &d.weights[len(d.weights)-1] }
