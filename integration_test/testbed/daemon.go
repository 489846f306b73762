package testbed

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Daemon wraps a running ckd serve.
type Daemon struct {
	GRPC    []string // addresses to dial
	Admin   string   // URL
	HTTP    string   // URL; empty unless the API is served over HTTP
	Process *exec.Cmd
	Exited  chan struct{} // closed when the process has exited

	t   *testing.T
	mu  sync.Mutex
	log strings.Builder
}

// Serve starts a daemon on free ports and waits until it listens.
func Serve(t *testing.T, ckd string, args ...string) *Daemon {
	t.Helper()
	return ServeOn(t, ckd, "127.0.0.1:0", args...)
}

// ServeOn starts a daemon on the given gRPC addresses.
func ServeOn(t *testing.T, ckd, listen string, args ...string) *Daemon {
	t.Helper()
	all := append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)
	return Start(t, exec.Command(ckd, all...), strings.Count(listen, ",")+1)
}

// Start starts a daemon and waits until it listens on its admin address, on so many gRPC addresses,
// and on that for HTTP if the command names one.
func Start(t *testing.T, command *exec.Cmd, addresses int) *Daemon {
	t.Helper()
	http := slices.Contains(command.Args, "--http")
	return StartUntil(t, command, func(d *Daemon) bool {
		return len(d.GRPC) == addresses && d.Admin != "" && (d.HTTP != "" || !http)
	})
}

// StartUntil starts a daemon and waits until listens reports true. The end of the test stops it.
func StartUntil(t *testing.T, command *exec.Cmd, listens func(*Daemon) bool) *Daemon {
	t.Helper()
	d := &Daemon{t: t, Process: command, Exited: make(chan struct{})}
	stderr, err := d.Process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Process.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan struct{})
	go d.follow(stderr, listens, listening)
	t.Cleanup(func() {
		select {
		case <-d.Exited:
		default:
			d.Stop()
		}
		if t.Failed() {
			t.Logf("daemon's log:\n%s", d.Log())
		}
	})
	select {
	case <-listening:
	case <-d.Exited:
		t.Fatalf("the daemon exited: %s", d.Log())
	case <-time.After(Hang):
		t.Fatalf("the daemon does not listen: %s", d.Log())
	}
	return d
}

// StartDemo starts a demo that stays up, and returns what it prints after a label, such as an
// address. The end of the test stops it.
func StartDemo(t *testing.T, command *exec.Cmd, label string) string {
	t.Helper()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt) // it may have ended; Wait returns the error
		if err := command.Wait(); err != nil {
			t.Errorf("%q: %v", command.Args, err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if printed, ok := strings.CutPrefix(lines.Text(), label); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }() // or the demo would block on its output
			return strings.TrimSpace(printed)
		}
	}
	t.Fatalf("%q does not print %s", command.Args, label)
	return ""
}

// follow copies the daemon's log and finds the addresses in it.
func (d *Daemon) follow(stderr io.Reader, listens func(*Daemon) bool, listening chan struct{}) {
	defer close(d.Exited)
	scan := bufio.NewScanner(stderr)
	scan.Buffer(nil, 1<<20)
	ready := false
	for scan.Scan() {
		d.mu.Lock()
		d.log.WriteString(scan.Text() + "\n")
		d.mu.Unlock()
		var line struct{ Msg, For, Address string }
		if ready || json.Unmarshal(scan.Bytes(), &line) != nil || line.Msg != "listening" {
			continue
		}
		switch line.For {
		case "grpc":
			d.GRPC = append(d.GRPC, line.Address)
		case "admin":
			d.Admin = line.Address
		case "http":
			d.HTTP = line.Address
		}
		if listens(d) {
			ready = true
			close(listening)
		}
	}
	_ = d.Process.Wait() // ProcessState has the exit code
}

// Log returns the log so far.
func (d *Daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (d *Daemon) Stop() int {
	d.t.Helper()
	if err := d.Process.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.Exited:
	case <-time.After(Hang):
		_ = d.Process.Process.Kill() // it may have exited meanwhile
		<-d.Exited
		d.t.Errorf("the daemon did not stop within %v of SIGTERM", Hang)
	}
	return d.Process.ProcessState.ExitCode()
}

// Get fetches a path of the admin address, with pairs of header and value.
func (d *Daemon) Get(path string, header ...string) (code int, body string, contentType string) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.Admin+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Cache-Control", "no-cache") // or /metrics may answer with values from before the call
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
