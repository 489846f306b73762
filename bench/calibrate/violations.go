package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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
	size   int // of a group
	alike  float64
	groups bool // tells calibration of the groups
}

var drawings = []drawing{
	{"independent", 1, 0, false},
	{"fives all alike, no --groups", 5, 1, false},
	{"fives all alike, --groups", 5, 1, true},
	{"fives half alike, no --groups", 5, 0.5, false},
	{"fives half alike, --groups", 5, 0.5, true},
}

// violations prints how often certificates are violated: on draws of so many inputs, a certificate
// counts as violated if any of its bounds is exceeded on the whole recording.
func (b *bench) violations(n, inputs int, confidence float64, seed uint64) error {
	class := b.base.Classes[b.base.Critical[len(b.base.Critical)-1]]
	for _, o := range []calibrate.Objective{
		{MaxCriticalMiss: 0.1},
		{MaxCriticalFNR: 0.15},
		{MaxCriticalMiss: 0.1, ClassLimits: []calibrate.ClassLimit{{Class: class, Bounds: policy.CriticalMissRate, Most: 0.1}}},
	} {
		o.Confidence = confidence
		for _, d := range drawings {
			type outcome struct {
				certified, violated bool
				coverage            float64
			}
			found := make([]outcome, n)
			err := inParallel(n, func(i int) error {
				drawn, groups := d.draw(b.table.Inputs, inputs, rand.New(rand.NewPCG(seed, uint64(5000+i))))
				if !d.groups {
					groups = nil
				}
				t, labels := b.take(drawn)
				r, err := calibrate.Choose(context.Background(), t, labels, calibrate.Options{
					Base: b.base, Objective: o, Scope: policy.PredictedSafe, Seed: uint64(i), Groups: groups,
				})
				if err != nil || r.Policy == nil {
					return err
				}
				decisions, err := eval.Decide(context.Background(), b.recording, r.Policy, nil)
				if err != nil {
					return err
				}
				retained := 0
				for _, decision := range decisions {
					if decision.Action == policy.Retain {
						retained++
					}
				}
				found[i] = outcome{true, b.exceeds(r.Policy, decisions), float64(retained) / float64(len(decisions))}
				return nil
			})
			if err != nil {
				return err
			}
			certified, violated, covered := 0, 0, 0.0
			for _, f := range found {
				covered += f.coverage / float64(n)
				if f.certified {
					certified++
				}
				if f.violated {
					violated++
				}
			}
			may := 1 - confidence
			fmt.Printf("%-70s %-30s certified %.3f  violated %.3f (at most %.3f)  mean coverage %.3f\n", o, d.name,
				float64(certified)/float64(n), float64(violated)/float64(n), may+2*math.Sqrt(may*confidence/float64(n)), covered)
		}
	}
	return nil
}

// draw returns inputs of a recording of so many, with replacement, and their groups.
func (d drawing) draw(of, inputs int, rng *rand.Rand) (drawn, groups []int) {
	for len(drawn) < inputs {
		first := rng.IntN(of)
		for member := range d.size {
			i := first
			if member > 0 && rng.Float64() >= d.alike {
				i = rng.IntN(of)
			}
			drawn = append(drawn, i)
			groups = append(groups, len(groups)/d.size)
		}
	}
	return drawn, groups
}

// exceeds reports whether a bound of a policy's certificate is exceeded on the whole recording.
func (b *bench) exceeds(p *policy.Policy, decisions []policy.Decision) bool {
	for _, l := range p.Calibration.Certificate.Limits() {
		misses, cases := 0, 0
		for i, label := range b.recording.Labels {
			retained := decisions[i].Action == policy.Retain
			if !slices.Contains(p.Critical, label) || l.Class != "" && p.Classes[label] != l.Class ||
				l.Bounds == policy.CriticalFNR && !retained {
				continue
			}
			cases++
			if retained && !slices.Contains(p.Critical, b.table.Predicted[i]) {
				misses++
			}
		}
		if float64(misses) > l.Target*float64(cases) {
			return true
		}
	}
	return false
}
