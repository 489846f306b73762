package oip

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestProtoComments checks that the comments of inference.proto list the types, parameters and outputs
// that the code has, in its order.
func TestProtoComments(t *testing.T) {
	text, err := os.ReadFile("../proto/inference/inference.proto")
	if err != nil {
		t.Fatal(err)
	}
	comment := func(message string) string {
		found := regexp.MustCompile(`(?m)((?:^//.*\n)+)message ` + message + ` `).FindSubmatch(text)
		if found == nil {
			t.Fatalf("no comment on %s", message)
		}
		return string(found[1])
	}
	rows := func(text, pattern string) []string {
		var all []string
		for _, row := range regexp.MustCompile(`(?m)^//   `+pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, strings.Join(row[1:], " "))
		}
		return all
	}
	request, response := comment("ModelInferRequest"), comment("ModelInferResponse")

	var types, named []string
	for name, e := range elements {
		contents, double := "raw", "float32"
		if e.contents != "" {
			contents = e.contents + " or raw"
		}
		if e.double {
			double = "float64"
		}
		types = append(types, name+" "+contents+" "+double)
	}
	slices.Sort(types)
	listed := rows(request, `([A-Z0-9]+)  (?:in )?(.*), computed as (\w+)$`)
	slices.Sort(listed)
	if !slices.Equal(listed, types) {
		t.Errorf("types\n%q, want\n%q", listed, types)
	}
	for _, p := range parameters {
		named = append(named, p.name)
	}
	if got := rows(request, `([a-z_]+)  +\S`); !slices.Equal(got, named) {
		t.Errorf("parameters %q, want %q", got, named)
	}
	refused := regexp.MustCompile(`(?s)is refused: (.*?), unless`).FindStringSubmatch(request)
	if refused == nil || strings.ReplaceAll(refused[1], "\n// ", " ") != strings.Join(refusedParameters, ", ") {
		t.Errorf("refused parameters %q, want %q", refused, refusedParameters)
	}

	var tensors []string
	for _, o := range outputs {
		mark, shape := " ", "[N]"
		if slices.Contains(defaults, o) {
			mark = "*"
		}
		if o.perClass {
			shape = "[N,K]"
		}
		tensors = append(tensors, strings.Join([]string{mark, o.name, o.datatype.name, shape}, " "))
	}
	if got := rows(response, `([* ]) ([a-z_]+) +([A-Z0-9]+) +(\[[NK,]+\])`); !slices.Equal(got, tensors) {
		t.Errorf("outputs\n%q, want\n%q", got, tensors)
	}
}
