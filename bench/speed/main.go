package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit codes beside 0.
const (
	exitFault = 1
	exitUsage = 2
)

// parts of the comparison, in order.
var parts = []string{"kernel", "daemon", "memory"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	played, err := playRole(ctx, os.Args[1:])
	if !played {
		only := flag.String("only", strings.Join(parts, ","), "only these parts, by comma")
		quick := flag.Bool("quick", false, "everything once and briefly: a smoke run")
		flag.Parse()
		wanted := strings.Split(*only, ",")
		if flag.NArg() > 0 || slices.ContainsFunc(wanted, func(p string) bool { return !slices.Contains(parts, p) }) {
			fmt.Fprintf(os.Stderr, "speed: %q -only %s: expected flags alone, and some of %s\n", flag.Args(), *only, strings.Join(parts, ", "))
			os.Exit(exitUsage)
		}
		err = run(ctx, wanted, *quick)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(exitFault)
	}
}

// run measures the parts that are wanted, and prints their tables.
func run(ctx context.Context, wanted []string, quick bool) error {
	// Far more than it takes, so that nothing that hangs goes on for ever.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	folder, err := os.MkdirTemp("", "ckd-speed-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // it is in the temporary folder
	o := setting{folder: folder, binary: filepath.Join(folder, "ckd"), quick: quick}
	if !slices.Equal(wanted, []string{"kernel"}) {
		if err := build(ctx, o.binary); err != nil {
			return err
		}
	}
	bound := "not bound to cores"
	if bind(ctx) {
		bound = fmt.Sprintf("servers bound to core %d, clients and kernels to core %d", serverCore, clientCore)
	}
	_, python := findPython(ctx)
	fmt.Printf("%s, %d cores, %s/%s, %s; %s; %s.\n\n", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), python, bound)
	for _, part := range []struct {
		name    string
		compare func(setting, context.Context) error
	}{{"kernel", setting.compareKernels}, {"daemon", setting.compareDaemons}, {"memory", setting.measureMemory}} {
		if slices.Contains(wanted, part.name) {
			if err := part.compare(o, ctx); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}

// setting holds what all parts need.
type setting struct {
	folder, binary string // of the daemon
	quick          bool
}

// build builds the daemon.
func build(ctx context.Context, binary string) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/ckd-project/ckd/cmd/ckd").CombinedOutput(); err != nil {
		return fmt.Errorf("building ckd: %w\n%s", err, out)
	}
	return nil
}

// processor returns the name of the processor, where the system knows it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// row prints a row of a table, and header its first.
func row(cells ...string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }

func header(cells ...string) {
	row(cells...)
	fmt.Println(strings.Repeat("|---", len(cells)) + "|")
}

// figure formats a number with three digits; NaN means not measured.
func figure(x float64) string {
	switch {
	case x != x:
		return "-"
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	case x >= 1e6:
		return figure(x/1e6) + "M"
	case x >= 1e3:
		return figure(x/1e3) + "k"
	}
	return fmt.Sprintf("%.0f", x)
}
