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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/monitor/fullpass"
	"github.com/ckd-project/ckd/outcome/ledger"
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
calibrated: {expected_coverage: {value: 0.75, low: 0, high: 1}, expected_critical_miss_rate: {value: 0.0625, low: 0, high: 1}, expected_critical_fnr: {value: 0.125, low: 0, high: 1}}
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
	model.SliceUndeclared()
	model.Rejected("not_finite", 1)
	model.MessageRefused("group_open")
	model.MessageRefused("group_open")
	model.Rejected("what a client sent", 1)
	model.OtherPasses()
	model.OtherPosterior()
	model.OtherPosterior()
	model.Abandoned(2)
	model.InputsOpen(5)
	model.InputsOpen(-2)
	model.StreamsOpen(1)
	d.RejectedUnknownModel("unknown_model", 1)
	d.WatchRefused()
	d.ConnectionStalled()
	d.MemoryPressure(0.5)
	d.MemoryRefused()
	d.MemoryConnectionsEnded(2)
	d.HTTPRefused(413)
	d.AccessRefused("no_credential")
	d.BytesRefused("full")
	d.ConnectionRefused("all")
	d.SecurityReloadFailed("access")
	d.CertificateNotAfter(time.Unix(1e9, 0))
	d.ReadSaturation(func() Saturation {
		return Saturation{OpenBytes: 1, OpenBytesLimit: 2, StreamsLimit: 3, Calls: 4, CallsLimit: 5, Watches: 6, WatchesLimit: 7, RepliesUnread: 8, ArrivingBytes: 9}
	})

	h1, h3, h5 := entropyOf(3./8, 3./8, 1./4), entropyOf(1./2, 1./4, 1./4), entropyOf(4./5, 1./5)
	want := map[string]float64{
		`ckd_build_info{goversion="` + runtime.Version() + `",revision="abc",version="v1.2.3"}`: 1,
		`ckd_policy_info{hash="` + p.Hash + `",model="m",version="one"}`:                        1,

		`ckd_decisions_total{action="retain",model="m",reason="under_threshold",score="c_crit_max"}`: 1,
		`ckd_decisions_total{action="defer",model="m",reason="above_threshold",score="c_crit_max"}`:  2,
		`ckd_decisions_total{action="defer",model="m",reason="degenerate",score="c_crit_max"}`:       1,
		`ckd_decisions_total{action="defer",model="m",reason="saturated",score="c_crit_max"}`:        1,
		`ckd_decisions_total{action="defer",model="m",reason="softmax_twice",score="c_crit_max"}`:    0,

		`ckd_class_epistemic_nats_sum{class="a",model="m"}`:            1./24 + 1./2 + 1./8,
		`ckd_class_epistemic_nats_sum{class="b",model="m"}`:            1./24 + 1./2 + 1./2,
		`ckd_class_epistemic_nats_sum{class="c",model="m"}`:            0,
		`ckd_class_skewness_ratio_sum{class="a",model="m"}`:            0.2,
		`ckd_class_skewness_ratio_sum{class="b",model="m"}`:            0.8,
		`ckd_class_skewness_ratio_sum{class="c",model="m"}`:            0,
		`ckd_class_unreliable_total{class="a",model="m"}`:              0,
		`ckd_class_unreliable_total{class="b",model="m"}`:              1,
		`ckd_class_unreliable_total{class="c",model="m"}`:              0,
		`ckd_class_predicted_total{class="a",model="m"}`:               4,
		`ckd_class_predicted_total{class="b",model="m"}`:               0,
		`ckd_class_predicted_total{class="c",model="m"}`:               1,
		`ckd_class_dominant_total{class="a",model="m"}`:                2,
		`ckd_class_dominant_total{class="b",model="m"}`:                1,
		`ckd_class_dominant_total{class="c",model="m"}`:                0,
		`ckd_class_deciding_total{class="a",model="m"}`:                0,
		`ckd_class_deciding_total{class="b",model="m"}`:                2,
		`ckd_class_deciding_total{class="c",model="m"}`:                0,
		`ckd_class_labels_cut{model="m"}`:                              0,
		`ckd_epistemic_sum_nats_sum{model="m"}`:                        1./12 + 1 + 5./8,
		`ckd_predictive_entropy_nats_sum{model="m"}`:                   h1 + math.Ln2 + h3 + h5,
		`ckd_mutual_information_nats_sum{model="m"}`:                   h1 - h3 + math.Ln2 + h5, // the mean entropy of the first input's passes is h3
		`ckd_passes_total{model="m"}`:                                  13,
		`ckd_inputs_fallback_total{model="m"}`:                         0,
		`ckd_passes_late_total{model="m"}`:                             7,
		`ckd_inputs_degenerate_total{model="m"}`:                       2,
		`ckd_inputs_saturated_total{model="m"}`:                        1,
		`ckd_inputs_abandoned_total{model="m"}`:                        2,
		`ckd_slices_undeclared_total{model="m"}`:                       1,
		`ckd_inputs_open{model="m"}`:                                   3,
		`ckd_streams_open{model="m"}`:                                  1,
		`ckd_inputs_rejected_total{model="m",reason="not_finite"}`:     1,
		`ckd_inputs_rejected_total{model="m",reason="unknown_model"}`:  0,
		`ckd_inputs_rejected_total{model="m",reason="other"}`:          1,
		`ckd_inputs_rejected_total{model="",reason="not_finite"}`:      0,
		`ckd_inputs_rejected_total{model="",reason="unknown_model"}`:   1,
		`ckd_policy_last_reload_successful{}`:                          0,
		`ckd_policy_last_reload_success_timestamp_seconds{}`:           0,
		`ckd_panics_total{}`:                                           0,
		`ckd_http_requests_refused_total{code="413"}`:                  1,
		`ckd_access_refused_total{reason="no_credential"}`:             1,
		`ckd_open_bytes_refused_total{reason="full"}`:                  1,
		`ckd_connections_refused_total{limit="all"}`:                   1,
		"ckd_connections_limit{}":                                      0,
		`ckd_connections_open{address="admin"}`:                        0,
		`ckd_connections_open{address="grpc"}`:                         0,
		`ckd_connections_open{address="http"}`:                         0,
		`ckd_connections_refused_total{limit="address"}`:               0,
		`ckd_security_reloads_failed_total{files="access"}`:            1,
		`ckd_security_reloads_failed_total{files="certificates"}`:      0,
		`ckd_certificate_not_after_timestamp_seconds{}`:                1e9,
		`ckd_open_bytes{}`:                                             1,
		`ckd_open_bytes_limit{}`:                                       2,
		`ckd_arriving_bytes{}`:                                         9,
		`ckd_streams_limit{}`:                                          3,
		`ckd_memory_pressure{}`:                                        0.5,
		`ckd_memory_refused_total{}`:                                   1,
		`ckd_memory_connections_ended_total{}`:                         2,
		`ckd_calls_open{}`:                                             4,
		`ckd_calls_limit{}`:                                            5,
		`ckd_replies_unread{}`:                                         8,
		`ckd_connections_stalled_total{}`:                              1,
		`ckd_watches_open{}`:                                           6,
		`ckd_watches_limit{}`:                                          7,
		`ckd_watches_refused_total{}`:                                  1,
		`ckd_messages_refused_total{model="m",reason="group_open"}`:    2,
		`ckd_calibration_mismatches_total{model="m",what="passes"}`:    1,
		`ckd_calibration_mismatches_total{model="m",what="posterior"}`: 2,
		`ckd_policy_expected_coverage{model="m"}`:                      0.75,
		`ckd_policy_expected_critical_miss_rate{model="m"}`:            0.0625,
		`ckd_policy_expected_critical_fnr{model="m"}`:                  0.125,

		`ckd_pair_confusion_nats_total{class_a="a",class_b="b",model="m"}`: 1./24 + 1./2 + 1./4,
		`ckd_pair_confusion_nats_total{class_a="a",class_b="c",model="m"}`: 0,
	}
	for _, name := range []string{"ckd_mutual_information_nats", "ckd_predictive_entropy_nats", "ckd_epistemic_sum_nats"} {
		want[name+`{model="m"}`] = 5
	}
	for _, class := range p.Classes {
		want[`ckd_class_epistemic_nats{class="`+class+`",model="m"}`] = 5
		want[`ckd_class_skewness_ratio{class="`+class+`",model="m"}`] = 5
	}
	for _, code := range []string{"400", "403", "404", "405", "408", "415", "429"} {
		want[`ckd_http_requests_refused_total{code="`+code+`"}`] = 0
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

// TestRecording counts a whole recording. An independent float64 implementation of the paper's
// definitions (sample variance) computed the expected numbers for all its 2126 inputs.
func TestRecording(t *testing.T) {
	const inputs = 2126
	d := newDaemon(t, 0)
	p, m := parse(t, "name: ctg\nclasses: [normal, suspect, pathologic]\ncritical: [suspect, pathologic]\npairs: all")
	model := d.put(p, m)
	recorded(t, m, "ctg-mcdropout", func(o *engine.Outcome) { model.Observe(0, o.Result, o.Decision) })

	got := d.values(t)
	check := func(want, per float64, name string, labels ...string) {
		t.Helper()
		labels = append(labels, `model="ctg"`)
		slices.Sort(labels)
		name += "{" + strings.Join(labels, ",") + "}"
		if g, ok := got[name]; !ok || !(math.Abs(g/per-want) <= 1e-9) {
			t.Errorf("%s/%v is %v (%v), want %v", name, per, g/per, ok, want)
		}
	}
	// These are means over inputs: the epistemic confusion matrix, C_k, skewness, MI.
	check(0.007121379292345986, inputs, "ckd_pair_confusion_nats_total", `class_a="normal"`, `class_b="suspect"`)
	check(0.00674562427814097, inputs, "ckd_pair_confusion_nats_total", `class_a="normal"`, `class_b="pathologic"`)
	check(0.0022128531603224253, inputs, "ckd_pair_confusion_nats_total", `class_a="suspect"`, `class_b="pathologic"`)
	check(0.03665159899542136, inputs, "ckd_mutual_information_nats_sum")
	check(0.01454180004710206+0.01736621462455906+0.016012792615568178, inputs, "ckd_epistemic_sum_nats_sum")
	for _, class := range []struct {
		name                            string
		c, skewness                     float64
		predicted, dominant, unreliable float64
	}{
		{"normal", 0.01454180004710206, 0.19765976766282495, 1676, 328, inputs - 1866},
		{"suspect", 0.01736621462455906, 2.2041647792677606, 287, 1413, inputs - 522},
		{"pathologic", 0.016012792615568178, 3.483510830554486, 163, 385, inputs - 246},
	} {
		label := `class="` + class.name + `"`
		check(class.c, inputs, "ckd_class_epistemic_nats_sum", label)
		check(class.skewness, inputs, "ckd_class_skewness_ratio_sum", label)
		check(class.predicted, 1, "ckd_class_predicted_total", label)
		check(class.dominant, 1, "ckd_class_dominant_total", label)
		check(class.unreliable, 1, "ckd_class_unreliable_total", label)
		check(0, 1, "ckd_class_deciding_total", label)
		check(inputs, 1, "ckd_class_epistemic_nats", label)
	}
	// The gate lets the fallback decide 0.9571966 of the inputs.
	check(2035, 1, "ckd_decisions_total", `action="observe"`, `score="cbec"`, `reason="observing"`)
	check(inputs-2035, 1, "ckd_decisions_total", `action="observe"`, `score="c_crit_max"`, `reason="observing"`)
	check(30*inputs, 1, "ckd_passes_total")
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
			if v != 3e6 {
				t.Errorf("%s is %v, want 3e6", name, v)
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

// TestPrecreated checks that every family has its series at zero before the first input, and
// well-formed names and help.
func TestPrecreated(t *testing.T) {
	d := newDaemon(t, 0)
	d.options.Receipts = true
	p, m := parse(t, threeClasses)
	with := *p
	with.Calibration = &policy.Calibration{
		ExpectedCoverage:         &policy.Interval{Value: 0.75, Low: 0.5, High: 1},
		ExpectedCriticalMissRate: &policy.Interval{High: 1},
		ExpectedCriticalFNR:      &policy.Interval{High: 1},
		Reference:                withReference(p, results{zeroResult(m, 3)}, 0, 2).Calibration.Reference,
	}
	with.Risk = &policy.Risk{}
	d.put(withRule(&with), m)
	d.ReadFullPassChecks(func() map[string]fullpass.Status { return watched(t, "m", 0) })
	d.ReadPromises(func() []*ledger.Promise { return []*ledger.Promise{tooFew()} })
	d.ReadStateTime(func() time.Time { return time.Now().Add(time.Hour) }) // an age is never negative
	d.MemoryPressure(0)
	values := d.values(t)
	for _, f := range d.collector.families {
		if len(namesOf(values, f.name+"{")) == 0 {
			t.Errorf("%s has no series", f.name)
		}
	}
	for name, v := range values {
		if v != 0 && !strings.Contains(name, "_info{") && !strings.Contains(name, "_expected_") && !strings.Contains(name, "_smallest_") &&
			!strings.HasPrefix(name, "ckd_settle_disagreement_") && !strings.HasPrefix(name, "ckd_settle_evidence_limit") &&
			!strings.HasPrefix(name, "ckd_promise") {
			t.Errorf("%s is %v before the first input", name, v)
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
	is, n := parse(t, strings.NewReplacer("version: one", "version: two", "[a, b, c]", "[b, a, d]", "[b, c]", "[d]",
		"gate: never", "gate: always", "primary: {score: c_crit_max,", "fallback: {score: cbec,").Replace(threeClasses))
	after := d.put(is, n)
	values := d.values(t)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"ckd_policy_info", []string{`ckd_policy_info{hash="` + is.Hash + `",model="m",version="two"}`}},
		{"ckd_class_predicted_total", []string{
			`ckd_class_predicted_total{class="a",model="m"}`,
			`ckd_class_predicted_total{class="b",model="m"}`,
			`ckd_class_predicted_total{class="d",model="m"}`,
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
	d.put(is, n)
	compare(t, values, d.values(t), 0)
}

// TestExpected checks that the expected shares follow the policy in force, and are absent if it
// does not state them.
func TestExpected(t *testing.T) {
	d := newDaemon(t, 0)
	for _, c := range []struct {
		calibration             string
		coverage, missRate, fnr float64 // -1 for no series
		low, high               float64 // bounds of the coverage
	}{
		{"{expected_coverage: {value: 0.5}}", 0.5, -1, -1, -1, -1},
		{"{expected_coverage: {value: 0.75, low: 0.5}, expected_critical_fnr: {value: 0}}", 0.75, -1, 0, 0.5, 1},
		{"{expected_critical_miss_rate: {value: 0}, expected_critical_fnr: {value: 0.25, low: 0.125}}", -1, 0, 0.25, -1, -1},
		{"{expected_critical_miss_rate: {value: 0.25, low: 0.125}}", -1, 0.25, -1, -1, -1},
		{"{expected_coverage: {value: 0.75, high: 0.875}}", 0.75, -1, -1, 0, 0.875},
		{"{}", -1, -1, -1, -1, -1},
		{"{expected_coverage: {value: 0.75}, expected_critical_miss_rate: {value: 0.125}, expected_critical_fnr: {value: 0.5}}", 0.75, 0.125, 0.5, -1, -1},
		{"", -1, -1, -1, -1, -1},
	} {
		t.Run("calibration "+c.calibration, func(t *testing.T) {
			fields := "name: m\nclasses: [a, b]\ncritical: [b]"
			if c.calibration != "" {
				fields += "\ncalibration: " + c.calibration
			}
			d.put(parse(t, fields))
			values := d.values(t)
			for name, want := range map[string]float64{
				"ckd_policy_expected_coverage":           c.coverage,
				"ckd_policy_expected_critical_miss_rate": c.missRate, "ckd_policy_expected_critical_fnr": c.fnr,
				"ckd_policy_expected_coverage_low": c.low, "ckd_policy_expected_coverage_high": c.high,
			} {
				got, told := values[name+`{model="m"}`]
				if !told {
					got = -1
				}
				if got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
			for _, what := range []string{"passes", "posterior"} {
				if n, told := values[`ckd_calibration_mismatches_total{model="m",what="`+what+`"}`]; n != 0 || !told {
					t.Errorf("%v mismatches of the %s (%v), want 0", n, what, told)
				}
			}
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
	again.StreamsOpen(1)
	values := d.values(t)
	if got := values[`ckd_streams_open{model="m"}`]; got != 1 {
		t.Errorf("%v streams open, want 1", got)
	}
	for _, name := range []string{`ckd_inputs_open{model="m"}`, `ckd_passes_total{model="m"}`, `ckd_passes_used{model="m"}`} {
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
		for name, whole := range map[string]int{"ckd_class_predicted_total n": 3, "ckd_policy_info n": 1} {
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
			model.FullPassChecked(fullpass.WronglyRetained, 3, 15)
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
		{"labels", prometheus.NewRegistry(), Options{ClassLabels: -1}, "-1 class labels: expected at least 1"},
		{"reason", prometheus.NewRegistry(), Options{RejectReasons: []string{"\xff"}}, `reject reason "\xff"`},
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

// TestCreated checks that every counter and histogram says since when it has counted.
func TestCreated(t *testing.T) {
	before := timestamppb.Now().AsTime()
	d := newDaemon(t, 0)
	d.put(parse(t, threeClasses))
	for _, f := range d.gather(t) {
		for _, m := range f.GetMetric() {
			var created *timestamppb.Timestamp
			switch {
			case m.GetCounter() != nil:
				created = m.GetCounter().GetCreatedTimestamp()
			case m.GetHistogram() != nil:
				created = m.GetHistogram().GetCreatedTimestamp()
			default:
				continue
			}
			if at := created.AsTime(); at.Before(before) || at.After(timestamppb.Now().AsTime()) {
				t.Errorf("%s was created %v, want since %v", f.GetName(), at, before)
			}
		}
	}
}
