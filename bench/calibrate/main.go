// Command calibrate measures what calibration is worth, on recordings and against the truth:
//
//	go run ./bench/calibrate -recordings internal/recordings
//	go run ./bench/calibrate -passes P.npy -labels Y.npy -critical 1,2
//	go run ./bench/calibrate -passes P.npy -labels Y.npy -critical 1,2 -violations 1000
//
// The first prints, for every recording of a folder that has critical classes, the critical miss
// rate on the other half of what calibration chose on one half, over random halves: beside the naive
// pick, which is the one of the paper's scores with the fewest misses on the first half, and beside
// the best score with hindsight, by its mean on the other halves.
//
// The second has certificates of Learn-then-Test on draws with replacement, with the whole recording
// as the truth: how many are violated, and what coverage they certify on average (0 where nothing
// certifies). The third says how often certificates of 1000 inputs are violated, where inputs are
// independent and where they come in groups of five.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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
	passes := flag.String("passes", "", "recorded passes, .npy")
	labels := flag.String("labels", "", "labels, .npy")
	critical := flag.String("critical", "", "critical classes, by number")
	halves := flag.Int("halves", 40, "random halves")
	draws := flag.Int("draws", 200, "draws with replacement")
	confidence := flag.Float64("confidence", 0.9, "confidence of the certificates")
	seed := flag.Uint64("seed", 1, "seed of halves and draws")
	violations := flag.Int("violations", 0, "inputs of each draw: only the table of violations, with and without groups of five")
	folder := flag.String("recordings", "", "folder of recordings: print the critical miss rates of all instead")
	only := flag.String("only", "", "of the folder, the recordings whose name contains this")
	flag.Parse()
	if *folder != "" {
		if err := misses(*folder, *only, *halves, *seed, calibrate.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	b, err := load(*passes, *labels, *critical)
	if err == nil && *violations > 0 {
		if err = b.violations(*draws, *violations, *confidence, *seed); err == nil {
			return
		}
	}
	if err == nil {
		err = b.certificates(*draws, *confidence, *seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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

// certificates prints a table of certificates.
func (b *bench) certificates(n int, confidence float64, seed uint64) error {
	for _, c := range []struct {
		scope   policy.Scope
		targets []float64
	}{{policy.AllInputs, []float64{0.10, 0.15}}, {policy.PredictedSafe, []float64{0.05, 0.10, 0.15}}} {
		for _, target := range c.targets {
			found := make([]*eval.Selective, n)
			err := inParallel(n, func(d int) error {
				rng := rand.New(rand.NewPCG(seed, uint64(1000+d)))
				drawn := make([]int, b.table.Inputs)
				for i := range drawn {
					drawn[i] = rng.IntN(b.table.Inputs)
				}
				t, labels := b.take(drawn)
				r, err := calibrate.Choose(context.Background(), t, labels, calibrate.Options{
					Base: b.base, Objective: calibrate.Objective{MaxCriticalFNR: target, Confidence: confidence},
					Scope: c.scope, Seed: uint64(d),
				})
				if err != nil {
					return err
				}
				if r.Policy != nil {
					all := make([]int, b.table.Inputs)
					for i := range all {
						all[i] = i
					}
					s, err := b.apply(r.Policy, all)
					if err != nil {
						return err
					}
					found[d] = &s
				}
				return nil
			})
			if err != nil {
				return err
			}
			certified, violated, covered := 0, 0, 0.0
			for _, s := range found {
				if s != nil {
					certified++
					covered += s.Coverage() / float64(n)
					if s.CriticalFNR() > target {
						violated++
					}
				}
			}
			fmt.Printf("%d draws, confidence %v, critical FNR <= %.2f, scope %-14s  certified %.3f  violated %.3f  mean coverage %.3f\n",
				n, confidence, target, c.scope, float64(certified)/float64(n), float64(violated)/float64(n), covered)
		}
	}
	return nil
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
