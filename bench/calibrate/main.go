// Command calibrate measures what calibration is worth, on recordings and against the truth:
//
//	go run ./bench/calibrate -recordings internal/recordings
//	go run ./bench/calibrate -recordings internal/recordings -certificates
//
// Both go through every recording of a folder that has critical classes. The first prints the
// critical miss rate on the other half of what calibration chose on one half, over random halves:
// beside the naive pick, which is the one of the paper's scores with the fewest misses on the first
// half, and beside the best score with hindsight, by its mean on the other halves.
//
// The second makes certificates of Learn-then-Test on draws with replacement, with the whole
// recording as the truth: how many are violated, and what coverage they certify on average (0 where
// nothing certifies), where inputs are independent and where they come in groups of five.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

func main() {
	folder := flag.String("recordings", "internal/recordings", "folder of recordings")
	only := flag.String("only", "", "of the folder, the recordings whose name contains this")
	seed := flag.Uint64("seed", 1, "seed of halves and draws")
	halves := flag.Int("halves", 40, "random halves")
	certificates := flag.Bool("certificates", false, "print how often certificates are violated instead")
	drawn := flag.String("drawn", "", "of the columns of certificates, those whose name contains this")
	draws := flag.Int("draws", 200, "draws with replacement for certificates")
	confidence := flag.Float64("confidence", 0.9, "confidence of the certificates")
	flag.Parse()
	var err error
	if *certificates {
		err = violations(*folder, *only, *drawn, *draws, *confidence, *seed)
	} else {
		err = misses(*folder, *only, *halves, *seed, calibrate.Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// each calls do with every recording of a folder that has critical classes and whose name contains
// only.
func each(folder, only string, do func(name string, b *bench) error) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.Contains(name, only) {
			continue
		}
		about, err := readAbout(name)
		if err != nil {
			return err
		}
		if len(about.Critical) == 0 {
			continue
		}
		base := strings.TrimSuffix(name, ".json")
		b, err := load(base+".passes.npy", base+".labels.npy", about.critical())
		if err != nil {
			return err
		}
		if err := do(filepath.Base(base), b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// bench holds a recording with its labels and the policy to complete.
type bench struct {
	recording eval.Recording
	base      *policy.Policy
	table     *eval.Table
}

func load(passesFile, labelsFile, critical string) (*bench, error) {
	passes, err := record.ReadPasses(passesFile, record.Options{})
	if err != nil {
		return nil, err
	}
	labels, err := record.ReadLabels(labelsFile)
	if err != nil {
		return nil, err
	}
	b := &bench{recording: eval.Recording{Name: passesFile, Classes: passes.K, Labels: labels, Passes: decomp.Tensor{
		Passes: passes.S, Inputs: passes.N, Float32: passes.Float32, Float64: passes.Float64,
	}}}
	if err := b.recording.CheckLabels(); err != nil {
		return nil, fmt.Errorf("%s: %w", labelsFile, err)
	}
	d := policy.Draft{
		Name: "bench", Critical: strings.Split(critical, ","), Saturated: policy.HandleByScore, FewestPasses: 2, Gate: policy.Never,
	}
	for k := range passes.K {
		d.Classes = append(d.Classes, strconv.Itoa(k))
	}
	if b.base, err = policy.Build(d); err != nil {
		return nil, err
	}
	b.table, err = eval.NewTable(context.Background(), b.recording, engine.Spec(b.base), nil)
	return b, err
}

// take returns some inputs of the table, in any order and with repetitions.
func (b *bench) take(inputs []int) (*eval.Table, []int) {
	labels := make([]int, len(inputs))
	for j, i := range inputs {
		labels[j] = b.recording.Labels[i]
	}
	return b.table.Select(inputs), labels
}

// apply decides on some inputs, with the code that decides online.
func (b *bench) apply(p *policy.Policy, inputs []int) (eval.Selective, error) {
	decisions, err := eval.Decide(context.Background(), b.recording, p, nil)
	if err != nil {
		return eval.Selective{}, err
	}
	t, labels := b.take(inputs)
	retained := make([]bool, len(inputs))
	for j, i := range inputs {
		retained[j] = decisions[i].Action == policy.Retain
	}
	return eval.Select(labels, t.Predicted, retained, t.Spec.Critical), nil
}

// single thresholds a score at a quantile of the first inputs, and measures on the second.
func (b *bench) single(score decomp.Score, scope policy.Scope, coverage float64, first, second []int) eval.Selective {
	t, _ := b.take(first)
	critical := b.table.Spec.Critical
	var values []float64
	kept := 0
	for i, v := range t.Scores[score] {
		if scope == policy.PredictedSafe && slices.Contains(critical, t.Predicted[i]) {
			kept++
			continue
		}
		values = append(values, v)
	}
	share := max(0.001, (coverage*float64(len(first))-float64(kept))/float64(len(values)))
	threshold := eval.Threshold(values, share)
	t, labels := b.take(second)
	retained := make([]bool, len(second))
	for i, v := range t.Scores[score] {
		retained[i] = v <= threshold || scope == policy.PredictedSafe && slices.Contains(critical, t.Predicted[i])
	}
	return eval.Select(labels, t.Predicted, retained, critical)
}

func inParallel(n int, each func(int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error { return each(i) })
	}
	return group.Wait()
}
