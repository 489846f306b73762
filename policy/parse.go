package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// File is a policy file that has been read.
type File struct {
	// Name is what faults call it.
	Name string
	Data []byte
}

// Parse makes the policies of files into one set. Either every file is without
// fault, or the error is a Faults with all faults of all files.
func Parse(files ...File) (*Set, error) {
	var (
		policies []*Policy
		faults   Faults
	)
	places := make(map[string]string) // of the models' names
	for _, f := range files {
		found := fileFaults{file: f.Name}
		for _, d := range readFile(f, &found) {
			p := d.resolve()
			policies = append(policies, p)
			if p.Name == "" {
				continue
			}
			if first, taken := places[p.Name]; taken {
				d.fault("name", "already the name of the model at %s, expected one of its own", first)
				continue
			}
			at := d.place("name")
			places[p.Name] = fmt.Sprintf("%s:%d:%d", f.Name, at.Line(), at.Col())
		}
		slices.SortStableFunc(found.faults, func(a, b Fault) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		faults = append(faults, found.faults...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for _, p := range policies {
		p.Hash = p.hash()
	}
	return newSet(policies), nil
}

// readFile decodes the models of a file, those with faults included.
func readFile(f File, found *fileFaults) []*draft {
	document := func(fault strictyaml.Fault) { found.add("", fault) }
	root, ok := strictyaml.Parse(f.Data, document)
	if !ok {
		return nil
	}
	fields, ok := root.Mapping(modelsField)
	if !ok {
		return nil
	}
	models, ok := fields.Need(modelsField, "a list of models")
	if !ok {
		return nil
	}
	items, ok := models.List()
	if ok && len(items) == 0 {
		models.Fault("empty, expected at least one model")
	}
	drafts := make([]*draft, len(items))
	for i, item := range items {
		drafts[i] = readModel(item, found)
	}
	return drafts
}

// fileFaults collects the faults of a file.
type fileFaults struct {
	file   string
	faults Faults
}

// add a fault; model is empty where the name of the model is not known.
func (c *fileFaults) add(model string, f strictyaml.Fault) {
	c.faults = append(c.faults, Fault{c.file, f.Line, f.Col, model, f.Path, f.Reason})
}
