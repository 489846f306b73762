package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ckd-project/ckd/bench/speed/ckernel"
	"github.com/ckd-project/ckd/internal/config"
)

// Exit codes beside 0.
const (
	exitFault = 1
	exitUsage = 2
)

// parts of the comparison, in order.
var parts = []string{"kernel", "daemon", "memory"}

// options holds the flags.
type options struct {
	rounds  int
	seconds float64
	only    string
	quick   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	played, err := playRole(ctx, os.Args[1:])
	if !played {
		var o options
		o.define(flag.CommandLine)
		flag.Parse()
		if err := o.check(flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "speed:", err)
			os.Exit(exitUsage)
		}
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(exitFault)
	}
}

func (o *options) define(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "rounds", 7, "rounds, in each of which everything takes its turn")
	f.Float64Var(&o.seconds, "seconds", 0.5, "seconds of each turn of a daemon")
	f.StringVar(&o.only, "only", "", "only these parts, by comma: "+strings.Join(parts, ", "))
	f.BoolVar(&o.quick, "quick", false, "everything once and briefly: a smoke run")
}

func (o *options) check(arguments []string) error {
	if len(arguments) > 0 {
		return fmt.Errorf("argument %q: expected flags only", arguments[0])
	}
	if o.rounds < 1 || o.rounds > 1000 {
		return fmt.Errorf("-rounds %d: expected 1 to 1000", o.rounds)
	}
	if !(o.seconds >= 0.02 && o.seconds <= 60) {
		return fmt.Errorf("-seconds %v: expected 0.02 to 60", o.seconds)
	}
	for part := range strings.SplitSeq(o.only, ",") {
		if o.only != "" && !slices.Contains(parts, part) {
			return fmt.Errorf("-only %s: expected some of %s", part, strings.Join(parts, ", "))
		}
	}
	return nil
}

func (o *options) wants(part string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), part)
}

func (o *options) turn() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// run measures every part that is wanted, and prints the tables.
func run(ctx context.Context, o options) error {
	if o.quick {
		o.rounds, o.seconds = 1, 0.06
	}
	// Far more than it takes, so that nothing that hangs goes on for ever.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute+time.Duration(o.rounds)*(time.Minute+200*o.turn()))
	defer cancel()
	folder, err := os.MkdirTemp("", "ckd-speed-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // it is in the temporary folder
	if canPin() {
		if err := os.Setenv(pinnedVariable, "1"); err != nil {
			return err
		}
	}
	binary := filepath.Join(folder, "ckd")
	if o.only != "kernel" {
		if err := build(ctx, binary); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	err = o.measure(ctx, folder, binary, &out)
	_, _ = os.Stdout.Write(out.Bytes()) // of what did not fail
	return err
}

// build builds the daemon.
func build(ctx context.Context, binary string) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/ckd-project/ckd/cmd/ckd").CombinedOutput(); err != nil {
		return fmt.Errorf("building ckd: %w\n%s", err, out)
	}
	return nil
}

// measure runs the parts, each in a process of its own, and prints their tables.
func (o *options) measure(ctx context.Context, folder, binary string, out *bytes.Buffer) error {
	python, versions, err := findPython(ctx)
	if err != nil {
		versions = err.Error()
	}
	printMachine(out, versions)
	if o.wants("kernel") {
		if err := o.kernels(ctx, folder, python, out); err != nil {
			return err
		}
	}
	if o.wants("daemon") {
		task := comparison{binary, folder, o.rounds, o.turn(), daemonCases()}
		if o.quick {
			task.Cases = []daemonCase{{30, 4, 64, batched}, {30, 4, 1, passByPass}, {30, 4, 1, unary}}
		}
		rows, err := ask[[]daemonRow](ctx, roleDaemon, task)
		if err != nil {
			return err
		}
		printDaemons(out, o, rows)
	}
	if o.wants("memory") {
		defaults, err := config.Default()
		if err != nil {
			return err
		}
		task := memoryOptions{binary, folder, defaults.MaxStreams, time.Second}
		if o.quick {
			task.Streams, task.Settle = 50, 50*time.Millisecond
		}
		rows, err := ask[[]memoryRow](ctx, roleMemory, task)
		if err != nil {
			return err
		}
		printMemory(out, rows)
	}
	return nil
}

// kernels times each path of ckd's kernel beside the C kernels of the same instructions, and the
// scalar path.
func (o *options) kernels(ctx context.Context, folder, python string, out *bytes.Buffer) error {
	task := kernelOptions{Path: ckernel.AVX512, Rounds: 40 * o.rounds, Python: python, Folder: folder}
	if o.quick {
		task.Rounds, task.Shapes = 3, []string{shapes[1].String()}
	}
	wide, err := ask[[]kernelRow](ctx, roleKernel, task)
	if err != nil {
		return err
	}
	task.Path, task.Version, task.Python = ckernel.AVX2, versionAVX2, ""
	if wide[0].Version == versionScalar { // there is nothing to switch off
		task.Version = versionScalar
	}
	narrow, err := ask[[]kernelRow](ctx, roleKernel, task, "GODEBUG=cpu.avx512f=off")
	if err != nil {
		return err
	}
	task.Path, task.Version = "", versionScalar
	scalar, err := ask[[]kernelRow](ctx, roleKernel, task, "GODEBUG=cpu.avx512f=off,cpu.avx2=off")
	if err != nil {
		return err
	}
	printKernels(out, wide, narrow, scalar)
	return nil
}

// progress prints what is being measured.
func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "speed: "+format+"\n", arguments...)
}
