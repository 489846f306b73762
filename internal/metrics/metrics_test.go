package metrics

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
)

const threeClasses = `
name: m
version: one
classes: [a, b, c]
critical: [b, c]
passes: {fewest: 2}
gate: never
primary: {score: c_crit_max, threshold: 0.1}
calibrated: {expected_coverage: {value: 0.75, low: 0, high: 1}, expected_critical_miss_rate: {value: 0.0625, low: 0, high: 1}}
`

// TestObserve compares every series, save histogram buckets, with a handful of inputs computed by
// hand.
func TestObserve(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(p, m)
	outcomes(t, m, [][][]float32{
		// Retained: C = (1/24, 1/24, 0), all ties to the lowest class, pair a-b 1/24.
		{{0.5, 0.25, 0.25}, {0.25, 0.5, 0.25}},
		// Deferred by b: C = (1/2, 1/2, 0), pair a-b 1/2.
		{{1, 0, 0}, {0, 1, 0}},
		// Degenerate, and degenerate and saturated: all C are 0, no class dominates.
		{{0.5, 0.25, 0.25}, {0.5, 0.25, 0.25}},
		{{0, 0, 1}, {0, 0, 1}},
		// Deferred by b, which is not to be trusted: Var = 0.2, C = (1/8, 1/2, 0),
		// |m3| = 0.096, skewness (0.2, 0.8, 0), pair a-b 1/4.
		{{0, 1, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}},
	}, func(o *engine.Outcome) { model.Observe(0, o.Result, o.Decision) })
	model.Late(7)
	model.Late(0)
	model.Rejected("not_finite", 1)
	model.Rejected("what a client sent", 1)
	model.Mismatched("passes")
	model.Mismatched("posterior")
	model.Mismatched("posterior")
	model.Abandoned(2)
	model.InputsOpen(5)
	model.InputsOpen(-2)
	d.RejectedUnknownModel("unknown_model", 1)
	d.MemoryPressure(0.5)
	d.Refused("memory", "short")
	d.Refused("http", "413")
	d.Refused("http", "413")
	d.ConnectionsEnded("memory", 2)
	d.SecurityReloadFailed("access")
	d.CertificateNotAfter(time.Unix(1e9, 0))
	d.ReadUse(func() []Use { return []Use{{"streams", 1, 3}, {"unread_replies", 8, 0}} })
	d.ReadUse(func() []Use { return []Use{{"connections", 4, 5}} })

	h1, h3, h5 := entropyOf(3./8, 3./8, 1./4), entropyOf(1./2, 1./4, 1./4), entropyOf(4./5, 1./5)
	want := map[string]float64{
		`ckd_build_info{goversion="` + runtime.Version() + `",revision="abc",version="v1.2.3"}`: 1,
		`ckd_policy_info{hash="` + p.Hash + `",model="m",version="one"}`:                        1,

		`ckd_decisions_total{action="retain",model="m",reason="under_threshold",score="c_crit_max"}`: 1,
		`ckd_decisions_total{action="defer",model="m",reason="above_threshold",score="c_crit_max"}`:  2,
		`ckd_decisions_total{action="defer",model="m",reason="degenerate",score="c_crit_max"}`:       1,
		`ckd_decisions_total{action="defer",model="m",reason="saturated",score="c_crit_max"}`:        1,

		`ckd_class_epistemic_nats_sum{class="a",model="m"}`:                           1./24 + 1./2 + 1./8,
		`ckd_class_epistemic_nats_sum{class="b",model="m"}`:                           1./24 + 1./2 + 1./2,
		`ckd_class_epistemic_nats_sum{class="c",model="m"}`:                           0,
		`ckd_class_skewness_ratio_sum{class="a",model="m"}`:                           0.2,
		`ckd_class_skewness_ratio_sum{class="b",model="m"}`:                           0.8,
		`ckd_class_skewness_ratio_sum{class="c",model="m"}`:                           0,
		`ckd_class_unreliable_total{class="b",model="m"}`:                             1,
		`ckd_class_predicted_total{class="a",model="m"}`:                              4,
		`ckd_class_predicted_total{class="c",model="m"}`:                              1,
		`ckd_class_dominant_total{class="a",model="m"}`:                               2,
		`ckd_class_dominant_total{class="b",model="m"}`:                               1,
		`ckd_class_deciding_total{class="b",model="m"}`:                               2,
		`ckd_class_labels_cut{model="m"}`:                                             0,
		`ckd_predictive_entropy_nats_sum{model="m"}`:                                  h1 + math.Ln2 + h3 + h5,
		`ckd_mutual_information_nats_sum{model="m"}`:                                  h1 - h3 + math.Ln2 + h5, // the mean entropy of the first input's passes is h3
		`ckd_passes_total{model="m"}`:                                                 13,
		`ckd_inputs_fallback_total{model="m"}`:                                        0,
		`ckd_passes_late_total{model="m"}`:                                            7,
		`ckd_inputs_degenerate_total{model="m"}`:                                      2,
		`ckd_inputs_saturated_total{model="m"}`:                                       1,
		`ckd_inputs_abandoned_total{model="m"}`:                                       2,
		`ckd_inputs_open{model="m"}`:                                                  3,
		`ckd_inputs_rejected_total{model="m",reason="not_finite"}`:                    1,
		`ckd_inputs_rejected_total{model="m",reason="other"}`:                         1,
		`ckd_inputs_rejected_total{model="",reason="unknown_model"}`:                  1,
		`ckd_policy_last_reload_successful{}`:                                         0,
		`ckd_policy_last_reload_success_timestamp_seconds{}`:                          0,
		`ckd_panics_total{}`:                                                          0,
		`ckd_refused_total{reason="413",resource="http"}`:                             2,
		`ckd_refused_total{reason="short",resource="memory"}`:                         1,
		`ckd_refused_total{reason="full",resource="watches"}`:                         0,
		`ckd_connections_ended_total{reason="memory"}`:                                2,
		`ckd_connections_ended_total{reason="unread"}`:                                0,
		`ckd_security_reloads_failed_total{files="access"}`:                           1,
		`ckd_security_reloads_failed_total{files="certificates"}`:                     0,
		`ckd_certificate_not_after_timestamp_seconds{}`:                               1e9,
		`ckd_in_use{resource="streams"}`:                                              1,
		`ckd_limit{resource="streams"}`:                                               3,
		`ckd_in_use{resource="unread_replies"}`:                                       8,
		`ckd_in_use{resource="connections"}`:                                          4,
		`ckd_limit{resource="connections"}`:                                           5,
		`ckd_memory_pressure{}`:                                                       0.5,
		`ckd_calibration_mismatches_total{model="m",what="passes"}`:                   1,
		`ckd_calibration_mismatches_total{model="m",what="posterior"}`:                2,
		`ckd_policy_expected{bound="estimate",figure="coverage",model="m"}`:           0.75,
		`ckd_policy_expected{bound="estimate",figure="critical_miss_rate",model="m"}`: 0.0625,

		`ckd_pair_confusion_nats_total{class_a="a",class_b="b",model="m"}`: 1./24 + 1./2 + 1./4,
		`ckd_pair_confusion_nats_total{class_a="a",class_b="c",model="m"}`: 0,
	}
	for _, name := range []string{"ckd_mutual_information_nats", "ckd_predictive_entropy_nats"} {
		want[name+`{model="m"}`] = 5
	}
	for _, class := range p.Classes {
		for _, name := range []string{"unreliable", "predicted", "dominant", "deciding"} {
			series := `ckd_class_` + name + `_total{class="` + class + `",model="m"}`
			want[series] += 0 // it exists
		}
		want[`ckd_class_epistemic_nats{class="`+class+`",model="m"}`] = 5
		want[`ckd_class_skewness_ratio{class="`+class+`",model="m"}`] = 5
	}
	compare(t, want, d.values(t), 1e-8) // C_k divides by mu + 1e-10, which changes it by up to 1e-9
}

