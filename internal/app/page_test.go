package app

import (
	"fmt"
	"strings"
	"testing"
)

// TestFirstLines: what is shown of faults has a bound, and says what is left out.
func TestFirstLines(t *testing.T) {
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("policy.yaml:%d:1: a fault", i))
	}
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct{ text, want string }{
		"one":             {"a fault", "a fault"},
		"twenty":          {strings.Join(many[:20], "\n"), strings.Join(many[:20], "\n")},
		"thirty":          {strings.Join(many, "\n"), strings.Join(many[:20], "\n") + "\nand 10 more: the log has them"},
		"a long one":      {long, strings.Repeat("x", 200) + "... (the log has all of it)"},
		"one, and a long": {"a fault\n" + long, "a fault\nand 1 more: the log has them"},
	} {
		if got := firstLines(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
