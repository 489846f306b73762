package metrics

import (
	"math"
	"testing"

	"github.com/ckd-project/ckd/internal/monitor/prevalence"
	"github.com/ckd-project/ckd/policy"
)

// TestPrevalence checks that what priorities of all shards suggest is shown, from the policy in force
// alone, and nothing where it is not known.
func TestPrevalence(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	risky := *p
	risky.Risk = &policy.Risk{Prevalence: 0.5}
	risky.Calibration = &policy.Calibration{Recording: policy.Recording{Inputs: 1000, CriticalInputs: 500}}
	shown := func() map[string]float64 { return only(d.values(t), "ckd_prevalence_suggested") }
	// Of inputs with priorities of 0.9 and 0.1 in equal parts, half are critical.
	feed := func(model *Model, inputs int) {
		for i := range inputs {
			r := model.Record(uint32(i))
			r.ObservePriority([]float64{0.9, 0.1}[i/2%2])
			r.Done()
		}
	}

	model := d.put(&risky, m)
	if got := shown(); len(got) != 0 {
		t.Errorf("of no input: %v", got)
	}
	feed(model, 1000)
	got := shown()
	low, estimate, high := got[`ckd_prevalence_suggested{bound="low",model="m"}`], got[`ckd_prevalence_suggested{bound="estimate",model="m"}`], got[`ckd_prevalence_suggested{bound="high",model="m"}`]
	if len(got) != 3 || math.Abs(estimate-0.5) > 0.01 || !(0.4 < low && low < estimate && estimate < high && high < 0.6) {
		t.Errorf("%v", got)
	}
	window := new(prevalence.Window)
	counts := new(prevalence.Counts)
	for i := range 1000 {
		if counts.Add([]float64{0.9, 0.1}[i/2%2]) {
			window.Take(counts)
		}
	}
	window.Take(counts)
	if want, _ := window.Suggest(prevalence.Calibration{Prevalence: 0.5, Critical: 500, Others: 500}); want != (prevalence.Share{Low: low, Estimate: estimate, High: high}) {
		t.Errorf("%v, expected %+v", got, want)
	}

	same := risky
	if d.put(&same, m); len(shown()) != 3 {
		t.Error("the same policy, loaded again, has begun anew")
	}
	another := risky
	another.Hash = "another"
	next := d.put(&another, m)
	feed(model, 1000) // inputs that were opened under the policy before
	if got := shown(); len(got) != 0 {
		t.Errorf("by priorities of the policy before: %v", got)
	}
	if feed(next, 1000); len(shown()) != 3 {
		t.Errorf("under another policy: %v", shown())
	}

	certified := risky
	certified.Calibration = &policy.Calibration{Recording: risky.Calibration.Recording, Certificate: &policy.Certificate{}}
	feed(d.put(&certified, m), 1000)
	if wider := shown()[`ckd_prevalence_suggested{bound="high",model="m"}`]; wider <= high {
		t.Errorf("priorities fitted on a third of the recording: the upper end is %v, expected more than %v", wider, high)
	}

	unknown := risky
	unknown.Calibration = nil
	if feed(d.put(&unknown, m), 1000); len(shown()) != 0 {
		t.Errorf("though it is not known what priorities were fitted on: %v", shown())
	}
	if feed(d.put(p, m), 1000); len(shown()) != 0 {
		t.Errorf("without a risk model: %v", shown())
	}
	feed(d.put(&risky, m), 1000)
	if d.Remove("m"); len(shown()) != 0 {
		t.Errorf("of a model that is gone: %v", shown())
	}
}
