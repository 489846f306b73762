package calibrate

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
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

// TestHeldOutHalves calibrates policies for coverage 0.8 on one half of a real recording and checks
// them on the other. The figures are those of this implementation and guard it against getting
// worse; the best single score is chosen with hindsight.
func TestHeldOutHalves(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const halves, coverage = 12, 0.8
	for _, c := range []struct {
		name string
		fnr  float64
	}{{"lowrank", 0.0870}, {"mcdropout", 0.0951}, {"ensemble", 0.0684}} {
		table, labels := ctg(t, c.name)
		o := options(t, Objective{Coverage: coverage}, policy.AllInputs, 0)
		var own, covered float64
		single := make([]float64, decomp.NumScores)
		for h := range uint64(halves) {
			order := rand.New(rand.NewPCG(17, h)).Perm(table.Inputs)
			first, firstLabels := take(table, labels, order[:table.Inputs/2])
			second, secondLabels := take(table, labels, order[table.Inputs/2:])
			o.Seed = h
			// This does what Run does without the expected figures, which take ten times as long.
			r := runOf(t, first, firstLabels, o)
			s := must(r.search(r.all(), o.Scope, r.curveFNR(r.all())))
			best := must(s.bestAt(r, coverage))
			r.choose(s, best, s.curve(best)(coverage))
			got := eval.Select(secondLabels, second.Predicted, retainedBy(built(r.draft), second), table.Spec.Critical)
			own += got.CriticalFNR() / halves
			covered += got.Coverage() / halves
			if h == 0 {
				found := calibrated(t, first, firstLabels, o)
				if !reflect.DeepEqual(found.Chosen, r.result.Chosen) {
					t.Errorf("%s: chosen %+v, by Run %+v", c.name, r.result.Chosen, found.Chosen)
				}
				if e := found.Expected; e.CoverageInterval[0] > got.Coverage()+0.03 || e.CoverageInterval[1] < got.Coverage()-0.03 {
					t.Errorf("%s: coverage %+v expected, the other half shows %v", c.name, e, got.Coverage())
				}
			}
			for s := range single {
				threshold := eval.Threshold(first.Scores[s], coverage)
				retained := make([]bool, second.Inputs)
				for i, v := range second.Scores[s] {
					retained[i] = v <= threshold
				}
				single[s] += eval.Select(secondLabels, second.Predicted, retained, table.Spec.Critical).CriticalFNR() / halves
			}
		}
		best := slices.Min(single)
		t.Logf("%s: calibrated %.4f at coverage %.4f, best single score %.4f", c.name, own, covered, best)
		if own > best+0.01 {
			t.Errorf("%s: critical FNR %v, the best single score has %v", c.name, own, best)
		}
		if own > c.fnr+0.01 {
			t.Errorf("%s: critical FNR %v, it was %v", c.name, own, c.fnr)
		}
		if math.Abs(covered-coverage) > 0.015 {
			t.Errorf("%s: coverage %v, %v was asked for", c.name, covered, coverage)
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

// TestCertificatesOfRecording checks which objectives certify on a real recording. The figures are
// those of this implementation.
func TestCertificatesOfRecording(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	for _, c := range []struct {
		objective Objective
		scope     policy.Scope
		least     float64 // coverage
	}{
		{Objective{MaxCriticalFNR: 0.18, Confidence: 0.9}, policy.AllInputs, 0.9619},
		{Objective{MaxCriticalFNR: 0.1, Confidence: 0.9}, policy.PredictedSafe, 0.8793},
		{Objective{MaxCriticalMiss: 0.05, OnAverage: true}, policy.AllInputs, 0.7862},
		{Objective{MaxCriticalMiss: 0.05, Confidence: 0.9}, policy.AllInputs, 0.7},
		{Objective{MaxCriticalMiss: 0.05, Confidence: 0.9}, policy.PredictedSafe, 0.7},
		{Objective{MaxCriticalFNR: 0.18, ClassLimits: []ClassLimit{{"2", policy.CriticalMissRate, 0.1}}, Confidence: 0.9}, policy.PredictedSafe, 0.7},
		{Objective{MaxCriticalMiss: 0.05, OnAverage: true}, policy.PredictedSafe, 0.8525},
	} {
		found := calibrated(t, table, labels, options(t, c.objective, c.scope, 1))
		if found.Policy == nil {
			t.Errorf("%s, scope %s: %s", c.objective, c.scope, found.Refusal.Reason)
			continue
		}
		t.Logf("%s, scope %s: coverage %.4f", c.objective, c.scope, found.Expected.Coverage)
		if found.Expected.Coverage < c.least-0.03 {
			t.Errorf("%s, scope %s: coverage %v, it was %v", c.objective, c.scope, found.Expected.Coverage, c.least)
		}
	}
}
