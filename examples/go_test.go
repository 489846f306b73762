package examples_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGo runs the Go example. It must print a decision for every input, and the cause of a failure.
func TestGo(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	serveOn(t, socket, "--policy", policyFile)
	r := run(t, goExample, "--addr", socket)
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 0 || len(lines) != 16 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	named := regexp.MustCompile(`^\d-\d\t(retained: CLASS|to a person: DECISION_REASON_\w+, predicted CLASS(, deciding class CLASS)?)$`)
	for i, line := range lines {
		id := []string{"0-", "1-"}[i/8] + string(rune('0'+i%8)) + "\t"
		shape := regexp.MustCompile(`\b(normal|suspect|pathologic)\b`).ReplaceAllString(line, "CLASS")
		if !strings.HasPrefix(line, id) || !named.MatchString(shape) {
			t.Errorf("line %q, expected a decision for %q, with its class", line, id)
		}
	}
	if !strings.Contains(r.Stdout, "retained: ") || !strings.Contains(r.Stdout, "to a person: ") {
		t.Errorf("%s\nexpected both kinds of decision", r.Stdout)
	}

	r = run(t, goExample, "--addr", socket, "--model", "nobody")
	if r.Code != 1 || !strings.Contains(r.Stderr, `session for model "nobody"`) {
		t.Errorf("unknown model: exit %d, %s", r.Code, r.Stderr)
	}
	r = run(t, goExample, "--addr", "ckd.example.org:8590")
	if r.Code != 1 || !strings.Contains(r.Stderr, "plaintext is for unix sockets and loopback addresses") {
		t.Errorf("plaintext elsewhere: exit %d, %s", r.Code, r.Stderr)
	}
}
