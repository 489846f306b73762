package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/bench/internal/labelled"
	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// drawing says how to draw recordings whose inputs come in groups. The first input of a group is
// drawn at random from the whole recording. Each further one repeats the first with probability
// alike, and is drawn at random otherwise. So every single input is uniform over the whole recording,
// and the shares on the whole recording are the true ones.
type drawing struct {
	name   string
	scope  policy.Scope
	size   int // of a group
	alike  float64
	groups bool // tells calibration of the groups
	// wrong is the share of labels that are another class at random, hidden that of the misses that are
	// labelled as they are called: safe.
	wrong, hidden float64
}

var drawings = []drawing{
	{name: "independent, scope all", scope: policy.AllInputs, size: 1},
	{name: "independent", scope: policy.PredictedSafe, size: 1},
	{name: "fives alike, `--groups`", scope: policy.PredictedSafe, size: 5, alike: 1, groups: true},
	{name: "fives half alike, `--groups`", scope: policy.PredictedSafe, size: 5, alike: 0.5, groups: true},
	{name: "fives alike, untold", scope: policy.PredictedSafe, size: 5, alike: 1},
	{name: "fives half alike, untold", scope: policy.PredictedSafe, size: 5, alike: 0.5},
	{name: "labels: 2% wrong", scope: policy.PredictedSafe, size: 1, wrong: 0.02},
	{name: "labels: 20% of misses safe", scope: policy.PredictedSafe, size: 1, hidden: 0.2},
}

// confidence is the level that all certificates ask for.
const confidence = 0.9

// violations prints, for some recordings, some bounds, and the drawings whose names contain drawn,
// how often certificates are violated: on draws of as many inputs as the recording has, a certificate
// counts as violated if its bound is exceeded on the whole recording.
func violations(only, drawn string, n int) error {
	const may = 1 - confidence
	chosen := slices.DeleteFunc(slices.Clone(drawings), func(d drawing) bool { return !strings.Contains(d.name, drawn) })
	fmt.Printf("Share of %d draws whose certificate at confidence %v is violated, and in brackets the mean certified coverage; "+
		"%.3f is two standard errors above the %.2f allowed.\n\n", n, confidence, may+2*math.Sqrt(may*confidence/float64(n)), may)
	fmt.Print("| recording | bound |")
	for _, d := range chosen {
		fmt.Printf(" %s |", d.name)
	}
	fmt.Printf("\n|---|---|%s\n", strings.Repeat("---|", len(chosen)))
	return labelled.Each(only, func(r *labelled.Recording) error {
		for _, o := range bounds(r) {
			words, _, _ := strings.Cut(o.String(), " at confidence")
			fmt.Printf("| %s | %s |", r.Name, words)
			for _, d := range chosen {
				violated, covered, err := violated(r, n, o, d)
				if err != nil {
					return err
				}
				fmt.Printf(" %.3f (%.2f) |", violated, covered)
			}
			fmt.Println()
		}
		return nil
	})
}

// bounds returns what is to be certified: half of the misses without deferral, of all critical
// inputs, and of the retained ones.
func bounds(r *labelled.Recording) (objectives []calibrate.Objective) {
	missed, cases := 0, 0
	for i, label := range r.Labels {
		cases += index(r.IsCritical(label))
		missed += index(r.IsCritical(label) && !r.IsCritical(r.Table.Predicted[i]))
	}
	half := math.Round(50*float64(missed)/float64(cases)) / 100
	for _, figure := range []policy.Figure{policy.CriticalMissRate, policy.CriticalFNR} {
		objectives = append(objectives, calibrate.Objective{Limits: []calibrate.Limit{{Bounds: figure, Most: half}}, Confidence: confidence})
	}
	return objectives
}

// violated returns the share of n draws whose certificate is violated, and the mean coverage
// certified, 0 where nothing certifies.
func violated(r *labelled.Recording, n int, o calibrate.Objective, d drawing) (violated, covered float64, err error) {
	exceeded, coverage := make([]bool, n), make([]float64, n)
	err = inParallel(n, func(i int) error {
		rng := rand.New(rand.NewPCG(seed, uint64(5000+i)))
		drawn, groups := d.draw(r.Table.Inputs, rng)
		if !d.groups {
			groups = nil
		}
		t, labels := r.Take(drawn)
		d.mislabel(t, labels, rng)
		found, err := calibrate.Choose(context.Background(), t, labels, calibrate.Options{
			Base: r.Base, Objective: o, Scope: d.scope, Seed: uint64(i), Groups: groups, Force: true,
		})
		if err != nil || found.Policy == nil {
			return err
		}
		decisions, err := eval.Decide(context.Background(), r.Recording, found.Policy, nil)
		if err != nil {
			return err
		}
		for _, decision := range decisions {
			coverage[i] += float64(index(decision.Action == policy.Retain)) / float64(len(decisions))
		}
		exceeded[i] = exceeds(r, found.Policy, decisions)
		return nil
	})
	for i := range n {
		violated += float64(index(exceeded[i])) / float64(n)
		covered += coverage[i] / float64(n)
	}
	return violated, covered, err
}

// draw returns as many inputs as the recording has, with replacement, and their groups.
func (d drawing) draw(inputs int, rng *rand.Rand) (drawn, groups []int) {
	for len(drawn) < inputs {
		first := rng.IntN(inputs)
		for member := range d.size {
			i := first
			if member > 0 && rng.Float64() >= d.alike {
				i = rng.IntN(inputs)
			}
			drawn = append(drawn, i)
			groups = append(groups, len(groups)/d.size)
		}
	}
	return drawn, groups
}

// mislabel replaces labels as the drawing says. The whole recording keeps the right ones.
func (d drawing) mislabel(t *eval.Table, labels []int, rng *rand.Rand) {
	critical := func(k int) bool { return slices.Contains(t.Spec.Critical, k) }
	for i, label := range labels {
		switch missed := critical(label) && !critical(t.Predicted[i]); {
		case d.wrong > 0 && rng.Float64() < d.wrong:
			labels[i] = (label + 1 + rng.IntN(t.K-1)) % t.K
		case missed && rng.Float64() < d.hidden:
			labels[i] = t.Predicted[i]
		}
	}
}

// exceeds reports whether the bound of a policy's certificate is exceeded on the whole recording.
func exceeds(r *labelled.Recording, p *policy.Policy, decisions []policy.Decision) bool {
	c, misses, cases := p.Calibration.Certificate, 0, 0
	for i, label := range r.Labels {
		retained := decisions[i].Action == policy.Retain
		if r.IsCritical(label) && (retained || c.Bounds == policy.CriticalMissRate) {
			cases++
			misses += index(retained && !r.IsCritical(r.Table.Predicted[i]))
		}
	}
	return float64(misses) > c.Target*float64(cases)
}
