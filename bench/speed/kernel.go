package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/ckd-project/ckd/bench/speed/ckernel"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/kernel"
)

// tolerance is the largest relative difference between the results of two kernels, which must agree
// before they are timed. Values below 1e-3 count as 1e-3.
const tolerance = 1e-9

// kernelTurn is about how long one kernel runs before the next has its turn.
const kernelTurn = 2 * time.Millisecond

// What kernel.Name calls the versions of ckd's kernel.
const (
	versionAVX2   = "avx2"
	versionScalar = "scalar"
)

// kernelOptions holds what a process that times kernels needs.
type kernelOptions struct {
	// Path chooses the C kernels. Empty for none.
	Path ckernel.Path
	// Version of ckd's own kernel that the process's environment is to bring about, by kernel.Name; or
	// empty for any.
	Version string
	Rounds  int
	Python  string // or empty
	Folder  string
	Shapes  []string // or all
}

// kernelRow holds the figures of one shape.
type kernelRow struct {
	Shape string
	// Version of ckd's kernel, by kernel.Name.
	Version string
	// Medians in ns per pass x class; 0 where nothing was measured.
	Kernel, CKD, C float64
	// BestC names the C kernel that was fastest on this shape, with which ckd is compared.
	BestC string
	// Ratios are medians over the rounds: of ckd's kernel alone, with its checks, and of whole
	// results.
	KernelOverC, KernelSame               float64
	OverC, TunedOver, IdiomaticOver, Same float64
	// SetsOver is the time with critical and safe sets, and so with the pairs of CBEC, over the
	// time without.
	SetsOver float64
}

// measureAll times the kernels on all shapes. It runs in a process of its own, whose GODEBUG
// chooses ckd's path.
func (o kernelOptions) measureAll(ctx context.Context) ([]kernelRow, error) {
	if name := kernel.Name(); o.Version != "" && name != o.Version {
		return nil, fmt.Errorf("ckd's kernel is %s with GODEBUG=%s, expected %s", name, os.Getenv("GODEBUG"), o.Version)
	}
	var rows []kernelRow
	for _, s := range shapes {
		if len(o.Shapes) > 0 && !slices.Contains(o.Shapes, s.String()) {
			continue
		}
		progress("kernel: %s, %s", kernel.Name(), s)
		row, err := o.measure(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure times all kernels on one shape.
func (o kernelOptions) measure(ctx context.Context, s shape) (kernelRow, error) {
	row := kernelRow{Shape: s.String(), Version: kernel.Name()}
	values := s.values(1)
	critical, safe := s.sets()
	plain, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Lean: true})
	if err != nil {
		return row, err
	}
	again, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Lean: true})
	if err != nil {
		return row, err
	}
	sets, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Critical: critical, Safe: safe, Lean: true})
	if err != nil {
		return row, err
	}
	ours, err := sets.results()
	if err != nil {
		return row, err
	}
	contenders := append([]contender{bareKernel(s, values), bareKernel(s, values)}, opponents(o.Path, s, values)...)
	turns := []func() (float64, error){plain.turn(), again.turn(), sets.turn()}
	own := len(turns)
	for _, c := range contenders {
		if err := c.run(1); err != nil {
			return row, err
		}
		if err := agree(c.name, c.results(), ours); err != nil {
			return row, err
		}
		turns = append(turns, timed(s, c.run))
	}
	times, err := rounds(ctx, o.Rounds, turns...)
	if err != nil {
		return row, err
	}
	whole, bare, inC := times[0], times[own], times[own+2:]
	row.CKD, row.Same, row.SetsOver = median(whole), ratio(whole, times[1]), ratio(times[2], whole)
	row.Kernel, row.KernelSame = median(bare), ratio(bare, times[own+1])
	if best := fastest(inC); best >= 0 {
		row.C, row.KernelOverC, row.OverC = median(inC[best]), ratio(bare, inC[best]), ratio(whole, inC[best])
		row.BestC = contenders[2+best].name
	}
	return row, o.measureNumpy(ctx, s, values, ours, plain.turn(), sets.turn(), &row)
}

