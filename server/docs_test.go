package server

import (
	"os"
	"regexp"
	"strings"
	"testing"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestErrorDocs checks that docs/errors.md lists every reason with its code, and no other.
func TestErrorDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| ([A-Z_]+) \\|").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	for number := range ckdv1.ErrorReason_name {
		if number == 0 {
			continue
		}
		reason := ckdv1.ErrorReason(number)
		// gRPC writes InvalidArgument, the docs INVALID_ARGUMENT.
		want := strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(codeOf(reason).String(), "${1}_$2"))
		if got := documented[reasonName(reason)]; got != want {
			t.Errorf("%s: the docs say %q, the code %q", reasonName(reason), got, want)
		}
		delete(documented, reasonName(reason))
	}
	if len(documented) > 0 {
		t.Errorf("documented reasons that do not exist: %v", documented)
	}
}
