package server

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/reference"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

//go:generate go test -run ^TestErrorDocs$ -update .

// TestErrorDocs checks that docs/errors.md has every reason with its status and with what the proto
// says of it: a sentence on what is wrong, the rest on what to do.
func TestErrorDocs(t *testing.T) {
	contract, err := os.ReadFile("../proto/ckd/v1/uncertainty.proto")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	rows.WriteString("| reason | status | what is wrong | what to do |\n|---|---|---|---|\n")
	reasons := regexp.MustCompile(`((?:  //.*\n)+)  ERROR_REASON_([A-Z_]+) = `).FindAllStringSubmatch(string(contract), -1)
	for _, m := range reasons {
		reason := ckdv1.ErrorReason(ckdv1.ErrorReason_value["ERROR_REASON_"+m[2]])
		if reason == ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			continue
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "//", " ")), " ")
		wrong, act, ok := strings.Cut(text, ". ")
		if !ok {
			t.Errorf("%s: %q, expected a sentence on what is wrong and one on what to do", m[2], text)
		}
		// gRPC writes InvalidArgument, its protocol INVALID_ARGUMENT.
		status := strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(codeOf(reason).String(), "${1}_$2"))
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", m[2], status, wrong, strings.TrimSuffix(act, "."))
	}
	if len(reasons) != len(ckdv1.ErrorReason_name) {
		t.Errorf("%d reasons with a comment, expected %d", len(reasons), len(ckdv1.ErrorReason_name))
	}
	reference.Section(t, "../docs/errors.md", "the reasons", rows.String())
}
