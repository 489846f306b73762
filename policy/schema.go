package policy

import _ "embed"

//go:generate go test -run ^TestGenerated$ -update

//go:embed schema.json
var jsonSchema []byte

// JSONSchema returns the schema (JSON Schema 2020-12) of policy files, for editors. It is generated
// from the struct fields that files are decoded into, and knows every rule about one key. Rules
// across keys are left to Parse.
func JSONSchema() []byte { return jsonSchema }
