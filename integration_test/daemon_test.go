package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ckd is the binary under test, which TestMain builds.
var ckd string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ckd-integration")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's temporary folder
		ckd = filepath.Join(dir, "ckd")
		build := exec.Command("go", "build", "-o", ckd, "../cmd/ckd")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building ckd:", err)
			return 1
		}
		return m.Run()
	}())
}

// Recordings with golden numbers.
var recordings = []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble"}

func recording(name, suffix string) string {
	return filepath.Join("..", "internal", "recordings", name+suffix)
}

// policyText is a policy that accepts all three recordings, ensemble included.
const policyText = `
models:
  - name: fetal-health
    version: integration
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 5}
    primary: {score: c_crit_max, threshold: 0.052}
    fallback: {score: cbec, threshold: 0.023}
`

func writePolicy(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// result of a command that ran to its end.
type result struct {
	stdout, stderr string
	code           int
}

// run runs ckd to its end.
func run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return runCommand(t, exec.CommandContext(ctx, ckd, args...))
}

func runCommand(t *testing.T, c *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", c.Args, err)
	}
	return result{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// mustRun runs ckd, which must exit with 0.
func mustRun(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("ckd %s: exit %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r
}

// daemon is a running ckd serve.
type daemon struct {
	t       *testing.T
	process *exec.Cmd
	grpc    []string // addresses, as a client dials them
	admin   string   // URL
	exited  chan struct{}
	mu      sync.Mutex
	log     strings.Builder
}

// serve starts a daemon on free ports and waits until it listens. It is stopped
// at the end of the test.
func serve(t *testing.T, args ...string) *daemon {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", args...)
}

func serveOn(t *testing.T, listen string, args ...string) *daemon {
	t.Helper()
	return start(t, exec.Command(ckd, append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)...), strings.Count(listen, ",")+1)
}

// start starts a daemon that will listen on so many gRPC addresses.
func start(t *testing.T, command *exec.Cmd, addresses int) *daemon {
	t.Helper()
	d := &daemon{t: t, process: command, exited: make(chan struct{})}
	stderr, err := d.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan struct{})
	go d.follow(stderr, addresses, listening)
	t.Cleanup(func() {
		select {
		case <-d.exited:
		default:
			d.stop()
		}
		if t.Failed() {
			t.Logf("daemon's log:\n%s", d.logText())
		}
	})
	select {
	case <-listening:
	case <-d.exited:
		t.Fatalf("the daemon exited: %s", d.logText())
	case <-time.After(30 * time.Second):
		t.Fatalf("the daemon does not listen: %s", d.logText())
	}
	return d
}

// follow reads the daemon's log, and its addresses out of it.
func (d *daemon) follow(stderr io.Reader, addresses int, listening chan struct{}) {
	defer close(d.exited)
	scan := bufio.NewScanner(stderr)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		d.mu.Lock()
		d.log.WriteString(scan.Text() + "\n")
		d.mu.Unlock()
		var line struct{ Msg, For, Address string }
		if json.Unmarshal(scan.Bytes(), &line) != nil || line.Msg != "listening" {
			continue
		}
		if line.For == "grpc" {
			d.grpc = append(d.grpc, line.Address)
		} else {
			d.admin = line.Address
		}
		if len(d.grpc) == addresses && d.admin != "" {
			close(listening)
		}
	}
	_ = d.process.Wait() // its code is in ProcessState
}

func (d *daemon) logText() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// stop tells the daemon to stop and returns its exit code.
func (d *daemon) stop() int {
	d.t.Helper()
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(30 * time.Second):
		_ = d.process.Process.Kill() // it did not stop by itself
		<-d.exited
		d.t.Error("the daemon did not stop within 30 s of SIGTERM")
	}
	return d.process.ProcessState.ExitCode()
}

// get fetches a path of the admin address.
func (d *daemon) get(path string, header ...string) (code int, body string, contentType string) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.admin+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.StatusCode, string(data), answer.Header.Get("Content-Type")
}
