package triage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/server"
)

// daemon holds a page over real metrics, and a clock that tests set.
type daemon struct {
	*metrics.Metrics
	page     *Page
	inputs   *Inputs
	clock    fakeClock
	policies atomic.Pointer[[]*policy.Policy]
	models   map[string]*served
}

// served is a model in force.
type served struct {
	policy  *policy.Policy
	engine  *engine.Model
	metrics *metrics.Model
}

// fakeClock tells the time that tests set.
type fakeClock struct{ nanos atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *fakeClock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// newDaemon returns a daemon that serves the policies.
func newDaemon(t testing.TB, o Options, classLabels int, policies ...string) *daemon {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New(registry, metrics.Options{
		ClassLabels: classLabels, RejectReasons: []string{"not_finite", "too_few_passes"}, Version: "v1", Revision: "abc",
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Metrics: m, models: make(map[string]*served), inputs: o.Inputs}
	if d.inputs != nil {
		d.inputs.now = d.clock.now
	}
	d.clock.nanos.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	o.Gatherer = registry
	o.Labels, o.Describe = m.Labels, server.PolicyMessage
	o.Policies = func() []*policy.Policy { return *d.policies.Load() }
	if o.Daemon == nil {
		o.Daemon = func() pagestate.Daemon { return pagestate.Daemon{Version: "v1"} }
	}
	anyone := func(context.Context, string) bool { return true }
	if o.MaySeeRecent == nil {
		o.MaySeeRecent = anyone
	}
	if o.MayEnter == nil {
		o.MayEnter = anyone
	}
	if o.Source == nil {
		o.Source = func(context.Context) string { return "" }
	}
	d.put(t, policies...)
	d.page = New(o)
	d.page.now = d.clock.now
	return d
}

// step lets time pass and takes a sample.
func (d *daemon) step(after time.Duration) {
	d.clock.advance(after)
	d.page.sample()
}

// later lets a step pass and returns what the page then shows of a model.
func (d *daemon) later(t testing.TB, model string) *pagestate.Model {
	t.Helper()
	d.clock.advance(stepTime)
	return d.state(t, model).Model
}

// gatherBy puts f between the page and its metrics.
func (d *daemon) gatherBy(f func(prometheus.Gatherer) ([]*dto.MetricFamily, error)) {
	inner := d.page.options.Gatherer
	d.page.options.Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return f(inner) })
}

// put puts the policies in force in place of all others.
func (d *daemon) put(t testing.TB, policies ...string) {
	t.Helper()
	was := d.models
	d.models = make(map[string]*served)
	var all []*policy.Policy
	for _, text := range policies {
		s := parse(t, text)
		s.metrics = d.Model(s.policy, s.engine.Plan())
		d.models[s.policy.Name] = s
		all = append(all, s.policy)
	}
	for name := range was {
		if d.models[name] == nil {
			d.Remove(name)
		}
	}
	d.policies.Store(&all)
}

// parse returns the model of a policy given by its fields in YAML.
func parse(t testing.TB, fields string) *served {
	t.Helper()
	text := "models:\n  - " + strings.ReplaceAll(strings.TrimSpace(fields), "\n", "\n    ") + "\n"
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s := &served{policy: set.All()[0]}
	if s.engine, err = engine.New(s.policy); err != nil {
		t.Fatal(err)
	}
	return s
}

// manyClasses returns a policy of classes c0, c1, ..., of which the first are critical.
func manyClasses(name string, classes, critical int, more ...string) string {
	list := func(n int) string {
		var names []string
		for k := range n {
			names = append(names, fmt.Sprintf("c%d", k))
		}
		return "[" + strings.Join(names, ", ") + "]"
	}
	return fmt.Sprintf("name: %s\nclasses: %s\ncritical: %s\npasses: {fewest: 5}\n%s",
		name, list(classes), list(critical), strings.Join(more, "\n"))
}

// riskBlock returns a guard that finds little and a risk model, at the end of a policy or before more of
// what was calibrated.
func riskBlock() string {
	return "guard: {score: mi, threshold: 0.5}\ncalibrated:\n  risk:\n    called_safe: {intercept: -1, slope: 0.5}\n" +
		"    called_critical: {intercept: 0, slope: 1}\n    quantiles: [0" + strings.Repeat(", 0.5", 63) + ", 1]\n    prevalence: 0.25\n"
}

