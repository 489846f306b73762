package metrics

import (
	"math"
	"testing"

	"github.com/ckd-project/ckd/policy"
)

// riskSeries returns the series of risk of all models.
func riskSeries(values map[string]float64) map[string]float64 {
	return only(values, "ckd_risk", "ckd_expected_misses_total")
}

// TestRisk checks that risk is counted of all inputs that have one, and expected misses of the
// retained ones alone.
func TestRisk(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	with := *p
	with.Risk = &policy.Risk{}
	model := d.put(&with, m)
	for shard, input := range []struct {
		risk   float64
		action policy.Action
	}{{0.25, policy.Retain}, {0.5, policy.Retain}, {0.75, policy.Defer}, {math.NaN(), policy.Retain}, {math.NaN(), policy.Defer}, {0, policy.Retain}} {
		r := model.Record(uint32(shard))
		r.ObserveRisk(input.risk, input.action)
		r.Done()
	}
	compare(t, map[string]float64{
		`ckd_risk{model="m"}`: 4, `ckd_risk_sum{model="m"}`: 1.5, `ckd_expected_misses_total{model="m"}`: 0.75,
	}, riskSeries(d.values(t)), 0)
}

// TestRiskIsAbsentWithoutAModel checks that there are no series of risk where it is not known, nor
// expected misses where nothing is retained, and that a policy without them drops those that were.
func TestRiskIsAbsentWithoutAModel(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	risky, observing := *p, *p
	risky.Risk, observing.Risk = &policy.Risk{}, &policy.Risk{}
	observing.Primary.HasThreshold = false
	for _, step := range []struct {
		name         string
		policy       *policy.Policy
		risk, misses int
	}{
		{"without a model", p, 0, 0}, {"risk", &risky, 1, 1}, {"observing", &observing, 1, 0}, {"risk again", &risky, 1, 1}, {"gone", p, 0, 0},
	} {
		t.Run(step.name, func(t *testing.T) {
			r := d.put(step.policy, m).Record(0)
			r.ObserveRisk(0.25, policy.Observe)
			r.Done()
			values := riskSeries(d.values(t))
			risk, misses := len(namesOf(values, "ckd_risk{")), len(namesOf(values, "ckd_expected_misses_total{"))
			if risk != step.risk || misses != step.misses {
				t.Errorf("%d series of risk and %d of misses, want %d and %d", risk, misses, step.risk, step.misses)
			}
		})
	}
}
