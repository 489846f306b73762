package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
)

// Exit codes beside 0.
const (
	exitFault = 1
	exitUsage = 2
)

// parts of the comparison, in order.
var parts = []string{"kernel", "daemon", "latency", "memory", "scaling"}

// options are the flags.
type options struct {
	rounds       int
	seconds      float64
	only         string
	quick, write bool
	file         string
	python       string
	binaries     string
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
	f.BoolVar(&o.write, "write", false, "replace the tables in -file")
	f.StringVar(&o.file, "file", "BENCHMARKS.md", "file whose tables -write replaces")
	f.StringVar(&o.python, "python", "", "Python with numpy (default: the first python3 that has it)")
	f.StringVar(&o.binaries, "binaries", "", "folder to keep the daemons in, which are only built where they are missing: "+
		"to run this with a priority that the compiler must not have")
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
	if o.quick && o.write {
		return errors.New("-quick -write: expected one of them, for quick figures say nothing")
	}
	return nil
}

func (o *options) wants(part string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), part)
}

func (o *options) turn() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// run does every part that is wanted, and prints the tables or writes them.
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
	binary := filepath.Join(cmp.Or(o.binaries, folder), "ckd")
	if o.only != "kernel" {
		if err := build(ctx, binary); err != nil {
			return err
		}
		if err := build(ctx, withoutMetrics(binary), "-tags", "nometrics"); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	err = o.measure(ctx, folder, binary, &out)
	if o.write && err == nil {
		return replaceTables(o.file, out.Bytes())
	}
	_, _ = os.Stdout.Write(out.Bytes()) // of what did not fail
	return err
}

// build makes a daemon that is not there yet.
func build(ctx context.Context, binary string, arguments ...string) error {
	if _, err := os.Stat(binary); err == nil {
		return nil
	}
	arguments = append(append([]string{"build"}, arguments...), "-o", binary, "github.com/ckd-project/ckd/cmd/ckd")
	if out, err := exec.CommandContext(ctx, "go", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("building ckd: %w\n%s", err, out)
	}
	return nil
}

// withoutMetrics is the daemon beside another that does not count what it decides.
func withoutMetrics(binary string) string { return binary + "-without-metrics" }

// measure does the parts, each in a process of its own, and prints their tables.
func (o *options) measure(ctx context.Context, folder, binary string, out *bytes.Buffer) error {
	python, versions := findPython(ctx, o.python)
	printMachine(out, versions)
	if o.wants("kernel") {
		if err := o.kernels(ctx, folder, python, out); err != nil {
			return err
		}
	}
	if o.wants("daemon") {
		told := daemonOptions{binary, folder, o.rounds, o.turn(), daemonCases()}
		if o.quick {
			told.Cases = []daemonCase{{30, 4, 64, batched}, {30, 4, 1, passByPass}, {30, 4, 1, unary}}
		}
		rows, err := ask[[]daemonRow](ctx, roleDaemon, told)
		if err != nil {
			return err
		}
		printDaemons(out, o, rows)
	}
	if o.wants("latency") {
		cases := []daemonCase{{30, 4, 1, batched}, {30, 4, 64, batched}}
		told := latencyOptions{binary, folder, min(o.rounds, 5), o.turn(), cases}
		if o.quick {
			told.Cases = told.Cases[1:]
		}
		rows, err := ask[[]latencyRow](ctx, roleLatency, told)
		if err != nil {
			return err
		}
		printLatencies(out, rows)
	}
	if o.wants("memory") {
		told := memoryOptions{binary, folder, 1000, time.Second}
		if o.quick {
			told.Streams, told.Settle = 50, 50*time.Millisecond
		}
		rows, err := ask[[]memoryRow](ctx, roleMemory, told)
		if err != nil {
			return err
		}
		printMemory(out, rows)
	}
	if o.wants("scaling") {
		rows, err := ask[[]scalingRow](ctx, roleScaling, scalingOptions{binary, folder, min(o.rounds, 5), o.turn(), o.quick})
		if err != nil {
			return err
		}
		printScaling(out, rows)
	}
	return nil
}

// kernels times ckd's AVX-512 path beside the C of that, its AVX2 path beside the C of that, and its scalar path.
func (o *options) kernels(ctx context.Context, folder, python string, out *bytes.Buffer) error {
	told := kernelOptions{Path: ckernel.AVX512, Rounds: 40 * o.rounds, Python: python, Folder: folder}
	if o.quick {
		told.Rounds, told.Shapes = 3, []string{shapes[1].String()}
	}
	wide, err := ask[[]kernelRow](ctx, roleKernel, told)
	if err != nil {
		return err
	}
	told.Path, told.Version, told.Python = ckernel.AVX2, versionAVX2, ""
	if wide[0].Version == versionScalar { // there is nothing to switch off
		told.Version = versionScalar
	}
	narrow, err := ask[[]kernelRow](ctx, roleKernel, told, "GODEBUG=cpu.avx512f=off")
	if err != nil {
		return err
	}
	told.Path, told.Version = "", versionScalar
	scalar, err := ask[[]kernelRow](ctx, roleKernel, told, "GODEBUG=cpu.avx512f=off,cpu.avx2=off")
	if err != nil {
		return err
	}
	printKernels(out, wide, narrow, scalar)
	return nil
}

// progress tells what is under way.
func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "speed: "+format+"\n", arguments...)
}
