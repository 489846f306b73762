package integration_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailClosed checks that a daemon that cannot start says why and exits with a code that is not
// 0.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := writePolicy(t, policyText)
	bad := writePolicy(t, strings.Replace(policyText, "c_crit_max", "c_crit_min", 1))
	settings := filepath.Join(t.TempDir(), "ckd.yaml")
	exposed := filepath.Join(t.TempDir(), "ckd.yaml")
	for path, text := range map[string]string{
		settings: "policy: [x]\nmax-streams: many\nlisten: {a: b}\nmax-stream: 5\n",
		exposed:  fmt.Sprintf("policy: [%q]\nlisten: [\"0.0.0.0:0\"]\n", good),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"no policy":        {[]string{"serve"}, 2, []string{"policy"}},
		"bad policy":       {[]string{"serve", "--policy", bad}, 1, []string{bad + ":8:22", `model "fetal-health"`, "c_crit_min"}},
		"no such file":     {[]string{"serve", "--policy", "nowhere.yaml"}, 1, []string{"nowhere.yaml", "no such file"}},
		"taken port":       {[]string{"serve", "--policy", good, "--listen", taken.Addr().String()}, 1, []string{taken.Addr().String(), "in use"}},
		"taken admin port": {[]string{"serve", "--policy", good, "--listen", "127.0.0.1:0", "--admin", taken.Addr().String()}, 1, []string{"admin", "in use"}},
		"no address":       {[]string{"serve", "--policy", good, "--listen", "here"}, 2, []string{"HOST:PORT"}},
		"limit":            {[]string{"serve", "--policy", good, "--max-streams", "0"}, 2, []string{"max-streams: 0, expected 1 to"}},
		"plaintext":        {[]string{"serve", "--config", exposed}, 2, []string{exposed + ":2:", "listen: 0.0.0.0:0"}},
		"unknown flag":     {[]string{"serve", "--polcy", good}, 2, []string{"--polcy"}},
		"bad settings": {[]string{"serve", "--config", settings}, 2, []string{
			settings + ":2:14: max-streams", settings + ":3:9: listen", settings + ":4:1: max-stream",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, c.args...)
			if r.Code != c.code {
				t.Errorf("exit %d, want %d: %s", r.Code, c.code, r.Stderr)
			}
			for _, part := range c.want {
				if !strings.Contains(r.Stderr, part) {
					t.Errorf("standard error lacks %q:\n%s", part, r.Stderr)
				}
			}
		})
	}
}

// TestInsecurePlaintext checks that the daemon warns of plaintext beyond loopback.
func TestInsecurePlaintext(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--insecure-plaintext", "--listen", "0.0.0.0:0", "--http", "0.0.0.0:0")
	s.says("insecure-plaintext: whoever is on the network can read passes")
}

// TestStaleSocket checks that a daemon takes over the socket of a killed one, but not that of a
// living one. Until it is killed, a daemon is healthy.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	policy := writePolicy(t, policyText)
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	first := serveOn(t, "unix:"+socket, "--policy", policy)
	if r := run(t, "serve", "--policy", policy, "--admin", "off", "--listen", "unix:"+socket); r.Code != 1 || !strings.Contains(r.Stderr, "in use") {
		t.Errorf("a second daemon on the socket of the first: exit %d: %s", r.Code, r.Stderr)
	}
	health := []string{"healthcheck", "--admin", strings.TrimPrefix(first.Admin, "http://")}
	mustRun(t, health...)
	if err := first.Process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Exited
	if r := run(t, health...); r.Code != 1 {
		t.Errorf("a daemon that is gone is healthy: exit %d", r.Code)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	if code := serveOn(t, "unix:"+socket, "--policy", policy).Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
