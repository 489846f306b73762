package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/bench/speed/ckernel"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/kernel"
)

// tolerance is the largest relative difference between the results of two programs, which must agree
// before they are timed. Values below 1e-3 count as 1e-3.
const tolerance = 1e-9

const (
	kernelRounds = 31
	// kernelTurn is about how long one kernel runs before the next has its turn.
	kernelTurn = 10 * time.Millisecond
)

// versions lists ckd's kernels by name, the widest first, with the GODEBUG that leaves a processor
// with no wider one.
var versions = []struct{ name, debug string }{
	{"avx512", ""}, {"avx2", "cpu.avx512f=off"}, {"scalar", "cpu.avx512f=off,cpu.avx2=off"},
}

// compareKernels prints the table of kernels. Each version has a process of its own, since a process
// chooses its kernel when it starts.
func (o setting) compareKernels(ctx context.Context) error {
	fmt.Print("### Kernel\n\nPasses in, checked, and columns out (mean, variance, third moment, C_k, skewness, M_k, " +
		"mean log mean), in ns per pass x class; by ckd's kernel and by C with the same instructions, which checks " +
		"nothing. Whole results of every input add sums over the classes and scores. Tuned numpy takes all inputs at " +
		"once and has no CBEC, nor has ckd beside it; idiomatic numpy takes input by input and has CBEC, and so has " +
		"ckd beside it. Ratios are of times.\n\n")
	header("shape", "version", "kernel, ns", "C, ns", "**kernel / C**", "whole results, ns", "**tuned numpy / ckd**",
		"**idiomatic numpy / ckd**", "kernel / itself")
	own, err := os.Executable()
	if err != nil {
		return err
	}
	widest := slices.IndexFunc(versions, func(v struct{ name, debug string }) bool { return v.name == kernel.Name() })
	for _, v := range versions[widest:] {
		c := exec.CommandContext(ctx, own, roleKernel, strconv.FormatBool(o.quick))
		c.Env = append(os.Environ(), "GODEBUG="+v.debug)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it has a Python to end
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	fmt.Println()
	return nil
}

// kernelRole prints the rows of this process's kernel.
func kernelRole(ctx context.Context, quick bool) error {
	python, _ := findPython(ctx)
	of, n := shapes, kernelRounds
	if quick {
		of, n = shapes[1:2], 1
	}
	for _, s := range of {
		progress("kernel: %s, %s", kernel.Name(), s)
		cells, err := kernelCells(ctx, s, n, python)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		row(cells...)
	}
	return nil
}

// kernelCells times this process's kernel and its opponents on one shape.
func kernelCells(ctx context.Context, s shape, n int, python string) ([]string, error) {
	values := s.values(1)
	critical, safe := s.sets()
	plain, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Lean: true})
	if err != nil {
		return nil, err
	}
	sets, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Critical: critical, Safe: safe, Lean: true})
	if err != nil {
		return nil, err
	}
	ours, err := sets.results()
	if err != nil {
		return nil, err
	}
	turns := []func() (float64, error){plain.turn(), sets.turn(), nil, nil, nil, nil, nil}
	const whole, withSets, bare, again, inC, tuned, idiomatic = 0, 1, 2, 3, 4, 5, 6
	contenders := map[int]contender{bare: bareKernel(s, values), again: bareKernel(s, values)}
	if ckernel.Runs(kernel.Name()) {
		contenders[inC] = kernelInC(s, values)
	}
	for at, c := range contenders {
		if err := c.run(1); err != nil {
			return nil, err
		}
		if err := agree(c.name, c.results(), ours); err != nil {
			return nil, err
		}
		turns[at] = timed(s, c.run)
	}
	if python != "" {
		p, err := startNumpy(ctx, python, s, values)
		if err != nil {
			return nil, err
		}
		defer p.stop()
		for form, results := range p.results {
			if err := agree("numpy, "+form, results, ours); err != nil {
				return nil, err
			}
		}
		turns[tuned] = func() (float64, error) { return p.run("tuned") }
		turns[idiomatic] = func() (float64, error) { return p.run("idiomatic") }
	}
	times, err := rounds(ctx, n, turns...)
	if err != nil {
		return nil, err
	}
	return []string{
		s.String(), kernel.Name(), figure(median(times[bare])), figure(median(times[inC])), figure(ratio(times[bare], times[inC])),
		figure(median(times[whole])), figure(ratio(times[tuned], times[whole])), figure(ratio(times[idiomatic], times[withSets])),
		figure(ratio(times[bare], times[again])),
	}, nil
}

// decomposer computes a shape with ckd: checks, moments, results, scores.
type decomposer struct {
	shape  shape
	tensor decomp.Tensor
	batch  *decomp.Batch
	result *decomp.Result
}

