package policy

import (
	"reflect"
	"strings"

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
		found := fileFaults{file: f.Name}
		for _, b := range readFile(f, &found) {
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
		found.faults.Sort()
		faults = append(faults, found.faults...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return newSet(policies), nil
}

// readFile returns the models of a file as builders, those with faults included.
func readFile(f File, found *fileFaults) []*builder {
	root, ok := strictyaml.Parse(f.Data, func(fault Fault) { found.add("", fault) })
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
	var drafts []*builder
	for _, item := range items {
		if b := readModel(item, found); b != nil {
			drafts = append(drafts, b)
		}
	}
	return drafts
}

// fileFaults collects the faults of a file.
type fileFaults struct {
	file    string
	isDraft bool // the file is the draft of a program, which knows no lines of it
	faults  Faults
}

// add adds a fault. An empty model says that its name is not known.
func (c *fileFaults) add(model string, f strictyaml.Fault) {
	f.File = c.file
	if model != "" {
		f.Entry = entryOf(model)
	}
	c.faults = append(c.faults, f)
}

// readModel reads the fields of a model. It returns nil if the value is no mapping. Faults name the
// model by its name, or else by its place in the list.
func readModel(v strictyaml.Value, found *fileFaults) *builder {
	b := &builder{p: new(Policy), isDraft: found.isDraft, values: make(map[string]strictyaml.Value), faulty: make(map[string]bool)}
	model := peekName(v)
	b.root = v.Under("", func(f strictyaml.Fault) {
		b.faults++
		if model == "" {
			f.Field = strings.TrimSuffix(v.Path()+"."+f.Field, ".") // a fault of the model itself has no field
		}
		found.add(model, f)
	})
	if !b.readFields(b.root, reflect.ValueOf(b.p).Elem(), modelFields) {
		return nil
	}
	return b
}

// peekName returns the name of a model, or nothing if it has no valid one.
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
	if !ok || !IsName(name) {
		return ""
	}
	return name
}
