// Command settle prints what early stopping saves on held-out halves of the project's recordings:
// as means over random halves, with intervals of the mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

var (
	folder   = flag.String("recordings", "internal/recordings", "folder of the recordings")
	splits   = flag.Int("splits", 20, "random halves")
	coverage = flag.Float64("coverage", 0.8, "share of the inputs retained")
	certify  = flag.Float64("certify", 0.01, "certify so many disagreements at most, at 90%; 0 for no certificate")
	names    = flag.String("only", "", "only tasks whose name has one of these, by commas")
	labels   = flag.Bool("labels", false, "print what becomes of critical inputs too")
)

type task struct {
	name, recording string
	gate            policy.Gate
	scope           policy.Scope
	critical        []int
}

func tasks() []task {
	ctg := []int{1, 2}
	return []task{
		{"lowrank c_crit_max", "ctg-lowrank", policy.Never, policy.AllInputs, ctg},
		{"lowrank cbec", "ctg-lowrank", policy.Always, policy.AllInputs, ctg},
		{"mcdropout c_crit_max", "ctg-mcdropout", policy.Never, policy.AllInputs, ctg},
		{"mcdropout cbec", "ctg-mcdropout", policy.Always, policy.AllInputs, ctg},
		{"lowrank any-critical", "ctg-lowrank", policy.AnyCritical, policy.AllInputs, ctg},
		{"mcdropout any-critical", "ctg-mcdropout", policy.AnyCritical, policy.AllInputs, ctg},
		{"lowrank c_crit_max safe", "ctg-lowrank", policy.Never, policy.PredictedSafe, ctg},
		{"mcdropout cbec safe", "ctg-mcdropout", policy.Always, policy.PredictedSafe, ctg},
		{"digits-id c_crit_max", "digits-id", policy.Never, policy.AllInputs, []int{3, 5}},
		{"digits-id cbec", "digits-id", policy.Always, policy.AllInputs, []int{3, 5}},
		{"digits-noise-30 c_crit_max", "digits-noise-30", policy.Never, policy.AllInputs, []int{3, 8}},
		{"digits-noise-30 cbec", "digits-noise-30", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-noise-00 cbec", "digits-noise-00", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-noise-50 cbec", "digits-noise-50", policy.Always, policy.AllInputs, []int{3, 8}},
		{"digits-ood cbec", "digits-ood", policy.Always, policy.AllInputs, []int{3, 5}},
		{"ensemble c_crit_max", "ctg-ensemble", policy.Never, policy.AllInputs, ctg},
	}
}

func main() {
	flag.Parse()
	for _, t := range tasks() {
		if *names != "" && !slices.ContainsFunc(strings.Split(*names, ","), func(s string) bool { return strings.Contains(t.name, s) }) {
			continue
		}
		if err := run(t); err != nil {
			fmt.Fprintln(os.Stderr, t.name+":", err)
			os.Exit(1)
		}
	}
}

// run prints one line for a task.
func run(t task) error {
	r, err := read(t.recording)
	if err != nil {
		return err
	}
	p, err := withThresholds(t, r)
	if err != nil {
		return err
	}
	began := time.Now()
	columns := map[string][]float64{}
	add := func(name string, v float64) { columns[name] = append(columns[name], v) }
	ordered := strings.Contains(t.recording, "ensemble")
	refused := 0
	for seed := range uint64(*splits) {
		f, err := calibrate.DrawFrontier(context.Background(), r, p, calibrate.FrontierOptions{Ordered: ordered, Seed: seed})
		if err != nil {
			return err
		}
		for _, m := range f.Methods {
			for _, at := range m.At {
				add(fmt.Sprintf("%s at %v%%", m.Name, at.Disagreement*100), at.Saving)
			}
		}
		add("halves differ %", 100*f.Summary.HalvesDiffer)
		if *certify == 0 {
			continue
		}
		found, err := calibrate.Run(context.Background(), r, calibrate.Options{
			Base: p, Seed: seed, EarlyStop: &calibrate.EarlyStopOptions{Disagreement: *certify, Confidence: 0.9, Ordered: ordered},
		})
		if err != nil {
			return err
		}
		if found.Refused() {
			if refused++; refused == 1 {
				fmt.Println("  refused:", found.EarlyStop.Refusal.Reason)
			}
			continue
		}
		rule := found.EarlyStop.Rule
		add("certified", rule.Saving)
		add("disagree %", 100*float64(rule.Disagreements.Count)/float64(rule.Disagreements.Inputs))
		add("released", float64(rule.Released.Count))
		if *labels && rule.CriticalFNR != nil {
			add("critical fnr", rule.CriticalFNR.Share)
			add("of all passes", rule.FullCriticalFNR.Share)
		}
	}
	fmt.Printf("%-27s", t.name)
	for _, name := range []string{
		"learned at 1%", "learned at 0.5%", "score_only at 1%", "score_only at 0.5%", "fewer_passes at 1%", "certified", "disagree %",
		"released", "critical fnr", "of all passes", "halves differ %",
	} {
		if v := columns[name]; len(v) > 0 {
			fmt.Printf(" | %s %.3g±%.1g", name, mean(v), 1.96*spread(v)/math.Sqrt(float64(len(v))))
		}
	}
	fmt.Printf(" | refused %d of %d | %.1fs\n", refused, *splits, time.Since(began).Seconds())
	return nil
}

// read reads a recording, and its labels where it has any.
func read(name string) (eval.Recording, error) {
	p, err := record.ReadPasses(filepath.Join(*folder, name+".passes.npy"), record.Options{})
	if err != nil {
		return eval.Recording{}, err
	}
	r := eval.Recording{Name: name, Classes: p.K, Passes: decomp.Tensor{Passes: p.S, Inputs: p.N, Float32: p.Float32}}
	file := filepath.Join(*folder, name+".labels.npy")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	r.Labels, err = record.ReadLabels(file)
	return r, err
}

// withThresholds returns a policy for a task that retains the share of the inputs, by each score.
func withThresholds(t task, r eval.Recording) (*policy.Policy, error) {
	d := policy.Draft{Name: "bench", ExpectedPasses: r.Passes.Passes, Gate: t.gate, Scope: t.scope}
	for k := range r.Classes {
		d.Classes = append(d.Classes, strconv.Itoa(k))
	}
	for _, k := range t.critical {
		d.Critical = append(d.Critical, strconv.Itoa(k))
	}
	observing, err := policy.Build(d)
	if err != nil {
		return nil, err
	}
	table, err := eval.NewTable(context.Background(), r, engine.Spec(observing), nil)
	if err != nil {
		return nil, err
	}
	deferred := int((1 - *coverage) * float64(table.Inputs))
	threshold := func(score decomp.Score) float64 {
		var values []float64
		for i, v := range table.Scores[score] {
			if t.scope != policy.PredictedSafe || !slices.Contains(t.critical, table.Predicted[i]) {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		at := len(values) - deferred
		return (values[at-1] + values[at]) / 2
	}
	d.Primary.Threshold, d.Fallback.Threshold = threshold(decomp.CCritMax), threshold(decomp.CBEC)
	return policy.Build(d)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func spread(v []float64) float64 {
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / max(1, float64(len(v)-1)))
}
