package oip

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
)

// TestDocs checks that the tables of docs/inference.md agree with the code, row by row, except for
// the explanations.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/inference.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{} // the rows' beginnings, by section
	section := ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		if strings.HasPrefix(line, "| `") {
			tables[section] = append(tables[section], strings.TrimSpace(line))
		}
	}
	want := map[string][]string{}
	for _, m := range pb.GRPCInferenceService_ServiceDesc.Methods {
		want["Calls"] = append(want["Calls"], fmt.Sprintf("| `%s` |", m.MethodName))
	}
	for _, m := range pb.GRPCInferenceService_ServiceDesc.Streams {
		want["Calls"] = append(want["Calls"], fmt.Sprintf("| `%s` |", m.StreamName))
	}
	for name, e := range elements {
		contents, as := "no", "float32"
		if e.contents != "" {
			contents = "`" + e.contents + "`"
		}
		if e.double {
			as = "float64"
		}
		want["The input"] = append(want["The input"], fmt.Sprintf("| `%s` | %s | yes | %s", name, contents, as))
	}
	for _, p := range parameters {
		want["Parameters"] = append(want["Parameters"], fmt.Sprintf("| `%s` |", p.name))
	}
	for _, o := range outputs {
		shape, unasked := "[N]", "no"
		if o.perClass {
			shape = "[N,K]"
		}
		if slices.Contains(defaults, o) {
			unasked = "yes"
		}
		want["Outputs"] = append(want["Outputs"], fmt.Sprintf("| `%s` | %s | `%s` | %s |", o.name, o.datatype.name, shape, unasked))
	}
	for section, rows := range want {
		for _, row := range rows {
			at := slices.IndexFunc(tables[section], func(line string) bool { return strings.HasPrefix(line, row) })
			if at < 0 {
				t.Errorf("%s: no row begins with %s", section, row)
				continue
			}
			tables[section] = slices.Delete(tables[section], at, at+1)
		}
		if len(tables[section]) > 0 {
			t.Errorf("%s: rows of nothing: %q", section, tables[section])
		}
	}
	for _, row := range tables["Errors"] {
		if name := strings.Split(row, "`")[1]; ckdv1.ErrorReason_value["ERROR_REASON_"+name] == 0 {
			t.Errorf("Errors: there is no reason %s", name)
		}
	}
	for r := policy.Reason(1); r < policy.Reasons; r++ {
		if row := "| `reason` |"; !regexp.MustCompile(regexp.QuoteMeta(row) + ".*`" + r.String() + "`").Match(text) {
			t.Errorf("Outputs: the row of reason has no %s", r)
		}
	}
	refused := regexp.MustCompile(`(?s)is refused: (.*?), unless`).FindStringSubmatch(string(text))
	if refused == nil || strings.Join(strings.Fields(refused[1]), " ") != "`"+strings.Join(refusedParameters, "`, `")+"`" {
		t.Errorf("Parameters: refused are %q, want %q", refused, refusedParameters)
	}
}
