package calibrate

import (
	"math"
	"slices"
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
	for _, c := range []struct {
		name  string
		o     Objective
		above []Limit
		want  []Line // with Above 0 for the upper end of what is expected
	}{
		{"coverage", Objective{Coverage: 0.8}, nil, []Line{
			{fnr, "", 0, ExpectedLine}, {rate, "", 0, ExpectedLine}, {fnr, "1", 0, ExpectedLine}, {fnr, "2", 0, ExpectedLine},
		}},
		{"cost", Objective{CostRatio: 20}, nil, []Line{
			{fnr, "", 0, ExpectedLine}, {rate, "", 0, ExpectedLine}, {fnr, "1", 0, ExpectedLine}, {fnr, "2", 0, ExpectedLine},
		}},
		{"certified FNR", fnrUpTo(0.2, 0.9), nil, []Line{{fnr, "", 0.2, CertifiedLine}}},
		{"certified class", missesUpTo(0.2, 0.9, Limit{"1", fnr, 0.4}), nil, []Line{
			{rate, "", 0.2, CertifiedLine}, {fnr, "1", 0.4, CertifiedLine},
		}},
		{"stated beside expected", Objective{Coverage: 0.8}, []Limit{{"1", fnr, 0.5}, {"", fnr, 0.3}}, []Line{
			{fnr, "", 0.3, StatedLine}, {rate, "", 0, ExpectedLine}, {fnr, "1", 0.5, StatedLine}, {fnr, "2", 0, ExpectedLine},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t, c.o, policy.PredictedSafe, 3)
			o.AlarmAbove = c.above
			report := calibrated(t, table, labels, o)
			if report.Refused() {
				t.Fatalf("nothing certifies: %+v", report.Refusal)
			}
			for i, l := range c.want {
				if l.From != ExpectedLine || i >= len(report.Lines) {
					continue
				}
				got := report.Lines[i].Above
				c.want[i].Above = got
				switch k := report.Policy.Calibration; {
				case l.Class == "" && l.Bounds == fnr:
					c.want[i].Above = k.ExpectedCriticalFNR.High
				case l.Class == "":
					c.want[i].Above = k.ExpectedCriticalMissRate.High
				case !(got > 0 && got < 1):
					t.Errorf("class %s: a line of %v", l.Class, got)
				}
			}
			if diff := cmp.Diff(c.want, report.Lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			lines := report.Policy.Lines()
			for _, l := range c.want {
				got := lines.CriticalMissRate
				switch {
				case l.Class != "":
					got = lines.Of(l.Class)
				case l.Bounds == fnr:
					got = lines.CriticalFNR
				}
				if got != l.Above {
					t.Errorf("the policy's line of %s %s is %v, expected %v", l.Bounds, l.Class, got, l.Above)
				}
			}
			if c.want == nil && report.Policy.Calibration.Lines != nil {
				t.Errorf("the policy has lines %+v", report.Policy.Calibration.Lines)
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
