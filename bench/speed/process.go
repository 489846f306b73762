package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// Each side has a core of its own where there are two and taskset.
const (
	serverCore = 0
	clientCore = 1
)

// canPin reports whether processes can be bound to the two cores.
var canPin = sync.OnceValue(func() bool {
	_, err := exec.LookPath("taskset")
	return err == nil && runtime.NumCPU() > max(serverCore, clientCore)
})

// pinned returns a command bound to a core, if that is possible.
func pinned(core int, command ...string) []string {
	if os.Getenv(pinnedVariable) == "" {
		return command
	}
	return append([]string{"taskset", "-c", strconv.Itoa(core)}, command...)
}

// pinnedVariable is set for our processes if processes are bound to cores, because a bound process
// sees one core only.
const pinnedVariable = "CKD_BENCH_PINNED"

// Roles of the processes that this program starts of itself: the first argument. The second is the
// task.
const (
	roleServer = "server"
	roleKernel = "kernel"
	roleDaemon = "daemon"
	roleMemory = "memory"
)

// playRole runs this process's role, if it has one.
func playRole(ctx context.Context, arguments []string) (played bool, err error) {
	if len(arguments) < 2 {
		return false, nil
	}
	task := []byte(arguments[1])
	switch arguments[0] {
	case roleServer:
		if len(arguments) != 3 {
			return true, errors.New("a server needs its kind and its socket")
		}
		return true, serverRole(arguments[1], arguments[2])
	case roleKernel:
		return true, answerWith(ctx, task, kernelOptions.measureAll)
	case roleDaemon:
		return true, answerWith(ctx, task, comparison.measureThroughput)
	case roleMemory:
		return true, answerWith(ctx, task, memoryOptions.measureAll)
	}
	return false, nil
}

// answerWith runs do with the options in JSON, and prints its result.
func answerWith[O, T any](ctx context.Context, task []byte, do func(O, context.Context) (T, error)) error {
	var o O
	if err := json.Unmarshal(task, &o); err != nil {
		return err
	}
	answer, err := do(o, ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// ask starts this program in a role, on the client's core, and returns its answer.
func ask[T any](ctx context.Context, role string, options any, environment ...string) (answer T, err error) {
	task, err := json.Marshal(options)
	if err != nil {
		return answer, err
	}
	own, err := os.Executable()
	if err != nil {
		return answer, err
	}
	command := pinned(clientCore, own, role, string(task))
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(), environment...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it has processes of its own to end
	c.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		return answer, fmt.Errorf("%s: %w", role, err)
	}
	return answer, json.Unmarshal(out.Bytes(), &answer)
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
func startServer(ctx context.Context, folder, kind, name string) (*process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(folder, name+".sock")
	return start(ctx, folder, name, socket, own, roleServer, kind, socket)
}

// startCKD starts ckd with a policy file.
func startCKD(ctx context.Context, folder, binary, policy, name string) (*process, error) {
	socket := filepath.Join(folder, name+".sock")
	return start(ctx, folder, name, socket, binary, "serve", "--policy", policy, "--listen", "unix:"+socket,
		"--admin", "127.0.0.1:0")
}

// start starts a server on its core and waits until it listens; stop must be called.
func start(ctx context.Context, folder, name, socket string, command ...string) (*process, error) {
	p := &process{name: name, socket: socket, log: filepath.Join(folder, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command = pinned(serverCore, command...)
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
		if c, err := net.Dial("unix", socket); err == nil {
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

// pid returns the server's process id; taskset becomes the command that it starts.
func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) stop() {
	_ = p.command.Process.Kill() // it may have ended already
	<-p.exited
}

// said returns the end of the server's log.
func (p *process) said() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, info.Size()-4096), io.SeekStart) // or all of it
	}
	text, _ := io.ReadAll(f)
	return string(text)
}