func entropyOf(probabilities ...float64) float64 {
	h := 0.0
	for _, p := range probabilities {
		h -= p * math.Log(p)
	}
	return h
}

// TestUndefined checks that NaN is not observed, and that values beyond all bounds do not spoil a
// sum.
func TestUndefined(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	model := d.put(p, m)
	r := m.Plan().NewResult()
	r.C, r.Skewness = slices.Repeat([]float64{math.NaN()}, 3), slices.Repeat([]float64{math.MaxFloat64}, 3)
	fill(r.PairTerm, math.NaN())
	r.MI, r.Entropy, r.SumC, r.Dominant = math.NaN(), math.NaN(), math.NaN(), -1
	for range 3 {
		model.Observe(0, r, policy.Decision{Action: policy.Defer, Score: policy.CCritMax, Reason: policy.AboveThreshold, Class: -1})
	}
	for name, v := range d.values(t) {
		switch {
		case strings.HasPrefix(name, "ckd_class_skewness_ratio_sum"):
			if v != 3*(1<<19) {
				t.Errorf("%s is %v, want three times the largest", name, v)
			}
		case strings.Contains(name, "nats") && v != 0:
			t.Errorf("%s is %v, want 0", name, v)
		}
	}
	if got := d.values(t)[`ckd_class_unreliable_total{class="a",model="m"}`]; got != 3 {
		t.Errorf("%v unreliable, want 3", got)
	}
}

