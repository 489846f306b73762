package triage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/pagestate"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var update = flag.Bool("update", false, "write testdata/state.json")

// TestContract compares the JSON with the committed one, which has every field of State. The page
// is written for it: a change of either is a change of the contract.
func TestContract(t *testing.T) {
	t.Parallel()
	ends := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	d := newDaemon(t, Options{
		Inputs: NewInputs(5),
		Daemon: func() pagestate.Daemon {
			return pagestate.Daemon{
				Version: "v1.2.3", Revision: "abc", Arithmetic: "avx2", Started: ends.AddDate(-1, 0, 0), Serving: true, Ledger: "127.0.0.1:8590",
				Reload:          pagestate.Reload{OK: true, At: ends.AddDate(0, -2, 0), Success: ends.AddDate(0, -1, 0), Error: "it did not"},
				CertificateEnds: &ends,
			}
		},
	}, 3, withRule(t, `
name: m
version: one
classes: [normal, suspect, pathologic, artefact, other, e, f, g, h, i]
critical: [suspect, pathologic]
safe: [normal, artefact, other]
passes: {fewest: 5, expected: 6}
pairs: all
reliability_threshold: 0.00005
primary: {score: c_crit_max, threshold: 0.002}
fallback: {score: cbec, threshold: 0.003}
audit: {rate: 0.1, on_breach: defer, surge: 100}
`+riskBlock()+`  policy_hash: 0000000000000000000000000000000000000000000000000000000000000000
  recording: {inputs: 500, critical_inputs: 70, passes: 6}
  posterior: mc-dropout
  objective: at most 5% of the critical inputs missed
  expected_coverage: {value: 0.8, low: 0.75, high: 0.85}
  expected_critical_miss_rate: {value: 0.03, low: 0.01, high: 0.05}
  certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.05, confidence: 0.9, statement: At most 5% are missed.}`+
		reference([]string{"suspect", "pathologic"}, 500, 0.0001)))
	d.page.options.Promises = func() []*ckdv1.PromiseFigures { return []*ckdv1.PromiseFigures{promiseOf(d.models["m"].policy)} }
	w := d.watch(t, "m")
	w.Add(fullpass.SameRetain)
	d.page.sample()
	d.clock.advance(stepTime)
	d.feed(t, "m", randomInputs(7, 70, 5, 10))
	d.inputs.Add(d.models["m"].policy, []byte("unread"), outcome(10), sealedAs(1))
	m := d.models["m"].metrics
	for i := range 600 {
		r := m.Record(0)
		r.ObservePriority([]float64{0.95, 0.05, 0.05}[i%3])
		r.Done()
	}
	m.Rejected("not_finite", 1)
	m.Late(2)
	m.Abandoned(3)
	m.Mismatched("passes")
	m.InputsOpen(4)
	m.PassesUsed(5, 6)
	m.FullPassChecked(fullpass.WronglyRetained, 6)
	m.FullPassChecked(fullpass.OtherSide, 6)
	m.FullPassChecked(fullpass.OtherSide, 6)
	m.FullPassCheckLost()
	for range 20 {
		w.Add(fullpass.WronglyRetained)
	}
	same := []float32{0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	d.feed(t, "m", [][][]float32{{same, same, same, same, same}})
	d.feed(t, "m", randomInputs(8, 1, 5, 10))
	d.clock.advance(stepTime)
	answer := d.get(t, "/triage/state?model=m")
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}

	const golden = "testdata/state.json"
	if *update {
		var text bytes.Buffer
		if err := json.Indent(&text, answer.Body.Bytes(), "", " "); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var gotValue, wantValue any
	if err := errors.Join(json.Unmarshal(answer.Body.Bytes(), &gotValue), json.Unmarshal(want, &wantValue)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantValue, gotValue, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("state (-committed +now; -update writes %s anew):\n%s", golden, diff)
	}
	filled := make(map[string]bool)
	collect(filled, "", wantValue)
	if len(filled) < 80 {
		t.Errorf("%d fields, expected more", len(filled))
	}
	empty := map[string]bool{ // set only if others are not
		".model.recent_why": true, ".model.spans.observed": true,
		".model.spans.expected_misses": true, // withheld, for drift is in alarm
	}
	for path, is := range filled {
		ofAPI := strings.HasPrefix(path, ".model.policy.") || strings.HasPrefix(path, ".model.promises.")
		if is == empty[path] && !ofAPI {
			t.Errorf("%s: has a value: %v, expected %v", path, is, !is)
		}
	}
}

// TestLastHour checks the counts that a daily rate is made of: they lose what is an hour old.
func TestLastHour(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1, allDeferred))
	d.page.sample()
	began := d.clock.now()
	d.feed(t, "m", randomInputs(1, 40, 5, 3)) // a burst
	check := func(deferred, seconds float64) {
		t.Helper()
		d.step(stepTime)
		got := d.state(t, "m").Model.LastHour
		want := pagestate.Hour{Since: d.clock.now().Add(-time.Duration(seconds) * time.Second), Seconds: seconds, Deferred: deferred}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v after the beginning (-want +got):\n%s", d.clock.now().Sub(began), diff)
		}
	}
	check(40, 15)
	for range 100 { // the burst is older than the steps of the history
		d.step(stepTime)
	}
	d.feed(t, "m", randomInputs(2, 3, 5, 3))
	check(43, 102*15)
	for d.clock.now().Sub(began) < time.Hour-stepTime {
		d.step(stepTime)
	}
	check(43, 3600)
	check(3, 3600)
}

