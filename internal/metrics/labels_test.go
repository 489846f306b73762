package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

func TestClassLabels(t *testing.T) {
	for _, c := range []struct {
		classes  string
		critical []int
		most     int
		want     string // labels by class
		cut      int
	}{
		{"a b c", []int{2}, 3, "a b c", 0},
		{"a b c", []int{2}, 32, "a b c", 0},
		{"a b c d", []int{2}, 3, "a b c other", 1},
		{"a b c d", []int{3}, 3, "a b other d", 1},
		{"a b c d", []int{1, 3}, 1, "other b other other", 3},
		{"a b c d", nil, 2, "a b other other", 2},
		{"a other c", []int{2}, 3, "a other c", 0},
		{"a other c d", []int{2}, 3, "a other c _other", 1},
		{"other b c d", []int{1, 2, 3}, 3, "_other b c d", 1},
		{"a other _other d", []int{3}, 2, "a __other __other d", 2},
	} {
		t.Run(fmt.Sprintf("%s, at most %d", c.classes, c.most), func(t *testing.T) {
			l := newClassLabels(&policy.Policy{Classes: strings.Fields(c.classes), Critical: c.critical}, c.most)
			var got []string
			for k := range l.byClass {
				got = append(got, l.names[l.byClass[k]])
				if shared := !slices.Contains(strings.Fields(c.classes), l.names[l.byClass[k]]); l.isCut(k) != shared {
					t.Errorf("class %d is cut: %v", k, l.isCut(k))
				}
			}
			if strings.Join(got, " ") != c.want || l.cut != c.cut {
				t.Errorf("labels %q, %d cut, want %s, %d", got, l.cut, c.want, c.cut)
			}
			if own := len(slices.Compact(slices.Sorted(slices.Values(l.names)))); own != len(l.names) || own > c.most+1 {
				t.Errorf("labels %q", l.names)
			}
		})
	}
}

// TestCut checks that classes without labels add up under the shared label to what they are with
// labels.
func TestCut(t *testing.T) {
	p, m := manyClasses(t, 6, 1, 4)
	whole, cut := newDaemon(t, 0), newDaemon(t, 3)
	w, c := whole.put(p, m), cut.put(p, m)
	outcomes(t, m, randomInputs(5, 200, 10, 6), func(o *engine.Outcome) {
		w.Observe(0, o.Result, o.Decision)
		c.Observe(0, o.Result, o.Decision)
	})
	all, some := whole.values(t), cut.values(t)
	if got := some[`ckd_class_labels_cut{model="m"}`]; got != 3 {
		t.Errorf("%v classes cut, want 3", got)
	}
	if got, want := namesOf(some, "ckd_pair_"), []string{
		`ckd_pair_confusion_nats_total{class_a="c0",class_b="c1",model="m"}`,
		`ckd_pair_confusion_nats_total{class_a="c0",class_b="c4",model="m"}`,
	}; !slices.Equal(got, want) {
		t.Errorf("pairs %q, want %q", got, want)
	}
	for name, got := range some {
		if strings.HasPrefix(name, "ckd_class_labels_cut") {
			continue
		}
		want, ok := all[name]
		if strings.Contains(name, `"other"`) {
			for _, class := range []string{"c2", "c3", "c5"} {
				want += all[strings.Replace(name, "other", class, 1)]
			}
			ok = want > 0 || strings.HasPrefix(name, "ckd_class_deciding")
		}
		if !ok || got < want*(1-1e-12) || got > want*(1+1e-12) {
			t.Errorf("%s is %v, want %v (%v)", name, got, want, ok)
		}
	}
}