func newDecomposer(s shape, values []float32, spec decomp.Spec) (*decomposer, error) {
	plan, err := decomp.NewPlan(spec)
	if err != nil {
		return nil, err
	}
	return &decomposer{
		s, decomp.Tensor{Passes: s.passes, Inputs: s.inputs, Float32: values}, plan.NewBatch(), plan.NewResult(),
	}, nil
}

// run decomposes the tensor a number of times, and calls take with the results of each input.
func (d *decomposer) run(times int, take func(*decomp.Result)) error {
	for range times {
		if err := d.batch.Reset(d.tensor); err != nil {
			return err
		}
		for i := range d.tensor.Inputs {
			if err := d.batch.Result(i, d.result); err != nil {
				return err
			}
			if take != nil {
				take(d.result)
			}
		}
	}
	return nil
}

func (d *decomposer) turn() func() (float64, error) {
	return timed(d.shape, func(times int) error { return d.run(times, nil) })
}

// results returns the results by name, over all inputs.
func (d *decomposer) results() (map[string][]float64, error) {
	all := map[string][]float64{}
	err := d.run(1, func(r *decomp.Result) {
		for name, values := range map[string][]float64{
			"mean": r.Mean, "variance": r.Variance, "third": r.ThirdMoment, "c": r.C, "skewness": r.Skewness, "m": r.M,
			"entropy": {r.Entropy}, "mi": {r.MI}, "cbec": {r.Scores[decomp.CBEC]},
		} {
			all[name] = append(all[name], values...)
		}
	})
	return all, err
}

// contender computes the columns of a shape.
type contender struct {
	name    string
	run     func(times int) error
	results func() map[string][]float64 // by name, as decomposer.results has them
}

// bareKernel returns ckd's kernel by itself: it checks the rows and sums up their moments, without
// the scores that decomp makes of them.
func bareKernel(s shape, values []float32) contender {
	width := s.inputs * s.classes
	c := kernel.NewColumns(width)
	run := func(times int) error {
		for range times {
			if !kernel.Plain(values, s.classes, decomp.DefaultSumTolerance) {
				return errors.New("the kernel finds a row that is not surely good, expected none")
			}
			kernel.Moments(c, values, s.passes, width, width, float64(s.passes-1))
		}
		return nil
	}
	return contender{"the kernel", run, func() map[string][]float64 {
		return s.named(c.Mean, c.Variance, c.ThirdMoment, c.C, c.Skewness, c.M, c.MeanLogMean)
	}}
}

// kernelInC returns the kernel in C with the instructions of ckd's own.
func kernelInC(s shape, values []float32) contender {
	width := s.inputs * s.classes
	c := ckernel.NewColumns(width)
	run := func(times int) error {
		ckernel.Run(kernel.Name(), values, s.passes, width, c, times)
		return nil
	}
	return contender{"C", run, func() map[string][]float64 {
		return s.named(c.Mean, c.Variance, c.ThirdMoment, c.C, c.Skewness, c.M, c.PLogP)
	}}
}

// named returns columns by name, as decomposer.results does.
func (s shape) named(mean, variance, third, c, skewness, m, meanLogMean []float64) map[string][]float64 {
	entropy := make([]float64, s.inputs)
	for i, x := range meanLogMean {
		entropy[i/s.classes] -= x
	}
	return map[string][]float64{
		"mean": mean, "variance": variance, "third": third, "c": c, "skewness": skewness, "m": m, "entropy": entropy,
	}
}

// agree returns an error if results differ from ours.
func agree(who string, results, ours map[string][]float64) error {
	for name, values := range results {
		want := ours[name]
		if len(values) != len(want) {
			return fmt.Errorf("%s has %d values of %s, ckd has %d", who, len(values), name, len(want))
		}
		for i := range values {
			if !(math.Abs(values[i]-want[i]) <= tolerance*max(math.Abs(want[i]), 1e-3)) {
				return fmt.Errorf("%s says %v of %s[%d], ckd says %v", who, values[i], name, i, want[i])
			}
		}
	}
	return nil
}

// timed returns a function that repeats some work on a shape for about kernelTurn, and returns its
// time in ns per pass x class.
func timed(s shape, work func(times int) error) func() (float64, error) {
	return func() (float64, error) {
		// Half of the time goes by untimed: what ran before leaves its data in the caches, and vector
		// registers switched on or off.
		begun, times := time.Now(), 1
		for ; time.Since(begun) < kernelTurn/2; times *= 2 {
			if err := work(times); err != nil {
				return 0, err
			}
		}
		begun = time.Now()
		if err := work(times); err != nil {
			return 0, err
		}
		return float64(time.Since(begun).Nanoseconds()) / float64(times) / float64(s.count()), nil
	}
}

// progress prints what is being measured.
func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "speed: "+format+"\n", arguments...)
}