// collect notes for every field below v whether it, or one in a list of them, has a value.
func collect(filled map[string]bool, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			collect(filled, path+"."+name, field)
		}
	case []any:
		if len(v) == 0 {
			collect(filled, path, nil)
		}
		for _, element := range v {
			if _, ok := element.(map[string]any); ok {
				filled[path] = true
			}
			collect(filled, path, element)
		}
	default:
		filled[path] = filled[path] || v != nil && v != false && v != 0.0 && v != ""
	}
}

// TestEmpty checks that empty lists are lists and not null.
func TestEmpty(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{Inputs: NewInputs(1)}, 0)
	if got := d.get(t, "/triage/state").Body.String(); !strings.Contains(got, `"models":[],"model":null`) {
		t.Errorf("%s", got)
	}
	d = newDaemon(t, Options{Inputs: NewInputs(1)}, 0, manyClasses("m", 3, 1))
	got := d.get(t, "/triage/state").Body.String()
	if strings.Count(got, "null") != len(spanMinutes)*(1+1+1+3)+6 { // in spans: share, expected misses, early stopping, quantiles; then fallback, drift, prevalence, early stopping, promises, certificate
		t.Errorf("%s", got)
	}
}

// TestSince asks for what is new since a state, and expects that the parts together give the whole history:
// of the model that is named, or of the first, which may change.
func TestSince(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("a", 3, 1), manyClasses("m", 3, 1))
	inputs := randomInputs(1, 10, 5, 3)
	d.page.sample()
	for range 5 {
		d.feed(t, "m", inputs)
		d.step(stepTime)
	}
	known := d.state(t, "m")
	if len(known.Model.History) != 5 {
		t.Fatalf("%d steps, expected 5", len(known.Model.History))
	}
	history := make(map[int64]pagestate.Step)
	for _, step := range known.Model.History {
		history[step.At] = step
	}
	for i, after := range []time.Duration{2 * time.Second, 2 * time.Second, stepTime, 3 * time.Second, stepTime} {
		d.feed(t, "m", inputs)
		d.clock.advance(after)
		fresh := d.state(t, "m&since="+url.QueryEscape(known.At.Format(time.RFC3339Nano)))
		if len(fresh.Model.History) != 1 {
			t.Fatalf("state %d: %d steps, expected 1", i, len(fresh.Model.History))
		}
		history[fresh.Model.History[0].At] = fresh.Model.History[0]
		known = d.state(t, "m")
		if diff := cmp.Diff(known.Model.Spans, fresh.Model.Spans); diff != "" || !fresh.At.Equal(known.At) || len(history) != len(known.Model.History) {
			t.Errorf("state %d at %v, %d steps in all; the whole at %v, %d; spans (-whole +new):\n%s",
				i, fresh.At, len(history), known.At, len(known.Model.History), diff)
		}
		for _, step := range known.Model.History {
			if diff := cmp.Diff(step, history[step.At]); diff != "" {
				t.Errorf("state %d: step (-whole +parts):\n%s", i, diff)
			}
		}
	}
	if s := d.state(t, "b&since=yesterday"); s.Model != nil || len(s.Models) != 2 {
		t.Errorf("no such model: %+v", s)
	}
}

// TestWhoMaySeeRecent checks that the sender and the model say whether deferred inputs are shown.
func TestWhoMaySeeRecent(t *testing.T) {
	t.Parallel()
	type sender struct{}
	d := newDaemon(t, Options{
		Inputs:       NewInputs(2),
		MaySeeRecent: func(ctx context.Context, model string) bool { return ctx.Value(sender{}) == model },
	}, 0, manyClasses("m", 3, 1, allDeferred), manyClasses("n", 3, 1, allDeferred))
	d.page.sample()
	d.feed(t, "m", randomInputs(1, 5, 5, 3))
	d.step(stepTime)
	for _, c := range []struct{ sender, model, why string }{{"", "m", "not allowed"}, {"m", "n", "not allowed"}, {"m", "m", ""}} {
		w := httptest.NewRecorder()
		d.page.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.WithValue(t.Context(), sender{}, c.sender), http.MethodGet,
			"/triage/state?model="+c.model, nil))
		m := decode(t, w.Body).Model
		if m.RecentWhy != c.why || (m.Recent != nil) != (c.why == "") || c.why == "" && len(m.Recent.Inputs) != 2 {
			t.Errorf("%+v: %+v, %q", c, m.Recent, m.RecentWhy)
		}
	}
	off := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
	if m := off.state(t, "").Model; m.Recent != nil || m.RecentWhy != "off" {
		t.Errorf("%+v, %q", m.Recent, m.RecentWhy)
	}
}

// TestConcurrently runs requests, inputs and reloads at once.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	deciding := manyClasses("m", 3, 1, "primary: {score: c_crit_max, threshold: 0}", "fallback: {score: cbec, threshold: 0}")
	d := newDaemon(t, Options{Inputs: NewInputs(3)}, 0, deciding)
	d.page.now = time.Now
	ctx, cancel := context.WithCancel(t.Context())
	var all, askers sync.WaitGroup
	all.Go(func() { d.page.Run(ctx) })
	m := d.models["m"]
	inputs := randomInputs(1, 20, 5, 3)
	all.Go(func() {
		for ctx.Err() == nil {
			m.each(t, inputs, func(o *engine.Outcome) { d.count(m, "id", o) })
		}
	})
	for range 4 {
		askers.Go(func() {
			for range 10 {
				d.page.sample()
				d.state(t, "m")
			}
		})
	}
	for range 10 {
		d.put(t, deciding)
		d.page.sample()
	}
	askers.Wait()
	cancel()
	all.Wait()
}
