package deploytest

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// TestPolicySchema checks that the schema for editors accepts every policy file that is good, and
// refuses those that break a rule about one field.
func TestPolicySchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../policy/ckd-policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	const files = "../../policy/testdata/"
	good, err := filepath.Glob(files + "*.good.yaml")
	if err != nil || len(good) == 0 {
		t.Fatalf("%d files, %v", len(good), err)
	}
	rules := "unknown-field unknown-field-nested unknown-field-top wrong-type null missing models-missing models-empty " +
		"models-not-a-list file-not-a-mapping name classes-few classes-twice classes-text enum range sum-tolerance many-at-once " +
		"calibration-policy-hash early-stopping-fields early-stopping-certificate early-stopping-boundaries"
	paths := append(slices.Clone(good), "../policy/fetal-health.yaml")
	for _, rule := range strings.Fields(rules) {
		paths = append(paths, files+rule+".bad.yaml")
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := yaml.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(plain(value)); (err != nil) != strings.HasSuffix(path, ".bad.yaml") {
				t.Errorf("the schema says %v", err)
			}
		})
	}
}

// plain returns a value with texts for what JSON lacks: dates and infinite numbers.
func plain(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.DateOnly)
	case float64:
		if math.IsInf(v, 0) {
			return ".inf"
		}
	case map[string]any:
		for name, item := range v {
			v[name] = plain(item)
		}
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
	}
	return value
}
