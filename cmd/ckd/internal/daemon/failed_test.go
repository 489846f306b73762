package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/auth"
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

// TestPublicCause checks that /healthz says why certificates and identities are not reloaded, but
// nothing of what the access file says, until a reload succeeds.
func TestPublicCause(t *testing.T) {
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	access := filepath.Join(t.TempDir(), "access.yaml")
	for name, c := range map[string]struct{ text, want string }{
		"value":  {"identities: secret", ":1:13: expected a list\n"},
		"key":    {"identities:\n- {name: a, secret: 1}", ":2:13: unknown field\n"},
		"name":   {"identities:\n- {name: secret, streams: x}", ":2:27: expected a whole number from 0 to 1000000\n"},
		"syntax": {"identities: *secret", ":1:1: not YAML near here\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(access, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := auth.Open(access, auth.Options{})
			s := &security{log: zap.NewNop(), metrics: m, failed: &failedReloads{}}
			s.reloaded("access", watch.Outcome{Err: err})
			if got, want := s.failed.lines(), "access: not reloaded, what was in force stays: "+access+c.want; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			s.reloaded("certificates", watch.Outcome{Err: errors.New("tls.crt: expired")})
			s.reloaded("access", watch.Outcome{})
			if got, want := s.failed.lines(), "certificates: not reloaded, what was in force stays: tls.crt: expired\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
