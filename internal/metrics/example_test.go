package metrics_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/policy"
)

// A decided input is counted under the model of its policy.
func Example() {
	set, err := policy.Parse(policy.File{Name: "policy.yaml", Data: []byte(`
models:
  - name: triage
    classes: [benign, malignant]
    critical: [malignant]
    passes: {fewest: 2}
    gate: never
    primary: {score: c_crit_max, threshold: 0.05}
`)})
	if err != nil {
		log.Fatal(err)
	}
	p := set.All()[0]
	m, err := engine.New(p)
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	all, err := metrics.New(registry, metrics.Options{RejectReasons: []string{"not_finite"}})
	if err != nil {
		log.Fatal(err)
	}
	model := all.Model(p, m.Plan()) // from now on all its series exist, at zero

	outcome, batch := m.NewOutcome(), m.NewBatch()
	passes := decomp.Tensor{Passes: 2, Inputs: 1, Float32: []float32{0.8, 0.2, 0.2, 0.8}}
	if err := batch.Reset(passes); err != nil {
		log.Fatal(err)
	}
	if err := batch.Outcome(0, outcome); err != nil {
		log.Fatal(err)
	}
	recorder := model.Record(0)
	recorder.Observe(outcome.Result, &outcome.Decision)
	recorder.Done()

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ckd_decisions_total" {
			continue
		}
		for _, series := range f.GetMetric() {
			if n := series.GetCounter().GetValue(); n > 0 {
				fmt.Println(f.GetName(), n)
				for _, l := range series.GetLabel() {
					fmt.Printf("  %s=%s\n", l.GetName(), l.GetValue())
				}
			}
		}
	}
	// Output:
	// ckd_decisions_total 1
	//   action=defer
	//   model=triage
	//   reason=above_threshold
	//   score=c_crit_max
}
