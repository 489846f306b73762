package policy

import (
	"reflect"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// File holds a policy file that was read.
type File struct {
	// Name stands for the file in faults.
	Name string
	Data []byte
}

// modelsField is the one key of a policy file.
const modelsField = "models"

// Parse makes the policies of files into one set, as Build makes one policy of a draft. Either
// every file is without fault, or the error is a Faults with all faults of all files.
func Parse(files ...File) (*Set, error) {
	var (
		policies []*Policy
		faults   Faults
	)
	places := make(map[string]string) // place of each model name
	for _, f := range files {
		var found Faults
		for _, b := range readFile(f, false, &found) {
			p := b.build()
			policies = append(policies, p)
			if p.Name == "" {
				continue
			}
			if first, taken := places[p.Name]; taken {
				b.fault("name", "already the name of the model at %s, expected one of its own", first)
				continue
			}
			places[p.Name] = f.Name + ":" + b.where("name")
		}
		found.Sort()
		faults = append(faults, found...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return newSet(policies), nil
}

// readFile returns the models of a file as builders, those with faults included. The file may be the
// draft of a program, which knows no lines of it.
func readFile(f File, isDraft bool, faults *Faults) (models []*builder) {
	root, ok := strictyaml.Parse(f.Name, f.Data, faults)
	if !ok {
		return nil
	}
	fields, ok := root.Mapping(modelsField)
	if !ok {
		return nil
	}
	list, ok := fields.Need(modelsField, "a list of models")
	if !ok {
		return nil
	}
	items, ok := list.List()
	if ok && len(items) == 0 {
		list.Fault("empty, expected at least one model")
	}
	for _, item := range items {
		b := &builder{p: new(Policy), isDraft: isDraft, faults: faults, values: make(map[string]strictyaml.Value), faulty: make(map[string]bool)}
		b.root, _ = item.Entry("model", IsName)
		if b.readFields(b.root, reflect.ValueOf(b.p).Elem(), modelFields) {
			models = append(models, b)
		}
	}
	return models
}
