package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/ckd-project/ckd/internal/config"
)

// TestOperateDocs: docs/operate.md has every setting with its default, and no
// other.
func TestOperateDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:`([^`]*)`)? *\\| ").FindAllStringSubmatch(string(text), -1) {
		told[m[1]] = m[2]
	}
	parser, err := kong.New(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range parser.Model.Flags {
		if f.Name == "help" {
			continue
		}
		want := f.Default
		if f.IsBool() {
			want = "false"
		}
		got, ok := told[f.Name]
		if !ok || got != want {
			t.Errorf("%s: docs/operate.md has default %q (%v), the code %q", f.Name, got, ok, want)
		}
		delete(told, f.Name)
	}
	if len(told) > 0 {
		t.Errorf("docs/operate.md tells of settings that do not exist: %v", told)
	}
}