// TestNumberOfSeries checks that fifty models of a hundred classes, all of which traffic reaches, have
// fewer than 15,000 samples in the text that a Prometheus without native histograms reads, and that
// classic buckets of classes are there where they are asked for.
func TestNumberOfSeries(t *testing.T) {
	p, m := manyClasses(t, 100, 0, 40, 80, 99)
	p.Primary.Threshold, p.Primary.HasThreshold = 0.01, true
	p.Fallback.Threshold, p.Fallback.HasThreshold = 0.1, true
	text := func(models int, o Options) string {
		registry := prometheus.NewPedanticRegistry()
		all, err := New(registry, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range models {
			named := *p
			named.Name = fmt.Sprintf("m%d", i)
			model := all.Model(&named, m.Plan())
			outcomes(t, m, randomInputs(1, 100, 10, 100), func(o *engine.Outcome) { // normal logits
				model.Observe(0, o.Result, o.Decision)
			})
			r := m.Plan().NewResult()
			r.C, r.Skewness = slices.Repeat([]float64{0.1}, 100), slices.Repeat([]float64{1}, 100)
			for k := range p.Classes { // each class once predicted, dominant and deciding
				r.Predicted, r.Dominant = k, k
				model.Observe(0, r, policy.Decision{Action: policy.Defer, Score: policy.CBEC, Gate: policy.ByFallback, Reason: policy.AboveThreshold, Class: k})
			}
		}
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return answer.Body.String()
	}
	samples := 0
	for line := range strings.Lines(text(50, Options{RejectReasons: slices.Concat(faultyInputs, withoutRoom)})) {
		if !strings.HasPrefix(line, "#") {
			samples++
		}
	}
	if t.Logf("%d samples", samples); samples < 5_000 || samples >= 15_000 {
		t.Errorf("%d samples, want fewer than 15,000", samples)
	}
	const bucket = `ckd_class_epistemic_nats_bucket{class="c0",model="m0",le="0.1"}`
	if strings.Contains(text(1, Options{}), bucket) || !strings.Contains(text(1, Options{ClassBuckets: true}), bucket) {
		t.Errorf("%s: want it with ClassBuckets alone", bucket)
	}
}

// TestDecisions checks which decisions have a series from the start, and that any other has one once it
// is taken.
func TestDecisions(t *testing.T) {
	const series = `ckd_decisions_total{action=%q,model="m",reason=%q,score=%q}`
	thresholds := func(gate string) string {
		return "name: m\nclasses: [a, b, c]\ncritical: [b]\ngate: " + gate +
			"\nprimary: {score: mi, threshold: 0.5}\nfallback: {score: cbec, threshold: 0.5}"
	}
	retainMI, deferMI := fmt.Sprintf(series, "retain", "under_threshold", "mi"), fmt.Sprintf(series, "defer", "above_threshold", "mi")
	retainCBEC, deferCBEC := fmt.Sprintf(series, "retain", "under_threshold", "cbec"), fmt.Sprintf(series, "defer", "above_threshold", "cbec")
	for text, want := range map[string][]string{
		thresholds("any-critical"):                   {deferCBEC, deferMI, retainCBEC, retainMI},
		thresholds("always"):                         {deferCBEC, retainCBEC},
		thresholds("never"):                          {deferMI, retainMI},
		"name: m\nclasses: [a, b, c]\ncritical: [b]": {fmt.Sprintf(series, "observe", "observing", "c_crit_max"), fmt.Sprintf(series, "observe", "observing", "cbec")},
	} {
		d := newDaemon(t, 0)
		p, m := parse(t, text)
		model := d.put(p, m)
		if got := namesOf(d.values(t), "ckd_decisions_total"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		r := m.Plan().NewResult()
		r.C, r.Skewness, r.Dominant = make([]float64, 3), make([]float64, 3), -1
		for range 2 {
			model.Observe(0, r, policy.Decision{Action: policy.Defer, Score: policy.MI, Gate: policy.ByPrimary, Reason: policy.IsDegenerate, Class: -1})
		}
		if got := d.values(t)[fmt.Sprintf(series, "defer", "degenerate", "mi")]; got != 2 {
			t.Errorf("%s: %v degenerate inputs, want 2", text, got)
		}
	}
}