func fill(s []float64, v float64) {
	for i := range s {
		s[i] = v
	}
}

// TestPrecreated checks that what alerts and shares need is there, at zero, before the first input,
// and that names and help are well formed.
func TestPrecreated(t *testing.T) {
	d := newDaemon(t, 0)
	d.options.Receipts = true
	p, m := parse(t, threeClasses)
	with := withReference(p, results{zeroResult(m, 3)}, 0, 2)
	with.Risk = &policy.Risk{}
	d.put(withRule(with), m)
	values := d.values(t)
	for _, name := range []string{
		`ckd_decisions_total{action="defer",model="m",reason="above_threshold",score="c_crit_max"}`,
		`ckd_class_epistemic_nats{class="a",model="m"}`,
		`ckd_pair_confusion_nats_total{class_a="a",class_b="b",model="m"}`,
		`ckd_risk{model="m"}`, `ckd_expected_misses_total{model="m"}`, `ckd_passes_late_total{model="m"}`,
		`ckd_inputs_abandoned_total{model="m"}`, `ckd_reviews_total{model="m",stratum="deferred"}`,
		`ckd_drift_alarm{class="a",model="m",signal="epistemic"}`, `ckd_early_stop_checks_lost_total{model="m"}`,
		`ckd_audit_cap_exceeded_total{model="m"}`, `ckd_refused_total{reason="short",resource="memory"}`, `ckd_panics_total{}`,
	} {
		if v, ok := values[name]; !ok || v != 0 {
			t.Errorf("%s is %v (%v), want 0", name, v, ok)
		}
	}
	for name := range values {
		for _, cause := range []string{"ckd_drift_z", "ckd_drift_alarms_total"} {
			if strings.HasPrefix(name, cause) {
				t.Errorf("%s has no cause yet", name)
			}
		}
	}
	problems, err := testutil.GatherAndLint(d.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestAgain checks that a new policy of the same model keeps the series that go on and drops the
// others.
func TestAgain(t *testing.T) {
	d := newDaemon(t, 0)
	was, m := parse(t, threeClasses)
	before := d.put(was, m)
	inputs := randomInputs(1, 10, 5, 3)
	observe := func(model *Model, m *engine.Model) {
		outcomes(t, m, inputs, func(o *engine.Outcome) { model.Observe(0, o.Result, o.Decision) })
	}
	observe(before, m)
	before.InputsOpen(1)

	// In the new policy b is safe, c is gone, d is new, and cbec decides.
	renamed, n := parse(t, strings.NewReplacer("version: one", "version: two", "[a, b, c]", "[b, a, d]", "[b, c]", "[d]",
		"gate: never", "gate: always", "primary: {score: c_crit_max,", "fallback: {score: cbec,").Replace(threeClasses))
	after := d.put(renamed, n)
	values := d.values(t)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"ckd_policy_info", []string{`ckd_policy_info{hash="` + renamed.Hash + `",model="m",version="two"}`}},
		{"ckd_class_epistemic_nats{", []string{
			`ckd_class_epistemic_nats{class="a",model="m"}`,
			`ckd_class_epistemic_nats{class="b",model="m"}`,
			`ckd_class_epistemic_nats{class="d",model="m"}`,
		}},
		{"ckd_pair_confusion", []string{
			`ckd_pair_confusion_nats_total{class_a="a",class_b="d",model="m"}`,
			`ckd_pair_confusion_nats_total{class_a="b",class_b="d",model="m"}`,
		}},
	} {
		if got := namesOf(values, c.name); !slices.Equal(got, c.want) {
			t.Errorf("series %s are %q, want %q", c.name, got, c.want)
		}
	}
	for _, name := range namesOf(values, "ckd_class_") {
		if strings.Contains(name, `class="c"`) {
			t.Errorf("%s is still there", name)
		}
	}
	if got := values[`ckd_class_epistemic_nats{class="a",model="m"}`]; got != 10 {
		t.Errorf("class a was observed %v times, want 10 from before", got)
	}
	if got := values[`ckd_class_epistemic_nats{class="d",model="m"}`]; got != 0 {
		t.Errorf("class d was observed %v times, want 0", got)
	}

	// Inputs opened under the old policy are counted, as are new ones.
	observe(before, m)
	before.InputsOpen(-1)
	observe(after, n)
	values = d.values(t)
	if got := values[`ckd_inputs_open{model="m"}`]; got != 0 {
		t.Errorf("%v inputs open, want 0", got)
	}
	decisions := 0.0
	for _, name := range namesOf(values, "ckd_decisions_total") {
		decisions += values[name]
	}
	for name, got := range map[string]float64{
		"inputs of class a": values[`ckd_class_epistemic_nats{class="a",model="m"}`],
		"inputs":            values[`ckd_mutual_information_nats{model="m"}`],
		"decisions":         decisions,
	} {
		if got != 30 {
			t.Errorf("%v %s, want 30", got, name)
		}
	}
	if got := values[`ckd_class_epistemic_nats{class="d",model="m"}`]; got != 10 {
		t.Errorf("class d was observed %v times, want 10", got)
	}

	// The same policy again changes nothing.
	d.put(renamed, n)
	compare(t, values, d.values(t), 0)
}

