package testbed

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs beside a test, whose end stops it.
type process struct {
	Process *exec.Cmd
	Exited  chan struct{} // closed when the process has exited

	t   *testing.T
	mu  sync.Mutex
	log strings.Builder
}

// start starts a command and waits until ready has returned true for a line that it prints.
func start(t *testing.T, command *exec.Cmd, ready func(line string) bool) *process {
	t.Helper()
	p := &process{Process: command, Exited: make(chan struct{}), t: t}
	printed, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = out, out
	err = command.Start()
	_ = out.Close() // the process has its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("%s printed:\n%s", command.Path, p.Log())
		}
	})
	isReady := make(chan struct{})
	go func() {
		defer close(p.Exited)
		defer printed.Close()
		scan := bufio.NewScanner(printed)
		scan.Buffer(nil, 1<<20)
		for waits := true; scan.Scan(); {
			p.mu.Lock()
			p.log.WriteString(scan.Text() + "\n")
			p.mu.Unlock()
			if waits && ready(scan.Text()) {
				waits = false
				close(isReady)
			}
		}
		_ = command.Wait() // ProcessState has the exit code
	}()
	select {
	case <-isReady:
	case <-p.Exited:
		t.Fatalf("%q exited", command.Args)
	case <-time.After(Hang):
		t.Fatalf("%q is not ready", command.Args)
	}
	return p
}

// Log returns what the process has printed so far.
func (p *process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (p *process) Stop() int {
	p.t.Helper()
	select {
	case <-p.Exited:
		return p.Process.ProcessState.ExitCode()
	default:
	}
	_ = p.Process.Process.Signal(syscall.SIGTERM) // it may have exited meanwhile
	select {
	case <-p.Exited:
	case <-time.After(Hang):
		_ = p.Process.Process.Kill() // likewise
		<-p.Exited
		p.t.Errorf("%s did not stop within %v of SIGTERM", p.Process.Path, Hang)
	}
	return p.Process.ProcessState.ExitCode()
}

// StartDemo starts a demo that stays up, and returns what it prints after a label, such as an
// address. The end of the test stops it.
func StartDemo(t *testing.T, command *exec.Cmd, label string) (printed string) {
	t.Helper()
	p := start(t, command, func(line string) (ok bool) {
		printed, ok = strings.CutPrefix(line, label)
		return ok
	})
	t.Cleanup(func() {
		if code := p.Stop(); code != 0 {
			t.Errorf("%q: exit %d", command.Args, code)
		}
	})
	return strings.TrimSpace(printed)
}
