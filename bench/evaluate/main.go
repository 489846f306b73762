package main

import (
	"context"
	_ "embed" // the script
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/ckd-project/ckd/bench/internal/host"
)

//go:embed evaluate.py
var evaluateScript []byte

// Exit codes besides 0.
const (
	exitFault    = 1
	exitUsage    = 2
	exitNoPython = 3
)

// options holds the flags.
type options struct {
	shape
	resamples, rounds int
	python, write     string
}

func main() {
	var o options
	flag.IntVar(&o.inputs, "inputs", 7948, "inputs of the recording")
	flag.IntVar(&o.passes, "passes", 30, "passes of each input")
	flag.IntVar(&o.classes, "classes", 4, "classes, of which the upper half is critical")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the recording")
	flag.IntVar(&o.resamples, "resamples", 200, "resamples of the bootstrap")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, in each of which every command runs once")
	flag.StringVar(&o.python, "python", "", "Python with numpy (default: the first python3 that has it)")
	flag.StringVar(&o.write, "write", "", "only write the recording to this folder")
	flag.Parse()
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "evaluate:", err)
		if errors.As(err, new(*host.NoPythonError)) {
			os.Exit(exitNoPython)
		}
		os.Exit(exitFault)
	}
}

func (o *options) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("argument %q: expected flags only", flag.Arg(0))
	case o.inputs < 1000:
		return fmt.Errorf("-inputs %d: expected 1000 or more", o.inputs)
	case o.passes < 2:
		return fmt.Errorf("-passes %d: expected 2 or more", o.passes)
	case o.classes < 2 || o.classes > 64:
		return fmt.Errorf("-classes %d: expected 2 to 64", o.classes)
	case o.resamples < 50:
		return fmt.Errorf("-resamples %d: expected 50 or more", o.resamples)
	case o.rounds < 1:
		return fmt.Errorf("-rounds %d: expected 1 or more", o.rounds)
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if o.write != "" {
		return writeRecording(o.write, o.shape)
	}
	interpreter, err := host.FindPython(ctx, o.python)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "ckd-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // it is in the temporary folder
	c, err := prepare(ctx, folder, interpreter, o)
	if err != nil {
		return err
	}
	agreement, err := c.agree(ctx, o.resamples)
	if err != nil {
		return err
	}
	m, err := c.measure(ctx, o.rounds)
	if err != nil {
		return err
	}
	return m.print(os.Stdout, o, interpreter, agreement)
}

// commands holds the two commands to compare, and what they cost before they do anything.
type commands struct {
	ckd, numpy, bareCKD, bareNumpy []string
	passesFile                     string
}

// prepare builds ckd and writes the recording.
func prepare(ctx context.Context, folder string, p *host.Python, o options) (*commands, error) {
	binary := filepath.Join(folder, "ckd")
	if _, _, err := execute(ctx, nil, "go", "build", "-o", binary, "github.com/ckd-project/ckd/cmd/ckd"); err != nil {
		return nil, err
	}
	// Use a process of its own: a child begins with the peak memory of its parent, which has to
	// stay small.
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	flags := []string{"-write", folder, "-seed", strconv.FormatUint(o.seed, 10)}
	for name, value := range map[string]int{"-inputs": o.inputs, "-passes": o.passes, "-classes": o.classes} {
		flags = append(flags, name, strconv.Itoa(value))
	}
	if out, err := exec.CommandContext(ctx, own, flags...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("writing the recording: %w\n%s", err, out)
	}
	script := filepath.Join(folder, "evaluate.py")
	if err := os.WriteFile(script, evaluateScript, 0o600); err != nil {
		return nil, err
	}
	passes, labels := filepath.Join(folder, passesName), filepath.Join(folder, labelsName)
	same := []string{"--critical", o.critical(), "--bootstrap", strconv.Itoa(o.resamples)}
	return &commands{
		ckd:        append([]string{binary, "evaluate", "--passes", passes, "--labels", labels, "--format", "json"}, same...),
		numpy:      append([]string{p.Path, script, passes, labels}, same...),
		bareCKD:    []string{binary, "version"},
		bareNumpy:  []string{p.Path, "-c", "import numpy"},
		passesFile: passes,
	}, nil
}

// agree runs both commands once and compares their reports.
func (c *commands) agree(ctx context.Context, resamples int) (*agreement, error) {
	ours, _, err := execute(ctx, nil, c.ckd...)
	if err != nil {
		return nil, err
	}
	theirs, _, err := execute(ctx, nil, c.numpy...)
	if err != nil {
		return nil, err
	}
	return compare(ours, theirs, resamples)
}