// TestExpected checks that the expected figures follow the policy in force, and are absent if it does
// not state them.
func TestExpected(t *testing.T) {
	d := newDaemon(t, 0)
	for _, c := range []struct {
		calibration string
		want        map[string]float64 // by figure and bound
	}{
		{"{expected_coverage: {value: 0.75, low: 0.5, high: 1}, expected_critical_miss_rate: {value: 0, low: 0, high: 0.5}}",
			map[string]float64{"coverage estimate": 0.75, "coverage low": 0.5, "coverage high": 1, "critical_miss_rate estimate": 0, "critical_miss_rate low": 0, "critical_miss_rate high": 0.5}},
		{"{expected_critical_miss_rate: {value: 0.25, low: 0.125, high: 1}}",
			map[string]float64{"critical_miss_rate estimate": 0.25, "critical_miss_rate low": 0.125, "critical_miss_rate high": 1}},
		{"{}", map[string]float64{}},
	} {
		t.Run("calibration "+c.calibration, func(t *testing.T) {
			d.put(parse(t, "name: m\nclasses: [a, b]\ncritical: [b]\ncalibrated: "+c.calibration))
			want := make(map[string]float64)
			for at, value := range c.want {
				figure, bound, _ := strings.Cut(at, " ")
				want[fmt.Sprintf(`ckd_policy_expected{bound=%q,figure=%q,model="m"}`, bound, figure)] = value
			}
			compare(t, want, only(d.values(t), "ckd_policy_expected"), 0)
		})
	}
}

