package testbed

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hang is how long a program may take to start or stop before it is taken to hang: far
// more than it needs on a machine with much else to do.
const hang = 2 * time.Minute

// Daemon is a running ckd serve.
type Daemon struct {
	GRPC    []string // addresses, as a client dials them
	Admin   string   // URL
	HTTP    string   // URL; empty where the API is not served over HTTP
	Process *exec.Cmd
	Exited  chan struct{} // closed when it has

	t   *testing.T
	mu  sync.Mutex
	log strings.Builder
}

// Serve starts a daemon on free ports and waits until it listens.
func Serve(t *testing.T, ckd string, args ...string) *Daemon {
	t.Helper()
	return ServeOn(t, ckd, "127.0.0.1:0", args...)
}

// ServeOn is Serve on gRPC addresses of one's own.
func ServeOn(t *testing.T, ckd, listen string, args ...string) *Daemon {
	t.Helper()
	all := append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)
	return Start(t, exec.Command(ckd, all...), strings.Count(listen, ",")+1)
}

// Start starts a daemon that will listen on so many gRPC addresses and on the admin
// address, and waits until it does.
func Start(t *testing.T, command *exec.Cmd, addresses int) *Daemon {
	t.Helper()
	return StartUntil(t, command, func(d *Daemon) bool { return len(d.GRPC) == addresses && d.Admin != "" })
}

// StartUntil starts a daemon and waits until it listens where it is wanted.
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
	case <-time.After(hang):
		t.Fatalf("the daemon does not listen: %s", d.Log())
	}
	return d
}

// follow reads the daemon's log, and its addresses out of it.
func (d *Daemon) follow(stderr io.Reader, listens func(*Daemon) bool, listening chan struct{}) {
	defer close(d.Exited)
	scan := bufio.NewScanner(stderr)
	scan.Buffer(nil, 1<<20)
	told := false
	for scan.Scan() {
		d.mu.Lock()
		d.log.WriteString(scan.Text() + "\n")
		d.mu.Unlock()
		var line struct{ Msg, For, Address string }
		if told || json.Unmarshal(scan.Bytes(), &line) != nil || line.Msg != "listening" {
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
			told = true
			close(listening)
		}
	}
	_ = d.Process.Wait() // its code is in ProcessState
}

// Log is what the daemon has logged.
func (d *Daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// Stop tells the daemon to stop and returns its exit code.
func (d *Daemon) Stop() int {
	d.t.Helper()
	if err := d.Process.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.Exited:
	case <-time.After(hang):
		_ = d.Process.Process.Kill() // it did not stop by itself
		<-d.Exited
		d.t.Errorf("the daemon did not stop within %v of SIGTERM", hang)
	}
	return d.Process.ProcessState.ExitCode()
}

// Get fetches a path of the admin address, with headers by name and value.
func (d *Daemon) Get(path string, header ...string) (code int, body string, contentType string) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.Admin+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Cache-Control", "no-cache") // of /metrics, values from before this are of no use to a test
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
