package metrics

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

// daemon is a registry with the metrics of a daemon.
type daemon struct {
	*Metrics
	registry *prometheus.Registry
}

var testReasons = []string{"not_finite", "unknown_model"}

func newDaemon(t testing.TB, classLabels int) daemon {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := New(registry, Options{
		ClassLabels: classLabels, RejectReasons: testReasons, MessageReasons: []string{"group_open"}, AccessReasons: []string{"no_credential"}, Version: "v1.2.3", Revision: "abc",
	})
	if err != nil {
		t.Fatal(err)
	}
	return daemon{m, registry}
}

// put puts the policy in force.
func (d daemon) put(p *policy.Policy, m *engine.Model) *Model { return d.Model(p, m.Plan()) }

// values of all series, by name{label="value",...} in the order of the labels'
// names: of a histogram its count, and as name_sum its sum.
func (d daemon) values(t testing.TB) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	for _, f := range d.gather(t) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			at := "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				values[f.GetName()+at] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				values[f.GetName()+at] = m.GetGauge().GetValue()
			default:
				values[f.GetName()+at] = float64(m.GetHistogram().GetSampleCount())
				values[f.GetName()+"_sum"+at] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return values
}

func (d daemon) gather(t testing.TB) []*dto.MetricFamily {
	t.Helper()
	families, err := d.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// namesOf the series whose name begins so, sorted.
func namesOf(values map[string]float64, prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(values)), func(name string) bool {
		return !strings.HasPrefix(name, prefix)
	})
}

// parse makes the policy of a model out of its fields in YAML, and binds it.
func parse(t testing.TB, fields string) (*policy.Policy, *engine.Model) {
	t.Helper()
	text := "models:\n  - " + strings.ReplaceAll(strings.TrimSpace(fields), "\n", "\n    ") + "\n"
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p := set.All()[0]
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

// manyClasses is a policy of classes c0, c1, ..., the given ones critical.
func manyClasses(t testing.TB, k int, critical ...int) (*policy.Policy, *engine.Model) {
	t.Helper()
	names := func(classes []int) string {
		var list []string
		for _, c := range classes {
			list = append(list, fmt.Sprintf("c%d", c))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	all := make([]int, k)
	for c := range all {
		all[c] = c
	}
	return parse(t, "name: m\nclasses: "+names(all)+"\ncritical: "+names(critical))
}

// outcomes decides on rows [inputs][passes][classes].
func outcomes(t testing.TB, m *engine.Model, inputs [][][]float32, each func(*engine.Outcome)) {
	t.Helper()
	o, b := m.NewOutcome(), m.NewBatch()
	for i, passes := range inputs {
		in := m.Open(1, len(passes))
		for _, row := range passes {
			if err := in.Add(b, 0, row); err != nil {
				t.Fatalf("input %d: %v", i, err)
			}
		}
		if err := in.Finish(b, 0, 1); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		if err := b.Outcome(0, o); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		each(o)
	}
}

// randomInputs is softmaxes of normal logits.
func randomInputs(seed uint64, inputs, passes, classes int) [][][]float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([][][]float32, inputs)
	for i := range all {
		center := make([]float64, classes)
		for k := range center {
			center[k] = 2 * random.NormFloat64()
		}
		for range passes {
			row, sum := make([]float64, classes), 0.0
			for k := range row {
				row[k] = math.Exp(center[k] + random.NormFloat64()/2)
				sum += row[k]
			}
			narrow := make([]float32, classes)
			for k := range row {
				narrow[k] = float32(row[k] / sum)
			}
			all[i] = append(all[i], narrow)
		}
	}
	return all
}

// Observe counts one input by itself.
func (m *Model) Observe(hint uint32, r *decomp.Result, d policy.Decision) {
	recorder := m.Record(hint)
	defer recorder.Done()
	recorder.Observe(r, d)
}
