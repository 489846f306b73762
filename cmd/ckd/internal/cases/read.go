package cases

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
)

// Case holds one input and the decision that it must get.
type Case struct {
	Place  string // in its file, as FILE:LINE
	Name   string
	Policy *policy.Policy
	// Expect is Retain or Defer. Reason and Predicted are further expectations; no reason, and -1, for none.
	Expect    policy.Action
	Reason    policy.Reason
	Predicted int
	passes    decomp.Tensor
}

// Read returns the cases of a file: at least one, each of a model of the set. It reports all faults
// together, as a strictyaml.Faults.
func Read(path string, set *policy.Set) ([]Case, error) {
	data, err := watch.ReadFile(path, strictyaml.MaxBytes)
	if err != nil {
		return nil, strictyaml.Faults{{File: path, Reason: "cannot read: " + err.Error()}}
	}
	r := reader{path: path, set: set, arrays: map[string]*record.Passes{}}
	cases := r.cases(data)
	r.faults.Sort()
	return cases, r.faults.Err()
}

type reader struct {
	path   string
	set    *policy.Set
	faults strictyaml.Faults
	arrays map[string]*record.Passes // nil for those that cannot be read
}

func (r *reader) cases(data []byte) (cases []Case) {
	root, ok := strictyaml.Parse(r.path, data, &r.faults)
	if !ok {
		return nil
	}
	fields, ok := root.Mapping("cases")
	if !ok {
		return nil
	}
	list, ok := fields.Need("cases", "a list of cases")
	if !ok {
		return nil
	}
	items, ok := list.List()
	if ok && len(items) == 0 {
		list.Fault("empty, expected at least one case")
	}
	for _, item := range items {
		cases = append(cases, r.read(item))
	}
	return cases
}

// read reads a case, and reports what is wrong with it.
func (r *reader) read(item strictyaml.Value) Case {
	c := Case{Place: fmt.Sprintf("%s:%d", r.path, item.Line()), Predicted: -1}
	fields, ok := item.Mapping("name", "model", "passes", "file", "input", "expect", "reason", "predicted")
	if !ok {
		return c
	}
	if v, ok := fields.Need("name", "what the case shows"); ok {
		c.Name, _ = v.Text()
	}
	if v, ok := fields.Need("expect", "retain or defer"); ok {
		if word, ok := v.Enum("retain", "defer"); ok {
			c.Expect = map[string]policy.Action{"retain": policy.Retain, "defer": policy.Defer}[word]
		}
	}
	if v, ok := fields.Get("reason"); ok {
		if word, ok := v.Enum(reasons()...); ok {
			c.Reason = policy.Reason(1 + slices.Index(reasons(), word))
		}
	}
	v, ok := fields.Need("model", "the model whose policy decides")
	if !ok {
		return c
	}
	name, ok := v.Text()
	if !ok {
		return c
	}
	if c.Policy, ok = r.set.Get(name); !ok {
		var names []string
		for _, p := range r.set.All() {
			names = append(names, p.Name)
		}
		v.Fault("no policy is of model %s, expected one of %s", strictyaml.Quote(name), strings.Join(names[:min(len(names), 10)], ", "))
		return c
	}
	if v, ok := fields.Get("predicted"); ok {
		if class, ok := v.Text(); ok {
			if c.Predicted = slices.Index(c.Policy.Classes, class); c.Predicted < 0 {
				v.Fault("%s is none of the classes%s", strictyaml.Quote(class), strictyaml.Suggest(class, c.Policy.Classes))
			}
		}
	}
	c.passes = r.passes(item, fields, len(c.Policy.Classes), c.Policy.Kind == policy.Dirichlet)
	return c
}

// reasons lists the words for reasons, in their order.
func reasons() (words []string) {
	for reason := policy.Reason(1); reason < policy.Reasons; reason++ {
		words = append(words, reason.String())
	}
	return words
}

// passes reads the passes of a case, which are rows of numbers or an input of an array.
func (r *reader) passes(item strictyaml.Value, fields strictyaml.Mapping, classes int, concentrations bool) decomp.Tensor {
	rows, inline := fields.Get("passes")
	file, inFile := fields.Get("file")
	if inline == inFile {
		item.Fault("expected either passes (a list of rows) or file and input")
		return decomp.Tensor{}
	}
	if inFile {
		return r.ofFile(file, fields, classes, concentrations)
	}
	if v, ok := fields.Get("input"); ok {
		v.Fault("has a meaning with file alone, expected none beside passes")
	}
	return inlineRows(rows, classes)
}

// inlineRows reads rows as float32, which clients send.
func inlineRows(v strictyaml.Value, classes int) decomp.Tensor {
	rows, ok := v.List()
	if ok && len(rows) == 0 {
		v.Fault("empty, expected at least one row")
	}
	t := decomp.Tensor{Passes: len(rows), Inputs: 1}
	for _, row := range rows {
		values, ok := row.List()
		if ok && len(values) != classes {
			row.Fault("a row of %d numbers, expected %d, one for each class", len(values), classes)
		}
		for _, value := range values {
			number, _ := value.Float(strictyaml.Between(-math.MaxFloat32, math.MaxFloat32))
			t.Float32 = append(t.Float32, float32(number))
		}
	}
	return t
}

// ofFile reads an input of an array, whose path is relative to the file of cases.
func (r *reader) ofFile(v strictyaml.Value, fields strictyaml.Mapping, classes int, concentrations bool) (t decomp.Tensor) {
	name, ok := v.Text()
	if !ok {
		return t
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.path), path)
	}
	array, seen := r.arrays[path]
	if !seen {
		var err error
		if array, err = record.ReadPasses(path, record.Options{Concentrations: concentrations}); err != nil {
			v.Fault("%v", err)
		}
		r.arrays[path] = array
	}
	number, ok := fields.Need("input", "the number of the input in the file, from 0")
	if !ok || array == nil {
		return t
	}
	input, ok := number.Int(0, array.N-1)
	if !ok {
		return t
	}
	if array.K != classes {
		v.Fault("passes over %d classes, expected %d, those of the policy", array.K, classes)
		return t
	}
	t = decomp.Tensor{Passes: array.S, Inputs: 1}
	for s := range array.S {
		at := array.Offset(s, input)
		if array.Float32 != nil {
			t.Float32 = append(t.Float32, array.Float32[at:at+array.K]...)
		} else {
			t.Float64 = append(t.Float64, array.Float64[at:at+array.K]...)
		}
	}
	return t
}
