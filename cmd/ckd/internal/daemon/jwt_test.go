package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/issuertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// withIssuer lets in the tokens of a test's issuer.
func withIssuer(t *testing.T, tokens *issuertest.Issuer) func(*config.Config) {
	return func(c *config.Config) {
		c.Access = filepath.Join(t.TempDir(), "access.yaml")
		write(t, c.Access, fmt.Sprintf(`
issuers: [{name: cluster, url: "%s", audience: %s, ca: %s}]
identities:
- {name: grader, models: [m], jwts: [{issuer: cluster, claims: {sub: "system:serviceaccount:eye:grader"}}]}
`, tokens.URL, issuertest.Audience, tokens.CAFile))
	}
}

// TestClientOutlivesItsToken checks that a session goes on when its token expires and the file holds
// another, and that the daemon starts without the issuer.
func TestClientOutlivesItsToken(t *testing.T) {
	tokens := issuertest.New(t)
	tokens.Down(true)
	d := start(t, withIssuer(t, tokens))
	file := filepath.Join(t.TempDir(), "token")
	replace := func(left time.Duration) {
		write(t, file+".new", tokens.Token(left, nil))
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(time.Hour)
	c, err := client.Dial(d.Targets()[0], client.WithTokenFile(file))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Models(t.Context())
	if reason := client.Reason(err); reason != ckdv1.ErrorReason_ERROR_REASON_KEYS_UNAVAILABLE {
		t.Errorf("refused for %v (%v), want KEYS_UNAVAILABLE", reason, err)
	}
	await(t, "/healthz tells that keys are missing", func() bool {
		_, lines := get(t, d.AdminURL()+"/healthz")
		return strings.Contains(lines, "issuer keys: not fetched")
	})
	tokens.Down(false)
	var session *client.Session
	await(t, "a session opens", func() bool {
		replace(3 * time.Second)
		session, err = c.Session(t.Context(), client.SessionConfig{Model: "m", Passes: 4, Reconnect: client.Reconnect{Limit: time.Minute}})
		return err == nil
	})
	replace(time.Hour)
	unavailable := func() string {
		_, text := get(t, d.AdminURL()+"/metrics")
		return regexp.MustCompile(`grpc_server_handled_total\{grpc_code="Unavailable",grpc_method="DecomposeStream".*`).FindString(text)
	}
	before, n := unavailable(), 0
	await(t, "the stream ends with its token", func() bool {
		n++
		results, err := session.DoRows(t.Context(), []string{fmt.Sprint(n)}, func([]int) ([]float32, error) { return []float32{0.5, 0.5}, nil })
		if err != nil || len(results) != 1 || results[0].Err != nil {
			t.Fatalf("batch %d: %+v, %v", n, results, err)
		}
		return unavailable() != before
	})
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}
