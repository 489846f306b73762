package calibrate

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
)

// ctg returns a cardiotocography recording: see the README of internal/recordings.
func ctg(t testing.TB, name string) (*eval.Table, []int) {
	t.Helper()
	r := ctgRecording(name)
	spec := decomp.Spec{Classes: 3, Critical: []int{1, 2}, Safe: []int{0}}
	return must(eval.NewTable(t.Context(), r, spec, nil)), r.Labels
}

func ctgRecording(name string) eval.Recording {
	file := filepath.Join("..", "internal", "recordings", "ctg-"+name)
	r := fromFile(must(record.ReadPasses(file+".passes.npy", record.Options{})))
	r.Labels = must(record.ReadLabels(file + ".labels.npy"))
	return r
}

// fromFile returns recorded passes without labels.
func fromFile(p *record.Passes) eval.Recording {
	return eval.Recording{Name: p.Name, Classes: p.K, Passes: decomp.Tensor{
		Passes: p.S, Inputs: p.N, Layout: decomp.Layout(p.Layout), Float32: p.Float32, Float64: p.Float64,
	}}
}

// TestHeldOutHalves calibrates policies for coverage 0.8 on one half of a real recording and decides
// the other, by the code that decides live. It must miss no more than the best of the paper's scores
// on the first half does; where critical calls are acted on, at most half as much, since risk defers
// none.
func TestHeldOutHalves(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const halves, coverage = 6, 0.8
	for _, name := range []string{"lowrank", "mcdropout", "ensemble"} {
		recording := ctgRecording(name)
		table, labels := ctg(t, name)
		for _, c := range []struct {
			scope policy.Scope
			calls eval.CriticalCalls
			most  float64
		}{{policy.AllInputs, "", 1}, {policy.AllInputs, eval.ActedOn, 0.5}, {policy.PredictedSafe, "", 1}} {
			o := options(t, Objective{Coverage: coverage}, c.scope, 0)
			o.CriticalCalls = c.calls
			own, naive, covered := 0, 0, 0.0
			for h := range uint64(halves) {
				order := rand.New(rand.NewPCG(17, h)).Perm(table.Inputs)
				first, firstLabels := take(table, labels, order[:table.Inputs/2])
				o.Seed = h
				// This does what Run does without the expected figures, which take five times as long.
				r := runOf(t, first, firstLabels, o)
				s := must(r.search(r.all(), c.scope))
				found := s.choiceAt(s.best(coverage, r.keepsCalls(c.scope)), coverage).reported(r)
				var pick *choice
				for _, rule := range s.candidates {
					at := s.choiceAt(rule, coverage)
					if rule.gate == policy.Never && rule.primary.InPaper() &&
						(pick == nil || at.selective(s.part).Missed < pick.selective(s.part).Missed) {
						pick = at
					}
				}
				decisions := must(eval.Decide(t.Context(), recording, found.Policy, nil))
				all := newSample(table, labels, o.Base.Degenerate, o.Base.Saturated)
				for _, i := range order[table.Inputs/2:] {
					retained := decisions[i].Action == policy.Retain
					covered += float64(index(retained)) / float64(halves*(table.Inputs-table.Inputs/2))
					own += index(retained && all.missed[i])
					naive += index(all.retains(i, c.scope, pick.rule, pick.thresholds) && all.missed[i])
				}
				if h == 0 {
					if whole := calibrated(t, first, firstLabels, o); !reflect.DeepEqual(whole.Chosen, found.Chosen) {
						t.Errorf("%s: chosen %+v, by Run %+v", name, found.Chosen, whole.Chosen)
					}
				}
			}
			t.Logf("%s, %+v: %d are missed at coverage %.4f, %d by a score", name, c, own, covered, naive)
			const luck = 0.1 // of two rules that are as good
			if float64(own) > c.most*float64(naive)*(1+luck)+halves {
				t.Errorf("%s, %+v: %d are missed, %d by a score", name, c, own, naive)
			}
			if math.Abs(covered-coverage) > 0.02 {
				t.Errorf("%s, %+v: coverage %v, %v was asked for", name, c, covered, coverage)
			}
		}
	}
}

func take(table *eval.Table, labels []int, inputs []int) (*eval.Table, []int) {
	taken := make([]int, len(inputs))
	for j, i := range inputs {
		taken[j] = labels[i]
	}
	return table.Select(inputs), taken
}
