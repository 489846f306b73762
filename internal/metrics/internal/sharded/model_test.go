package sharded_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	. "github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// TestHistograms compares all histograms of a model, whatever shards its inputs were counted in, with
// those of client_golang that observed the same values.
func TestHistograms(t *testing.T) {
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(
		"models: [{name: m, classes: [c0, c1, c2, c3, c4, c5, c6, c7, c8], critical: [c2, c7]}]")})
	if err != nil {
		t.Fatal(err)
	}
	p := set.All()[0]
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	labels := []string{"c0", "c1", "c2", "other", "other", "other", "other", "c7", "other"}
	corners := map[string][]float64{
		"contribution": Corners(Contribution), "total": Corners(Total), "entropy": Corners(Entropy), "ratio": Corners(Ratio),
	}
	before := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	rapid.Check(t, func(t *rapid.T) {
		value := func(name string) float64 {
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				return 0
			case 2, 3, 4:
				return rapid.SampledFrom(corners[name]).Draw(t, name)
			case 5:
				return rapid.Float64().Draw(t, name)
			default:
				return math.Exp(rapid.Float64Range(-16, 8).Draw(t, name))
			}
		}
		registry := prometheus.NewRegistry()
		all, err := metrics.New(registry, metrics.Options{ClassLabels: 4, ClassBuckets: true})
		if err != nil {
			t.Fatal(err)
		}
		model := all.Model(p, m.Plan())
		type reference struct {
			prometheus.Histogram
			absolute float64 // sum of the values
		}
		references := make(map[string]*reference)
		observe := func(name, label string, of Scale, v float64) {
			r := references[name+label]
			if r == nil {
				r = &reference{NewReference(of), 0}
				references[name+label] = r
			}
			ObserveReference(r.Histogram, of, v)
			if !math.IsNaN(v) {
				r.absolute += min(max(v, 0), of.Top)
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			rec := model.Record(rapid.Uint32().Draw(t, "hint"))
			for range rapid.IntRange(1, 3).Draw(t, "inputs") {
				r := m.Plan().NewResult()
				r.C, r.Skewness = make([]float64, len(labels)), make([]float64, len(labels))
				for k, label := range labels {
					r.C[k], r.Skewness[k] = value("contribution"), value("ratio")
					observe("ckd_class_epistemic_nats", label, Contribution, r.C[k])
					observe("ckd_class_skewness_ratio", label, Ratio, r.Skewness[k])
				}
				r.MI, r.Entropy = value("total"), value("entropy")
				observe("ckd_mutual_information_nats", "", Total, r.MI)
				observe("ckd_predictive_entropy_nats", "", Entropy, r.Entropy)
				rec.Observe(r, &policy.Decision{Action: policy.Observe, Score: policy.CCritMax, Reason: policy.Observing, Class: -1})
			}
			rec.Done()
		}
		for name, got := range histograms(t, registry) {
			want := references[name]
			if want == nil {
				t.Fatalf("%s was not expected", name)
			}
			if problem := Differs(got, want.Histogram, want.absolute); problem != "" {
				t.Errorf("%s: %s", name, problem)
			}
			delete(references, name)
		}
		if len(references) > 0 {
			t.Errorf("%d histograms are missing", len(references))
		}
	})
}

// histograms returns the histograms of a scrape by name and class.
func histograms(t *rapid.T, registry *prometheus.Registry) map[string]*dto.Histogram {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]*dto.Histogram)
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "class" {
					name += l.GetValue()
				}
			}
			found[name] = m.GetHistogram()
		}
	}
	return found
}