// manyModels returns policies m000, m001, ... of the same kind.
func manyModels(models, classes int, more ...string) (policies []string) {
	for i := range models {
		policies = append(policies, manyClasses(fmt.Sprintf("m%03d", i), classes, 1, more...))
	}
	return policies
}

// withRule returns a policy of at least 6 passes with a rule in force that may stop an input after
// 5.
func withRule(t testing.TB, text string) string {
	t.Helper()
	calibrated := "calibrated:\n"
	if strings.Contains(text, calibrated) { // at its end
		calibrated = ""
	}
	return fmt.Sprintf(`%s
%s  early_stopping:
    policy_hash: %s
    mean_passes: 3.5
    halves_differ: 0.06
    certificate:
      disagreement: 0.01
      confidence: 0.9
      groups: 40
      released: {at_most: 0.05}
    boundaries:
      - {passes: 5, retain: -1e6, defer: -1e6}`, strings.TrimSpace(text), calibrated, parse(t, text).policy.Hash)
}

// watch makes the metrics show an fullpass.Watch for a model, as they show the server's.
func (d *daemon) watch(t testing.TB, model string) *fullpass.Watch {
	t.Helper()
	w, err := fullpass.NewWatch(fullpass.Options{Disagreement: 0.01, Retained: 0.05, RunLength: 1000})
	if err != nil {
		t.Fatal(err)
	}
	d.ReadFullPassChecks(func() map[string]fullpass.Status { return map[string]fullpass.Status{model: w.Status()} })
	return w
}

// reference returns a calibration whose values are spread evenly from 0 to a largest one, with each
// class predicted equally often.
func reference(classes []string, inputs int, largest float64) string {
	var levels []string
	for i := range policy.Levels {
		levels = append(levels, fmt.Sprint(largest*float64(i)/(policy.Levels-1)))
	}
	values := "[" + strings.Join(levels, ", ") + "]"
	text := fmt.Sprintf("\n  reference:\n    inputs: %d\n    classes:", inputs)
	for _, class := range classes {
		text += fmt.Sprintf("\n    - {class: %s, predicted: %g, epistemic: %s, skewness: %s}",
			class, 1/float64(len(classes)), values, values)
	}
	return text
}

// recorded returns the inputs of a real recording.
func recorded(t testing.TB) (inputs [][][]float32) {
	t.Helper()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	p := r.Passes
	inputs = make([][][]float32, p.N)
	for n := range inputs {
		for s := range p.S {
			at := (s*p.N + n) * p.K
			inputs[n] = append(inputs[n], p.Float32[at:at+p.K])
		}
	}
	return inputs
}

// each calls do with the decision on each of the inputs, [inputs][passes][classes].
func (s *served) each(t testing.TB, inputs [][][]float32, do func(*engine.Outcome)) {
	t.Helper()
	o, b := s.engine.NewOutcome(), s.engine.NewBatch()
	for i, rows := range inputs {
		tensor := decomp.Tensor{Passes: len(rows), Inputs: 1, Float32: slices.Concat(rows...)}
		if err := b.Reset(tensor); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		if err := b.Outcome(0, o); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		do(o)
	}
}

// count counts an outcome as the server does.
func (d *daemon) count(s *served, id string, o *engine.Outcome) {
	r := s.metrics.Record(0)
	r.Observe(o.Result, &o.Decision)
	if o.Trusted {
		r.ObservePriority(o.Priority)
	}
	r.ObserveRisk(o.Risk, o.Decision.Action)
	r.Done()
	if o.Decision.Action == policy.Defer {
		d.inputs.Add(s.policy, []byte(id), o, nil)
	}
}

// feed decides on inputs and counts them.
func (d *daemon) feed(t testing.TB, model string, inputs [][][]float32) {
	t.Helper()
	i := 0
	d.models[model].each(t, inputs, func(o *engine.Outcome) {
		d.count(d.models[model], fmt.Sprintf("input-%d", i), o)
		i++
	})
}

// randomInputs returns softmaxes of normal logits.
var randomInputs = recordings.Random

// state requests the state of a model.
func (d *daemon) state(t testing.TB, model string) *pagestate.State {
	t.Helper()
	answer := d.get(t, "/triage/state?model="+model)
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return decode(t, answer.Body)
}

func (d *daemon) get(t testing.TB, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	d.page.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func decode(t testing.TB, from io.Reader) *pagestate.State {
	t.Helper()
	s := &pagestate.State{}
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(s); err != nil {
		t.Fatal(err)
	}
	return s
}
