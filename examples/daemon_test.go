package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ckd is the daemon's binary, and goExample that of the Go example; TestMain
// builds them.
var ckd, goExample string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if err := os.Setenv("PYTHONDONTWRITEBYTECODE", "1"); err != nil { // beside the examples
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		dir, err := os.MkdirTemp("", "ckd-examples")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // what is left is in the system's temporary folder
		ckd, goExample = filepath.Join(dir, "ckd"), filepath.Join(dir, "go")
		for binary, source := range map[string]string{ckd: "../cmd/ckd", goExample: "./go"} {
			build := exec.Command("go", "build", "-o", binary, source)
			build.Stdout, build.Stderr = os.Stdout, os.Stderr
			if err := build.Run(); err != nil {
				fmt.Fprintf(os.Stderr, "building %s: %v\n", source, err)
				return 1
			}
		}
		return m.Run()
	}())
}

const (
	policyFile = "../deploy/policy/fetal-health.yaml"
	recording  = "../internal/recordings/ctg-mcdropout.passes.npy"
)

// python finds an interpreter that has the modules. Without one the test is
// skipped, unless CKD_REQUIRE_TOOLS is set.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, pattern := range []string{"*/*.py", "*/*.binpb", "*/*/*.py", "triton/*/*/*/*.py"} {
		files, err := filepath.Glob(pattern)
		for _, file := range files {
			if _, statErr := os.Stat(file); err == nil { // by which go test learns what this depends on
				err = statErr
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	imports := "import " + strings.Join(modules, ", ")
	for _, path := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if path != "" && exec.Command(path, "-c", imports).Run() == nil {
			return path
		}
	}
	lacks(t, "no python3 with %s; set PYTHON to one", strings.Join(modules, ", "))
	return ""
}

// lacks skips a test for want of something, unless CKD_REQUIRE_TOOLS is set.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CKD_REQUIRE_TOOLS") != "" {
		t.Fatalf(format+" (and CKD_REQUIRE_TOOLS is set)", args...)
	}
	t.Skipf(format, args...)
}

// result of a command that ran to its end.
type result struct {
	stdout, stderr string
	code           int
}

func run(t *testing.T, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return runCommand(t, exec.CommandContext(ctx, name, args...))
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

// daemon is a running ckd serve.
type daemon struct {
	grpc, http string // addresses, as a client dials them; http is empty where it is off
	process    *exec.Cmd
	exited     chan struct{}
	mu         sync.Mutex
	log        strings.Builder
}

// serve starts a daemon on a free port, and stops it at the end of the test.
func serve(t *testing.T, args ...string) *daemon {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", append([]string{"--policy", policyFile}, args...)...)
}

func serveOn(t *testing.T, listen string, args ...string) *daemon {
	t.Helper()
	d := &daemon{exited: make(chan struct{})}
	d.process = exec.Command(ckd, append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)...)
	stderr, err := d.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	withHTTP := slices.Contains(args, "--http")
	ready := map[string]chan struct{}{"grpc": make(chan struct{}), "http": make(chan struct{})}
	go d.follow(stderr, ready)
	t.Cleanup(func() {
		d.stop(t)
		if t.Failed() {
			t.Logf("daemon's log:\n%s", d.logText())
		}
	})
	for _, name := range []string{"grpc", "http"} {
		if name == "http" && !withHTTP {
			continue
		}
		select {
		case <-ready[name]:
		case <-d.exited:
			t.Fatalf("the daemon exited: %s", d.logText())
		case <-time.After(30 * time.Second):
			t.Fatalf("the daemon does not serve %s within 30 s", name)
		}
	}
	return d
}

// follow reads the daemon's log, and its addresses out of it.
func (d *daemon) follow(stderr io.Reader, ready map[string]chan struct{}) {
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
		switch {
		case line.For == "grpc" && d.grpc == "" && strings.Contains(line.Address, ":"):
			d.grpc = line.Address
			close(ready["grpc"])
		case line.For == "http" && d.http == "":
			d.http = line.Address
			close(ready["http"])
		}
	}
	_ = d.process.Wait() // its code is in ProcessState
}

func (d *daemon) logText() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// stop tells the daemon to stop, if it has not.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	_ = d.process.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-d.exited:
	case <-time.After(30 * time.Second):
		_ = d.process.Process.Kill() // it did not stop by itself
		<-d.exited
		t.Error("the daemon did not stop within 30 s of SIGTERM")
	}
}
