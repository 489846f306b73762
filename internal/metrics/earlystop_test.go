package metrics

import (
	"testing"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// withRule returns the policy with a rule in force.
func withRule(p *policy.Policy) *policy.Policy {
	with := *p
	with.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Rule: earlystop.Rule{Passes: 15, Fewest: 2, Steps: make([]earlystop.Step, 13)},
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	return &with
}

// watched returns the status of a model before its first full-pass check, or after 400 full-pass
// checks that agreed and the given number that disagreed, all deferred by all passes.
func watched(t testing.TB, model string, disagree int) map[string]fullpass.Status {
	t.Helper()
	w, err := fullpass.NewWatch(fullpass.Options{Disagreement: 0.01, Retained: 0.05, RunLength: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for range 400 * min(disagree, 1) {
		w.Add(fullpass.SameRetain)
	}
	for range disagree {
		w.Add(fullpass.WronglyRetained)
	}
	return map[string]fullpass.Status{model: w.Status()}
}

// earlyStopSeries returns the series of early stopping of all models.
func earlyStopSeries(values map[string]float64) map[string]float64 {
	return only(values, "ckd_early_stop_", "ckd_passes_used", "ckd_passes_saved")
}

// TestEarlyStop checks every series of early stopping with a handful of inputs.
func TestEarlyStop(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(withRule(p), m)
	status := watched(t, "m", 12)
	status["none such"] = status["m"]
	d.ReadFullPassChecks(func() map[string]fullpass.Status { return status })

	model.PassesUsed(2, 15)
	model.PassesUsed(5, 15)
	model.PassesUsed(15, 15)
	for _, v := range []fullpass.Verdict{
		fullpass.SameRetain, fullpass.SameDefer, fullpass.WronglyRetained, fullpass.WronglyRetained,
		fullpass.WronglyDeferred, fullpass.OtherSide, fullpass.OtherSide, fullpass.OtherSide,
	} {
		model.FullPassChecked(v, 15)
	}
	model.FullPassCheckLost()
	model.FullPassCheckLost()

	checked := status["m"]
	want := map[string]float64{
		`ckd_passes_used{model="m"}`:                                                 11,
		`ckd_passes_used_sum{model="m"}`:                                             2 + 5 + 15 + 8*15,
		`ckd_passes_saved_total{model="m"}`:                                          13 + 10,
		`ckd_early_stop_checked_total{model="m"}`:                                    8,
		`ckd_early_stop_disagreements_total{model="m",verdict="wrongly_retained"}`:   2,
		`ckd_early_stop_disagreements_total{model="m",verdict="wrongly_deferred"}`:   1,
		`ckd_early_stop_disagreements_total{model="m",verdict="other_side"}`:         3,
		`ckd_early_stop_checks_lost_total{model="m"}`:                                2,
		`ckd_early_stop_disagreement{bound="low",inputs="all",model="m"}`:            checked.All.Low,
		`ckd_early_stop_disagreement{bound="low",inputs="deferred",model="m"}`:       checked.Deferred.Low,
		`ckd_early_stop_disagreement{bound="high",inputs="all",model="m"}`:           checked.All.High,
		`ckd_early_stop_disagreement{bound="high",inputs="deferred",model="m"}`:      1,
		`ckd_early_stop_disagreement{bound="certified",inputs="all",model="m"}`:      0.01,
		`ckd_early_stop_disagreement{bound="certified",inputs="deferred",model="m"}`: 0.05,
		`ckd_early_stop_evidence{model="m"}`:                                         checked.Evidence / 1000,
		`ckd_early_stop_halted{model="m"}`:                                           1,
	}
	compare(t, want, earlyStopSeries(d.values(t)), 1e-12)
	if checked.All.Low <= 0 || checked.Deferred.Low < 0.05 || checked.Evidence < 1000 || checked.Stop == nil {
		t.Errorf("12 of 412 full-pass checks disagreed, and yet: %+v", checked)
	}

	// If nothing is certified of deferred inputs, there is no series for it.
	w, err := fullpass.NewWatch(fullpass.Options{Disagreement: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	status = map[string]fullpass.Status{"m": w.Status()}
	now := earlyStopSeries(d.values(t))
	if got, ok := now[`ckd_early_stop_disagreement{bound="certified",inputs="deferred",model="m"}`]; ok {
		t.Errorf("certified of deferred inputs is %v, expected no series", got)
	}
	if got := now[`ckd_early_stop_disagreement{bound="high",inputs="deferred",model="m"}`]; got != 1 {
		t.Errorf("without a full-pass check the interval ends at %v, expected 1", got)
	}
	if got, ok := now[`ckd_early_stop_halted{model="m"}`]; !ok || got != 0 {
		t.Errorf("stopped is %v (%v), expected 0", got, ok)
	}
}

// TestEarlyStopReload checks that only a rule in force has series, that they go on under another
// rule, and that a scrape that reads full-pass checks does not block a new policy.
func TestEarlyStopReload(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	whileScraped := func() {}
	d.ReadFullPassChecks(func() map[string]fullpass.Status {
		whileScraped()
		return watched(t, "m", 0)
	})
	changed := withRule(p) // its rule was learned for another threshold
	changed.EarlyStopping.PolicyHash = "sha256:of-another"
	for name, without := range map[string]*policy.Policy{"without a rule": p, "with the rule of another policy": changed} {
		model := d.put(without, m)
		model.PassesUsed(2, 15)
		model.FullPassChecked(fullpass.OtherSide, 15)
		model.FullPassCheckLost()
		if found := earlyStopSeries(d.values(t)); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}

	first := d.put(withRule(p), m)
	first.PassesUsed(2, 15)
	whileScraped = func() { d.put(withRule(p), m).PassesUsed(3, 15) }
	if got := earlyStopSeries(d.values(t)); got[`ckd_passes_used{model="m"}`] != 2 || len(got) != 16 {
		t.Errorf("two inputs, the second under the same rule, loaded while a scrape asked: %d series, %v", len(got), got)
	}
	whileScraped = func() {}

	d.put(p, m)
	first.PassesUsed(4, 15) // this input was opened before the policy changed
	if found := earlyStopSeries(d.values(t)); len(found) > 0 {
		t.Errorf("after the rule is gone: %v", found)
	}
}

// TestUnsampled checks that unsampled inputs are counted, but not compared for drift.
func TestUnsampled(t *testing.T) {
	p, m := parse(t, threeClasses)
	p = withReference(p, results{zeroResult(m, 3)}, 0, 2)
	all, unsampled := newDaemon(t, 0), newDaemon(t, 0)
	a, u := all.put(p, m), unsampled.put(p, m)
	outcomes(t, m, randomInputs(9, 80, 5, 3), func(o *engine.Outcome) {
		a.Observe(0, o.Result, o.Decision)
		r := u.Record(0)
		defer r.Done()
		r.ObserveUnsampled(o.Result, &o.Decision)
	})
	want, got := all.values(t), unsampled.values(t)
	if len(namesOf(want, "ckd_drift_z")) == 0 || len(namesOf(got, "ckd_drift_z")) > 0 {
		t.Errorf("%q and %q were compared", namesOf(want, "ckd_drift_z"), namesOf(got, "ckd_drift_z"))
	}
	for _, values := range []map[string]float64{want, got} {
		for _, name := range namesOf(values, "ckd_drift_") {
			delete(values, name)
		}
	}
	compare(t, want, got, 0)
}
