package metrics

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

// daemon holds a registry with the metrics of a daemon.
type daemon struct {
	*Metrics
	registry *prometheus.Registry
}

var testReasons = []string{"not_finite", "unknown_model"}

func newDaemon(t testing.TB, classLabels int) daemon {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := New(registry, Options{
		ClassLabels: classLabels, RejectReasons: testReasons, Version: "v1.2.3", Revision: "abc",
	})
	if err != nil {
		t.Fatal(err)
	}
	return daemon{m, registry}
}

// put puts the policy in force.
func (d daemon) put(p *policy.Policy, m *engine.Model) *Model { return d.Model(p, m.Plan()) }

// values returns all series by name{label="value",...}, with labels in the order of their names. A
// histogram has its count, and as name_sum its sum.
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

// compare compares series up to a tolerance.
func compare(t testing.TB, want, got map[string]float64, tolerance float64) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, tolerance)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// only returns the series whose names begin with one of the prefixes.
func only(values map[string]float64, prefixes ...string) map[string]float64 {
	found := maps.Clone(values)
	maps.DeleteFunc(found, func(name string, _ float64) bool {
		return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return found
}

// namesOf returns the series whose names have the prefix, sorted.
func namesOf(values map[string]float64, prefix string) []string {
	return slices.Sorted(maps.Keys(only(values, prefix)))
}

// parse returns the model of a policy given by its fields in YAML.
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

// manyClasses returns a policy of classes c0, c1, ..., with the given ones critical.
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

// outcomes calls each with the decision on every input, [inputs][passes][classes].
func outcomes(t testing.TB, m *engine.Model, inputs [][][]float32, each func(*engine.Outcome)) {
	t.Helper()
	o, b := m.NewOutcome(), m.NewBatch()
	for i, passes := range inputs {
		tensor := decomp.Tensor{Passes: len(passes), Inputs: 1, Float32: slices.Concat(passes...)}
		if err := b.Reset(tensor); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		if err := b.Outcome(0, o); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		each(o)
	}
}

// recorded calls each with the decision on every input of a recording.
func recorded(t testing.TB, m *engine.Model, name string, each func(*engine.Outcome)) {
	t.Helper()
	passes, err := record.ReadPasses("../recordings/"+name+".passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := m.NewBatch()
	if err := b.Reset(decomp.Tensor{Passes: passes.S, Inputs: passes.N, Float32: passes.Float32}); err != nil {
		t.Fatal(err)
	}
	for i := range passes.N {
		o := m.NewOutcome()
		if err := b.Outcome(i, o); err != nil {
			t.Fatal(err)
		}
		each(o)
	}
}

// randomInputs returns softmaxes of normal logits.
var randomInputs = recordings.Random

// meanwhile repeats work on several goroutines until all others are done.
func meanwhile(workers int, work func(worker int), others ...func()) {
	var working, rest sync.WaitGroup
	done := make(chan struct{})
	for w := range workers {
		working.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				work(w)
				runtime.Gosched() // else the others wait a time slice for each lock
			}
		})
	}
	for _, other := range others {
		rest.Go(other)
	}
	rest.Wait()
	close(done)
	working.Wait()
}

// observed is the decision of a policy without thresholds.
var observed = policy.Decision{
	Action: policy.Observe, Score: policy.CCritMax, Reason: policy.Observing, Class: -1,
}

// Observe counts one input by itself.
func (m *Model) Observe(hint uint32, r *decomp.Result, d policy.Decision) {
	recorder := m.Record(hint)
	defer recorder.Done()
	recorder.Observe(r, &d)
}