func TestRemove(t *testing.T) {
	d := newDaemon(t, 0)
	without := d.values(t)
	p, m := parse(t, threeClasses)
	p = withRule(p)
	other := *p
	other.Name = "n"
	model := d.put(p, m)
	d.put(&other, m)
	d.ReadFullPassChecks(func() map[string]fullpass.Status { return watched(t, "m", 0) })
	model.InputsOpen(1)

	d.Remove("m")
	// What is still under way counts into nothing.
	outcomes(t, m, randomInputs(1, 3, 5, 3), func(o *engine.Outcome) { model.Observe(0, o.Result, o.Decision) })
	model.InputsOpen(-1)
	model.Rejected("not_finite", 1)
	model.PassesUsed(2, 5)
	for name := range d.values(t) {
		if strings.Contains(name, `model="m"`) {
			t.Errorf("%s is still there", name)
		}
	}

	again := d.put(p, m)
	again.InputsOpen(1)
	values := d.values(t)
	if got := values[`ckd_inputs_open{model="m"}`]; got != 1 {
		t.Errorf("%v inputs open, want 1", got)
	}
	for _, name := range []string{`ckd_passes_total{model="m"}`, `ckd_passes_used{model="m"}`} {
		if got, ok := values[name]; !ok || got != 0 {
			t.Errorf("%s is %v (%v), want 0", name, got, ok)
		}
	}

	for _, name := range []string{"m", "n", "n", "never there", ""} {
		d.Remove(name)
	}
	compare(t, without, d.values(t), 0)
}

// TestConcurrent counts on several goroutines during scrapes while policies come and go. Nothing is
// lost, and no scrape sees a model half changed.
func TestConcurrent(t *testing.T) {
	d := newDaemon(t, 0)
	p, m := parse(t, threeClasses)
	p = withReference(p, results{zeroResult(m, 3)}, 0, 2)
	model := d.put(p, m)
	var decided []*engine.Outcome
	for i := range uint64(8) {
		outcomes(t, m, randomInputs(i, 1, 5, 3), func(o *engine.Outcome) { decided = append(decided, o) })
	}
	repeat := func(work func(i int)) func() {
		return func() {
			for i := range 500 {
				work(i)
			}
		}
	}
	var counted atomic.Int64
	meanwhile(len(decided), func(w int) {
		model.InputsOpen(1)
		model.Observe(0, decided[w].Result, decided[w].Decision)
		model.Late(1)
		model.Rejected("not_finite", 1)
		model.InputsOpen(-1)
		counted.Add(1)
	}, repeat(func(i int) {
		next := *p
		next.Version = fmt.Sprint(i)
		d.put(&next, m)
	}), repeat(func(int) {
		next := *p
		next.Name = "n"
		d.put(&next, m)
		d.Remove("n")
	}), repeat(func(int) {
		series, err := scrape(d.registry)
		if err != nil {
			t.Error(err)
			return
		}
		if n := series["ckd_policy_info m"]; n != 1 {
			t.Errorf("a scrape saw %d policies of model m", n)
		}
		n := series["ckd_decisions_total n"]
		for name, whole := range map[string]int{"ckd_class_epistemic_nats n": 3, "ckd_policy_info n": 1} {
			if n > 0 != (series[name] > 0) || series[name] > whole {
				t.Errorf("a scrape saw %d of %s, beside %d decisions", series[name], name, n)
			}
		}
	}))

	values, inputs := d.values(t), float64(counted.Load())
	for name, want := range map[string]float64{
		`ckd_mutual_information_nats{model="m"}`:                   inputs,
		`ckd_class_epistemic_nats{class="b",model="m"}`:            inputs,
		`ckd_passes_total{model="m"}`:                              5 * inputs,
		`ckd_passes_late_total{model="m"}`:                         inputs,
		`ckd_inputs_rejected_total{model="m",reason="not_finite"}`: inputs,
		`ckd_inputs_open{model="m"}`:                               0,
	} {
		if got := values[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// scrape returns the number of series by name and model.
func scrape(g prometheus.Gatherer) (map[string]int, error) {
	families, err := g.Gather()
	count := make(map[string]int)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "model" {
					count[f.GetName()+" "+l.GetValue()]++
				}
			}
		}
	}
	return count, err
}

