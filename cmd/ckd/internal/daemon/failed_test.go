package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/watch"
)

// TestFirstLines checks that the text on faults is bounded and says how much is left out.
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
		t.Run(name, func(t *testing.T) {
			if got := firstLines(c.text); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestFailedReloads checks that /healthz says what is not reloaded, but nothing of what its files say,
// until a reload succeeds.
func TestFailedReloads(t *testing.T) {
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &security{log: zap.NewNop(), metrics: m, failed: &failedReloads{}}
	s.reloaded("access", watch.Outcome{Err: errors.New("a secret")})
	s.reloaded("receipt-keys", watch.Outcome{Err: errors.New("tls.crt: expired")})
	const keys = "receipt-keys: not reloaded, what was in force stays: see the log\n"
	if got, want := s.failed.lines(), "access: not reloaded, what was in force stays: see the log\n"+keys; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if s.reloaded("access", watch.Outcome{}); s.failed.lines() != keys {
		t.Errorf("%q, want %q", s.failed.lines(), keys)
	}
}
