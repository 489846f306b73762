package eval_test

import (
	"math"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestGroupsOfCopies evaluates a recording of which every input is there three times. By group,
// intervals, tests and resamples are those of the recording itself: a copy is no new evidence.
func TestGroupsOfCopies(t *testing.T) {
	t.Parallel()
	const copies = 3
	passes, labels := recording(t, "ctg-ensemble")
	single := table(t, passes, ctg)
	var inputs, groups, repeated []int
	for i, label := range labels {
		for range copies {
			inputs, groups, repeated = append(inputs, i), append(groups, 7-i), append(repeated, label)
		}
	}
	o := eval.Options{Coverage: 0.5, Bootstrap: 40, Seed: 3} // half of 2126 is a whole number
	want := evaluate(t, single, labels, o)
	o.Groups = groups
	got := evaluate(t, single.Select(inputs), repeated, o)
	if want.Source.Groups != 0 || got.Source.Groups != len(labels) {
		t.Errorf("%d groups, %d without", got.Source.Groups, want.Source.Groups)
	}
	within := func(what string, got, want *[2]float64) {
		t.Helper()
		for end := range got {
			if math.Abs(got[end]-want[end]) > 1e-10 {
				t.Errorf("%s: %v, want %v", what, *got, *want)
			}
		}
	}
	for _, w := range want.Policies {
		g := row(t, got, w.Name, w.Scope)
		if g.CriticalMissed != copies*w.CriticalMissed {
			t.Fatalf("%s misses %v, one of three copies %v", w.Name, g.CriticalMissed, w.CriticalMissed)
		}
		within(w.Name, g.CriticalMissRateInterval, w.CriticalMissRateInterval)
		for c := range w.CriticalClasses {
			within(w.Name+" by class", g.CriticalClasses[c].CriticalMissRateInterval, w.CriticalClasses[c].CriticalMissRateInterval)
		}
		closeTo(t, w.Name+" resampled", g.BootstrapAt.CriticalFNR.High, float64(w.BootstrapAt.CriticalFNR.High))
		closeTo(t, w.Name+" resampled", g.BootstrapAt.Accuracy.SD, float64(w.BootstrapAt.Accuracy.SD))
	}
	if got.Pairwise[0].P != want.Pairwise[0].P {
		t.Errorf("%+v, want %+v", got.Pairwise[0], want.Pairwise[0])
	}
}

// TestGroupsOfCertificate holds a certificate against one large group of misses and against as many
// single ones: only the single ones contradict it.
func TestGroupsOfCertificate(t *testing.T) {
	t.Parallel()
	p, _ := tinyPolicy()
	p.Calibration = &policy.Calibration{Certificate: &policy.Certificate{
		Kind: policy.LearnThenTest, Bounds: policy.CriticalMissRate, Target: 0.1, Confidence: 0.95}}
	labels, predicted, groups := make([]int, 100), make([]int, 100), make([]int, 100)
	for i := range labels {
		labels[i], predicted[i], groups[i] = 1, index(i >= 20), max(i, 20)
	}
	o := eval.Options{Classes: p.Classes, Policy: p, Decisions: make([]policy.Decision, 100)}
	for i := range o.Decisions {
		o.Decisions[i].Action = policy.Retain
	}
	alone := evaluate(t, flat(predicted), labels, o).Policy.Certificate
	o.Groups = groups
	grouped := evaluate(t, flat(predicted), labels, o).Policy.Certificate
	if alone.Verdict != eval.Contradicted || grouped.Verdict != eval.NotContradicted || grouped.PowerAtDouble.Defined() ||
		grouped.Misses != 20 || grouped.Cases != 100 {
		t.Errorf("alone %+v, grouped %+v", alone.BoundCheck, grouped.BoundCheck)
	}
	for i := range groups {
		groups[i] = -i
	}
	each := evaluate(t, flat(predicted), labels, o).Policy.Certificate
	closeTo(t, "p-value of groups of one", each.PValue, alone.PValue)
	closeTo(t, "p-value of groups of one", each.PShown, alone.PShown)
}
