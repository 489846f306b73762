package calibrate

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

// TestLines checks what outcomes are tested against, by objective.
func TestLines(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	const fnr, rate = policy.CriticalFNR, policy.CriticalMissRate
	expected := func(class string) policy.Line {
		return policy.Line{Bounds: rate, Class: class, From: policy.ExpectedLine}
	}
	certified := func(figure policy.Figure, class string, above float64) policy.Line {
		return policy.Line{Bounds: figure, Class: class, Above: above, From: policy.CertifiedLine}
	}
	stated := func(class string, above float64) policy.Line {
		return policy.Line{Bounds: rate, Class: class, Above: above, From: policy.StatedLine, By: "ann", On: "2026-11-03"}
	}
	stating := func(o Options, lines policy.StatedLines) Options {
		d := o.Base.Draft()
		lines.By, lines.On = "ann", "2026-11-03"
		d.Calibration = &policy.Calibration{Lines: &lines}
		o.Base = must(policy.Build(d))
		return o
	}
	all := []policy.Line{expected(""), expected("1"), expected("2")}
	for _, c := range []struct {
		name   string
		o      Objective
		stated policy.StatedLines // by the policy to complete
		want   []policy.Line      // those expected with Above 0
		note   string
	}{
		{"coverage", Objective{Coverage: 0.8}, policy.StatedLines{}, all, ""},
		{"cost", Objective{CostRatio: 20}, policy.StatedLines{}, all, ""},
		{"certified FNR", fnrUpTo(0.2, 0.9), policy.StatedLines{}, []policy.Line{certified(fnr, "", 0.2)}, ""},
		{"certified class", missesUpTo(0.2, 0.9, Limit{"1", fnr, 0.4}), policy.StatedLines{}, []policy.Line{certified(rate, "", 0.2), certified(fnr, "1", 0.4)}, ""},
		{"stated below what is certified, and where nothing is", missesUpTo(0.2, 0.9),
			policy.StatedLines{CriticalMissRate: 0.2, Classes: []policy.ClassLine{{Class: "2", CriticalMissRate: 0.9}}}, []policy.Line{stated("", 0.2), stated("2", 0.9)}, ""},
		{"stated below what is expected", Objective{Coverage: 0.8},
			policy.StatedLines{CriticalMissRate: 0.001, Classes: []policy.ClassLine{{Class: "1", CriticalMissRate: 0.01}}},
			[]policy.Line{stated("", 0.001), stated("1", 0.01), expected("2")}, ""},
		{"stated above what is certified", missesUpTo(0.2, 0.9), policy.StatedLines{CriticalMissRate: 0.21}, []policy.Line{certified(rate, "", 0.2)},
			"the line of the critical miss rate, 0.21 (stated by ann on 2026-11-03), is left out, as this calibration gives a lower one: 0.2 (certified)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			report := calibrated(t, table, labels, stating(options(t, c.o, policy.PredictedSafe, 3), c.stated))
			if report.Refused() {
				t.Fatalf("nothing certifies: %+v", report.Refusal)
			}
			upper := map[policy.Line]float64{}
			if k := report.Policy.Calibration; k.ExpectedCriticalMissRate != nil {
				upper[expected("")] = k.ExpectedCriticalMissRate.High
				for _, class := range k.ExpectedClassMissRate {
					upper[expected(class.Class)] = class.High
				}
			}
			want := slices.Clone(c.want)
			for i, l := range want {
				if l.From == policy.ExpectedLine {
					want[i].Above = upper[l]
				}
			}
			if diff := cmp.Diff(want, report.Lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if notes := strings.Join(report.Notes, "\n"); (c.note != "") != strings.Contains(notes, "is left out, as this calibration") ||
				!strings.Contains(notes, c.note) {
				t.Errorf("notes\n%s\nexpected %q", notes, c.note)
			}
		})
	}
}

// TestMeanRootRisk compares with the decisions and risks of the code that decides online.
func TestMeanRootRisk(t *testing.T) {
	t.Parallel()
	table, labels := ctg(t, "mcdropout")
	p := calibrated(t, table, labels, options(t, fnrUpTo(0.18, 0.9), policy.AllInputs, 1)).Policy
	model := must(engine.New(p))
	batch, out := model.NewBatch(), model.NewOutcome()
	r := ctgRecording("mcdropout")
	if err := batch.Reset(r.Passes); err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, 0.0
	for i := range r.Passes.Inputs {
		if err := batch.Outcome(i, out); err != nil {
			t.Fatal(err)
		}
		if out.Decision.Action == policy.Retain && !slices.Contains(p.Critical, out.Predicted) {
			sum += math.Sqrt(out.Risk)
			n++
		}
	}
	if got := p.Calibration.MeanRootRisk; !(math.Abs(got-sum/n) <= 1e-9) || got == 0 {
		t.Errorf("%v, expected %v, the mean over %v inputs", got, sum/n, n)
	}
}
