package reference

import (
	"strings"
	"testing"
)

func TestClause(t *testing.T) {
	for text, want := range map[string]string{
		"Recorded passes: .npy or .npz; FILE.npz:NAME for one.":              "Recorded passes: .npy or .npz",
		"How long inputs may wait. 0 gives up at once.":                      "How long inputs may wait",
		"Classes (critical ones, first) that have series, beside all others": "Classes (critical ones, first) that have series",
		"one two three four: five six seven eight nine ten eleven":           "one two three four",
	} {
		if got := Clause(text, 7); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := Wrap("- ", strings.Repeat("word ", 50), "  ")
	for line := range strings.Lines(got) {
		if len(line) > Width+1 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if words := len(strings.Fields(got)); words != 51 || !strings.Contains(got, "\n  word") {
		t.Errorf("%d words, want the dash and 50:\n%s", words, got)
	}
}