// measureNumpy times numpy beside ckd: the tuned form beside ckd without sets, the other beside ckd
// with them.
func (o kernelOptions) measureNumpy(ctx context.Context, s shape, values []float32, ours map[string][]float64,
	plain, sets func() (float64, error), row *kernelRow,
) error {
	if o.Python == "" {
		return nil
	}
	n, err := startNumpy(ctx, o.Python, o.Folder, s, values)
	if err != nil {
		return err
	}
	defer n.stop()
	for form, results := range n.results {
		if err := agree("numpy, "+form, results, ours); err != nil {
			return err
		}
	}
	const seconds = 0.005
	times, err := rounds(ctx, max(3, o.Rounds/10), plain, sets,
		func() (float64, error) { return n.run("tuned", seconds) },
		func() (float64, error) { return n.run("idiomatic", seconds) })
	if err != nil {
		return err
	}
	row.TunedOver = ratio(times[2], times[0])
	row.IdiomaticOver = ratio(times[3], times[1])
	return nil
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
		for name, of := range map[string][]float64{
			"mean": r.Mean, "variance": r.Variance, "third": r.ThirdMoment, "c": r.C, "skewness": r.Skewness, "m": r.M,
			"entropy": {r.Entropy}, "mi": {r.MI}, "cbec": {r.Scores[decomp.CBEC]},
		} {
			all[name] = append(all[name], of...)
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

// opponents returns the C kernels to compare a path with. A machine with AVX-512 may use those of
// AVX2 too.
func opponents(path ckernel.Path, s shape, values []float32) (all []contender) {
	width := s.inputs * s.classes
	panel := ckernel.Panel{Values: values, Passes: s.passes, Width: width, Stride: width}
	for _, k := range ckernel.Kernels() {
		if path == "" || k.Path != path && k.Path != ckernel.AVX2 {
			continue
		}
		c := ckernel.NewColumns(width)
		run := func(times int) error {
			k.Run(panel, c, times)
			return nil
		}
		all = append(all, contender{fmt.Sprintf("%s, %s", k.Path, k.Name), run, func() map[string][]float64 {
			return s.named(c.Mean, c.Variance, c.ThirdMoment, c.C, c.Skewness, c.M, c.PLogP)
		}})
	}
	return all
}

// fastest returns the index of the lowest median, or -1 for no times.
func fastest(times [][]float64) int {
	best := -1
	for i := range times {
		if best < 0 || median(times[i]) < median(times[best]) {
			best = i
		}
	}
	return best
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
	for name, of := range results {
		want := ours[name]
		if len(of) != len(want) {
			return fmt.Errorf("%s has %d values of %s, ckd has %d", who, len(of), name, len(want))
		}
		for i := range of {
			if !(math.Abs(of[i]-want[i]) <= tolerance*max(math.Abs(want[i]), 1e-3)) {
				return fmt.Errorf("%s says %v of %s[%d], ckd says %v", who, of[i], name, i, want[i])
			}
		}
	}
	return nil
}

// timed returns a function that repeats some work on a shape for about kernelTurn, and returns its
// time in ns per pass x class. Its first call finds out how many repetitions that takes.
func timed(s shape, work func(times int) error) func() (float64, error) {
	times := 0
	return func() (float64, error) {
		for times == 0 { // the first time: find out how often
			begun := time.Now()
			for n := 1; ; n *= 2 {
				if err := work(n); err != nil {
					return 0, err
				}
				if passed := time.Since(begun); passed > kernelTurn {
					times = max(1, int(float64(2*n-1)*float64(kernelTurn)/float64(passed)))
					break
				}
			}
		}
		// Warm up without timing: what ran before leaves its data in the caches, and vector
		// registers switched on or off.
		if err := work(max(1, times/4)); err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := work(times); err != nil {
			return 0, err
		}
		return float64(time.Since(begun).Nanoseconds()) / float64(times) / float64(s.count()), nil
	}
}
