package policy

import (
	"encoding/json"
	"math"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

//go:generate go test -run ^TestGenerated$ -update

// JSONSchema returns the schema (JSON Schema 2020-12) of policy files, for editors. It comes from
// the same table as the decoder and knows every rule about one field. Rules across fields are left
// to Parse.
func JSONSchema() []byte {
	s := schemaOf([]field{{
		name: modelsField, required: true,
		is:  mappings{fields: modelFields},
		doc: "The models, each with its policy.",
	}})
	s.Dialect = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "ckd policy file"
	s.Properties[modelsField].MinItems = 1
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the table is a constant of the program, and a test makes its schema
	}
	return append(out, '\n')
}

// schema has the part of JSON Schema that is used.
type schema struct {
	Dialect          string             `json:"$schema,omitempty"`
	Title            string             `json:"title,omitempty"`
	Description      string             `json:"description,omitempty"`
	Type             any                `json:"type"`
	Enum             []string           `json:"enum,omitempty"`
	Pattern          string             `json:"pattern,omitempty"`
	MinLength        int                `json:"minLength,omitempty"`
	MaxLength        int                `json:"maxLength,omitempty"`
	Minimum          *float64           `json:"minimum,omitempty"`
	ExclusiveMinimum *float64           `json:"exclusiveMinimum,omitempty"`
	Maximum          *float64           `json:"maximum,omitempty"`
	Default          any                `json:"default,omitempty"`
	Items            *schema            `json:"items,omitempty"`
	MinItems         int                `json:"minItems,omitempty"`
	MaxItems         int                `json:"maxItems,omitempty"`
	UniqueItems      bool               `json:"uniqueItems,omitempty"`
	Properties       map[string]*schema `json:"properties,omitempty"`
	Required         []string           `json:"required,omitempty"`
	Additional       *bool              `json:"additionalProperties,omitempty"`
}

func schemaOf(fields []field) *schema {
	s := &schema{Type: "object", Properties: make(map[string]*schema), Additional: new(bool)}
	for _, f := range fields {
		property := f.is.schema()
		property.Description = f.doc
		property.Default = f.standard
		s.Properties[f.name] = property
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

// scalar lists what a YAML reader may take a text without quotes for. Here it stays a text.
var scalar = []string{"string", "number", "boolean"}

func (t text) schema() *schema {
	if t.pattern != nil {
		return &schema{Type: scalar, Pattern: t.pattern.String()}
	}
	return &schema{Type: scalar, MaxLength: t.limit()}
}

func (name) schema() *schema { return &schema{Type: scalar, MinLength: 1, MaxLength: maxText} }

func (t names) schema() *schema {
	return &schema{Type: "array", Items: name{}.schema(), MinItems: t.least, MaxItems: t.most, UniqueItems: true}
}

func (c choice[T]) schema() *schema { return &schema{Type: "string", Enum: c.texts()} }

func (t whole) schema() *schema {
	s := bounded(strictyaml.Between(float64(t.least), float64(t.most)))
	s.Type = "integer"
	return s
}

func (seed) schema() *schema { return seeds.schema() }

func (class) schema() *schema { return name{}.schema() }

func (t number) schema() *schema { return bounded(t.within) }

func (t numberList) schema() *schema {
	return &schema{Type: "array", Items: bounded(t.within), MinItems: t.count, MaxItems: t.count}
}

func (t mapping) schema() *schema { return schemaOf(t.fields) }

func (t mappings) schema() *schema { return &schema{Type: "array", Items: schemaOf(t.fields)} }

func bounded(r strictyaml.Range) *schema {
	s := &schema{Type: "number"}
	if r.Open {
		s.ExclusiveMinimum = &r.Least
	} else {
		s.Minimum = &r.Least
	}
	if !math.IsInf(r.Most, 1) {
		s.Maximum = &r.Most
	}
	return s
}
