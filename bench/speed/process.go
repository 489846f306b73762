package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
)

// Each side has a core of its own where there are two and taskset.
const (
	serverCore = 0
	clientCore = 1
)

// bound says that bind could bind.
var bound bool

// bind binds this process, and what it starts other than servers, to the client's core. It reports
// whether that is possible.
func bind(ctx context.Context) bool {
	bound = runtime.NumCPU() > max(serverCore, clientCore) && exec.CommandContext(ctx, "taskset", "--all-tasks",
		"--cpu-list", "--pid", strconv.Itoa(clientCore), strconv.Itoa(os.Getpid())).Run() == nil
	if bound {
		runtime.GOMAXPROCS(1)
	}
	return bound
}

// Roles of the processes that this program starts of itself: the first argument.
const (
	roleServer = "server" // with its kind and its socket
	roleKernel = "kernel" // with whether to be quick
)

// playRole runs this process's role, if it has one.
func playRole(ctx context.Context, arguments []string) (played bool, err error) {
	switch {
	case len(arguments) == 3 && arguments[0] == roleServer:
		return true, serverRole(arguments[1], arguments[2])
	case len(arguments) == 2 && arguments[0] == roleKernel:
		return true, kernelRole(ctx, arguments[1] == "true")
	}
	return false, nil
}

// process is a server under test.
type process struct {
	name    string
	socket  string
	command *exec.Cmd
	log     string // file
	exited  chan struct{}
}

// startServer starts one of our own servers.
func (o setting) startServer(ctx context.Context, kind string) (*process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return o.start(ctx, kind, func(socket string) []string { return []string{own, roleServer, kind, socket} })
}

// startCKD starts ckd with the policy of all models.
func (o setting) startCKD(ctx context.Context, name string) (*process, error) {
	policy, err := writePolicy(o.folder)
	if err != nil {
		return nil, err
	}
	return o.start(ctx, name, func(socket string) []string {
		return []string{o.binary, "serve", "--policy", policy, "--listen", "unix:" + socket, "--admin", "127.0.0.1:0"}
	})
}

// start starts a server on its core and waits until it listens; stop must be called.
func (o setting) start(ctx context.Context, name string, commandOf func(socket string) []string) (*process, error) {
	p := &process{
		name: name, socket: filepath.Join(o.folder, name+".sock"), log: filepath.Join(o.folder, name+".log"), exited: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := commandOf(p.socket)
	if bound {
		command = append([]string{"taskset", "--cpu-list", strconv.Itoa(serverCore)}, command...)
	}
	p.command = exec.CommandContext(ctx, command[0], command[1:]...)
	p.command.Stdout, p.command.Stderr = log, log
	if _, err := p.command.StdinPipe(); err != nil { // open for as long as we are there
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.command.Wait() // it is killed in the end
		close(p.exited)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", p.socket); err == nil {
			return p, c.Close()
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended:\n%s", name, p.said())
		default:
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			p.stop()
			return nil, fmt.Errorf("%s does not listen:\n%s", name, p.said())
		}
	}
}

// cpuSeconds returns the CPU time that the server has used; taskset became the server.
func (p *process) cpuSeconds() (float64, error) {
	threads, err := procfs.AllThreads(p.command.Process.Pid)
	if err != nil {
		return 0, err
	}
	var total uint64
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // a thread may have ended
			total += s.RunningNanoseconds
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("no CPU time in the schedstat of %s's threads", p.name)
	}
	return float64(total) / 1e9, nil
}

// residentBytes returns the resident memory of the server.
func (p *process) residentBytes() (float64, error) {
	proc, err := procfs.NewProc(p.command.Process.Pid)
	if err != nil {
		return 0, err
	}
	status, err := proc.NewStatus()
	return float64(status.VmRSS), err
}

func (p *process) stop() {
	_ = p.command.Process.Kill() // it may have ended already
	<-p.exited
}

// said returns the server's log.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// serverRole serves on a unix socket until standard input ends.
func serverRole(kind, socket string) error {
	s := newSink()
	if kind != kindSink {
		var err error
		if s, err = newIdiomaticServer(kind); err != nil {
			return err
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the process that started this one
		s.Stop()
	}()
	return s.Serve(l)
}
