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

	"github.com/ckd-project/ckd/decomp"
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
			for k := range l.of {
				got = append(got, l.names[l.of[k]])
				if shared := !slices.Contains(strings.Fields(c.classes), l.names[l.of[k]]); l.isCut(k) != shared {
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

// TestDecisionsOf checks that exactly the decisions that Decide takes have a counter, over all
// kinds of policies and evidence.
func TestDecisionsOf(t *testing.T) {
	forEach := func(values ...string) []string { return values }
	tried := 0
	for _, kind := range forEach("probabilities", "dirichlet") {
		for _, gate := range forEach("any-critical", "always", "never") {
			for _, scope := range forEach("all", "predicted-safe") {
				for _, degenerate := range forEach("defer", "retain", "score") {
					for _, saturated := range forEach("defer", "retain", "score") {
						for _, rules := range forEach(
							"primary: {score: c_crit_max, threshold: 0.5}\nfallback: {score: cbec, threshold: 0.5}",
							"primary: {score: mi, threshold: 0.5}\nfallback: {score: mi, threshold: 0.5}",
							"primary: {score: mi}",
						) {
							p, m := parse(t, fmt.Sprintf("name: m\nclasses: [a, b, c]\ncritical: [b]\nkind: %s\ngate: %s\n"+
								"scope: %s\ndegenerate: %s\nsaturated: %s\n%s", kind, gate, scope, degenerate, saturated, rules))
							checkDecisions(t, p, m)
							tried++
						}
					}
				}
			}
		}
	}
	if tried != 2*3*2*3*3*3 {
		t.Errorf("%d policies tried", tried)
	}
}

func checkDecisions(t *testing.T, p *policy.Policy, m *engine.Model) {
	t.Helper()
	possible := make(map[string]bool)
	for _, e := range evidence(p) {
		d := p.Decide(e)
		possible[fmt.Sprintf(`ckd_decisions_total{action=%q,model="m",reason=%q,score=%q}`, d.Action, d.Reason, d.Score)] = true
	}
	d := newDaemon(t, 0)
	d.put(p, m)
	declared := namesOf(d.values(t), "ckd_decisions_total")
	for _, name := range declared {
		if !possible[name] {
			t.Errorf("%s is declared, and cannot be: %+v", name, p)
		}
		delete(possible, name)
	}
	for name := range possible {
		t.Errorf("%s is not declared: %+v", name, p)
	}
}

// evidence returns all kinds of evidence under the policy.
func evidence(p *policy.Policy) []policy.Evidence {
	var all []policy.Evidence
	for predicted := range p.Classes {
		if p.Kind != policy.Dirichlet {
			alike := policy.Evidence{PrimaryClass: -1, FallbackClass: -1, Predicted: predicted, Degenerate: true}
			for _, skewness := range []float64{0, decomp.SkewnessCap(30, decomp.Sample)} { // of passes that hardly differ
				alike.Skewness = []float64{skewness, skewness, skewness}
				for _, alike.SoftmaxTwice = range []bool{false, true} {
					all = append(all, alike)
				}
			}
			alike.Skewness, alike.Saturated, alike.SoftmaxTwice = make([]float64, len(p.Classes)), true, false
			all = append(all, alike)
		}
		for _, value := range []float64{0, 1} {
			for _, skewness := range []float64{0, decomp.SkewnessCap(30, decomp.Sample)} {
				all = append(all, policy.Evidence{
					Predicted: predicted, Primary: value, Fallback: value,
					PrimaryClass: 1, FallbackClass: 1, Skewness: []float64{skewness, skewness, skewness},
				})
			}
		}
	}
	return all
}
