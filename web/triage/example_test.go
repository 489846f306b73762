package triage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/web/triage"
)

// The page serves its files, and as JSON what it shows of a model. A daemon also calls Run, which
// samples the metrics.
func Example() {
	set, err := policy.Parse(policy.File{Name: "lesions.yaml", Data: []byte(`
models:
  - name: lesions
    classes: [benign, malignant]
    critical: [malignant]
    gate: never
    passes: {fewest: 2}
    primary: {score: c_crit_max, threshold: 0.05}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	series, err := metrics.New(registry, metrics.Options{ClassLabels: 32})
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := engine.New(set.All()[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	inputs := series.Model(set.All()[0], model.Plan()) // elsewhere: by *server.Server
	inputs.InputsOpen(3)
	page := triage.New(triage.Options{
		Gatherer: registry,
		Policies: set.All,
		Daemon:   func() triage.Daemon { return triage.Daemon{Version: "v1.0.0", Serving: true} },
	})
	answer := httptest.NewRecorder()
	page.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/triage/state?model=lesions", nil))
	var state triage.State
	if err := json.Unmarshal(answer.Body.Bytes(), &state); err != nil {
		fmt.Println(err)
		return
	}
	primary := state.Model.Policy.Primary
	fmt.Println(state.Daemon.Version, state.Model.Name, primary.Score, *primary.Threshold, state.Model.InputsOpen)
	// Output: v1.0.0 lesions c_crit_max 0.05 3
}
