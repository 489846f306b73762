package deploytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/kserve/kserve/pkg/types" // keeps the module, whose resource definitions are read
	"github.com/santhosh-tekuri/jsonschema/v6"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kserveSchemas returns the schemas of KServe's own resource definitions, by version and kind. They
// are generated from its Go types, which need 1453 packages and do not compile with our Kubernetes.
func kserveSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kserve/kserve")
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]*jsonschema.Schema{}
	for _, name := range []string{"clusterservingruntimes", "inferenceservices", "inferencegraphs"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/full/serving.kserve.io_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			kind := fmt.Sprintf("%s/%s %s", definition.Spec.Group, version.Name, definition.Spec.Names.Kind)
			content := version.Schema.OpenAPIV3Schema
			refuseUnknown(content)
			c := jsonschema.NewCompiler()
			if err := c.AddResource(kind, content); err != nil {
				t.Fatal(err)
			}
			if schemas[kind], err = c.Compile(kind); err != nil {
				t.Fatal(err)
			}
		}
	}
	return schemas
}

// refuseUnknown makes a schema refuse fields that the API server would drop without a word.
func refuseUnknown(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	if keep, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); properties != nil && !keep {
		schema["additionalProperties"] = false
	}
	for _, field := range properties {
		refuseUnknown(field.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[key].(map[string]any); ok {
			refuseUnknown(inner)
		}
	}
}

// TestKServe checks every document of the example for KServe strictly: those of KServe against its
// own definitions, all others against the types of Kubernetes.
func TestKServe(t *testing.T) {
	schemas := kserveSchemas(t)
	checked := map[string]bool{}
	check := func(document []byte) error {
		var content map[string]any
		if err := yaml.UnmarshalStrict(document, &content); err != nil {
			return err
		}
		kind := fmt.Sprintf("%v %v", content["apiVersion"], content["kind"])
		checked[kind] = true
		if schema := schemas[kind]; schema != nil {
			about, err := yaml.Marshal(content["metadata"]) // the definitions leave it to Kubernetes
			if err != nil {
				return err
			}
			return errors.Join(schema.Validate(content), yaml.UnmarshalStrict(about, &meta.ObjectMeta{}))
		}
		_, _, err := decoder.Decode(document, nil, nil)
		return err
	}
	files, err := filepath.Glob("../../examples/kserve/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range splitManifests(t, string(text)) {
				if err := check(document); err != nil {
					t.Errorf("%v in\n%s", err, document)
				}
			}
		})
	}
	for kind := range schemas {
		if !checked[kind] {
			t.Errorf("no example of %s", kind)
		}
	}
}
