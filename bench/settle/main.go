// Command settle prints what early stopping saves on held-out parts of the project's recordings: as
// means over random parts, with intervals of the mean. Frontiers are learned on one half and drawn
// on the other. Certified rules are learned on 40% of the inputs, certified on 40%, and measured on
// the 20% that did neither.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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
	"github.com/ckd-project/ckd/policy/earlystop"
)

var (
	folder   = flag.String("recordings", "internal/recordings", "folder of the recordings")
	splits   = flag.Int("splits", 20, "random halves")
	frontier = flag.Bool("frontier", true, "draw frontiers too")
	coverage = flag.Float64("coverage", 0.8, "share of the inputs retained")
	certify  = flag.Float64("certify", 0.01, "certify so many disagreements at most, at 90%, and five times as many of the deferred released; "+
		"twice that on recordings of less than 1000 inputs, which are too few for it; 0 for no certificate")
	names  = flag.String("only", "", "only tasks whose name has one of these, by commas")
	labels = flag.Bool("labels", false, "print what becomes of critical inputs too")
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
		{"wine mcdropout cbec", "wine-mcdropout", policy.Always, policy.AllInputs, []int{0, 1}},
		{"wine lowrank c_crit_max", "wine-lowrank", policy.Never, policy.AllInputs, []int{0, 1}},
		{"german c_crit_max", "german-mcdropout", policy.Never, policy.AllInputs, []int{1}},
		{"abalone cbec safe", "abalone-mcdropout", policy.Always, policy.PredictedSafe, []int{15, 16, 17, 18, 19}},
		{"abalone c_crit_max", "abalone-mcdropout", policy.Never, policy.AllInputs, []int{15, 16, 17, 18, 19}},
	}
}

func main() {
	flag.Parse()
	for _, t := range tasks() {
		if *names != "" && !slices.ContainsFunc(strings.Split(*names, ","), func(s string) bool { return strings.Contains(t.name, s) }) {
			continue
		}
		if _, err := os.Stat(filepath.Join(*folder, t.recording+".passes.npy")); errors.Is(err, os.ErrNotExist) {
			fmt.Printf("%-27s not in %s\n", t.name, *folder)
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
	bound := *certify
	if r.Passes.Inputs < 1000 {
		bound *= 2
	}
	for seed := range uint64(*splits) {
		if *frontier {
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
		}
		if bound == 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(seed, 0x5e771e))
		perm := rng.Perm(r.Passes.Inputs)
		third := perm[:len(perm)/5]
		found, err := calibrate.Run(context.Background(), part(r, perm[len(third):]), calibrate.Options{
			Base: p, Seed: seed,
			EarlyStop: &calibrate.EarlyStopOptions{Disagreement: bound, Released: 5 * bound, Confidence: 0.9, Ordered: ordered},
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
		c, err := measure(found.Policy, part(r, third), ordered, rng)
		if err != nil {
			return err
		}
		add("certified", float64(r.Passes.Passes)/c.passes)
		add("disagree %", 100*c.disagree)
		add("released %", 100*c.released)
		add("numbers", float64(numbers(found.Policy.EarlyStop())))
		if *labels && rule.CriticalFNR != nil {
			add("critical fnr", rule.CriticalFNR.Share)
			add("of all passes", rule.FullCriticalFNR.Share)
		}
	}
	fmt.Printf("%-27s", t.name)
	for _, name := range []string{
		"learned at 1%", "learned at 0.5%", "score_only at 1%", "score_only at 0.5%", "fewer_passes at 1%", "numbers", "certified", "disagree %",
		"released %", "critical fnr", "of all passes", "halves differ %",
	} {
		if v := columns[name]; len(v) > 0 {
			fmt.Printf(" | %s %.3g±%.1g", name, mean(v), 1.96*spread(v)/math.Sqrt(float64(len(v))))
		}
	}
	fmt.Printf(" | refused %d of %d | %.1fs\n", refused, *splits, time.Since(began).Seconds())
	return nil
}

// part returns the recording of some inputs.
func part(r eval.Recording, inputs []int) eval.Recording {
	to, k := r, r.Classes
	to.Labels = nil
	to.Passes = decomp.Tensor{Passes: r.Passes.Passes, Inputs: len(inputs)}
	for s := range r.Passes.Passes {
		for _, i := range inputs {
			to.Passes.Float32 = append(to.Passes.Float32, r.Passes.Float32[(s*r.Passes.Inputs+i)*k:][:k]...)
		}
	}
	for _, i := range inputs {
		if r.Labels != nil {
			to.Labels = append(to.Labels, r.Labels[i])
		}
	}
	return to
}

// measured holds what a rule does: the mean number of passes, the share of all inputs decided
// otherwise than by all passes, and the share of the deferred ones that it retains.
type measured struct{ passes, disagree, released float64 }

// measure follows every input through several orders of its passes, or the one order of ordered
// ones, as the daemon does.
func measure(p *policy.Policy, r eval.Recording, ordered bool, rng *rand.Rand) (c measured, err error) {
	in, err := engine.NewFollower(p)
	if err != nil {
		return c, err
	}
	orders := 8
	if ordered {
		orders = 1
	}
	rule, passes, deferred := p.EarlyStop(), r.Passes.Passes, 0.0
	critical := func(class int) bool { return slices.Contains(p.Critical, class) }
	for i := range r.Passes.Inputs * orders {
		in.Reset()
		order := rng.Perm(passes)
		if ordered {
			slices.Sort(order)
		}
		settled, class := policy.Decision{}, -1
		for t, pass := range order {
			if err := in.Add(r.Passes.Float32[(pass*r.Passes.Inputs+i/orders)*r.Classes:][:r.Classes]); err != nil {
				return c, err
			}
			if class < 0 {
				c.passes++
				if t+1 < passes && in.Settled(rule) != earlystop.Open {
					settled, class = in.Decide()
				}
			}
		}
		final, finalClass := in.Decide()
		if class < 0 {
			settled, class = final, finalClass
		}
		if final.Action != settled.Action || final.Action == policy.Retain && critical(class) != critical(finalClass) {
			c.disagree++
		}
		if final.Action == policy.Defer {
			deferred++
			if settled.Action == policy.Retain {
				c.released++
			}
		}
	}
	n := float64(r.Passes.Inputs * orders)
	return measured{c.passes / n, c.disagree / n, c.released / max(deferred, 1)}, nil
}

// numbers returns how many fitted numbers a rule has in a policy.
func numbers(r *earlystop.Rule) (n int) {
	if r.Form != nil {
		return r.Form.Numbers()
	}
	for _, s := range r.Steps {
		for _, side := range []earlystop.Side{s.Retain, s.Defer} {
			if side.AtMost > -earlystop.Never {
				n += 1 + earlystop.Terms
			}
		}
	}
	return n
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