func TestNoAllocations(t *testing.T) {
	for _, k := range []int{3, 100} {
		p, m := manyClasses(t, k, 0, 1)
		var all []*engine.Outcome
		var of results
		for i := range uint64(8) {
			outcomes(t, m, randomInputs(i, 1, 10, k), func(o *engine.Outcome) { all, of = append(all, o), append(of, o.Result) })
		}
		model := newDaemon(t, 0).put(withRule(withReference(p, of, of.classes()...)), m)
		work := func() {
			for _, o := range all {
				model.Observe(0, o.Result, o.Decision)
			}
			rec := model.Record(7)
			for _, o := range all {
				rec.Observe(o.Result, &o.Decision)
			}
			rec.Done()
			model.Late(1)
			model.Rejected("not_finite", 1)
			model.InputsOpen(1)
			model.PassesUsed(3, 15)
			model.FullPassChecked(fullpass.WronglyRetained, 15)
			model.FullPassCheckLost()
		}
		// AllocsPerRun first runs once uncounted, which creates the parts of the shards.
		if got := testing.AllocsPerRun(100, work); got != 0 {
			t.Errorf("%d classes: %v allocations", k, got)
		}
	}
}

func TestNewErrors(t *testing.T) {
	taken := prometheus.NewRegistry()
	if _, err := New(taken, Options{}); err != nil {
		t.Fatal(err)
	}
	clash := prometheus.NewRegistry()
	clash.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "ckd_passes_total", Help: "Another."}))
	for _, c := range []struct {
		name     string
		registry *prometheus.Registry
		options  Options
		fragment string
	}{
		{"version", prometheus.NewRegistry(), Options{Version: "\xff"}, `version "\xff"`},
		{"twice", taken, Options{}, "duplicate metrics collector registration"},
		{"clash", clash, Options{}, `"ckd_passes_total"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := New(c.registry, c.options)
			if err == nil || m != nil || !strings.Contains(err.Error(), c.fragment) {
				t.Errorf("error %v, want one with %q", err, c.fragment)
			}
		})
	}
	if families, err := clash.Gather(); err != nil || len(families) != 1 {
		t.Errorf("%d families (%v) are registered after an error, want the 1 of before", len(families), err)
	}
}

// TestDecisionLog checks the series of a daemon with a decision log.
func TestDecisionLog(t *testing.T) {
	d := newDaemon(t, 0)
	d.ReadDecisionLog(func() DecisionLog { return DecisionLog{Written: 1, LeftOut: 2, Lost: 3, Waiting: 4} })
	compare(t, map[string]float64{
		`ckd_decision_log_records_total{result="written"}`: 1, `ckd_decision_log_records_total{result="left_out"}`: 2,
		`ckd_decision_log_records_total{result="lost"}`: 3, "ckd_decision_log_waiting{}": 4,
	}, only(d.values(t), "ckd_decision_log"), 0)
}
