package triage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/settle/audit"
)

var update = flag.Bool("update", false, "write testdata/state.json")

// TestContract holds the JSON against the one that is committed, which has every
// field of State: a change of either is a change of what the page is written for.
func TestContract(t *testing.T) {
	t.Parallel()
	ends := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	d := newDaemon(t, Options{
		Deferrals: NewDeferrals(2),
		Daemon: func() Daemon {
			return Daemon{
				Version: "v1.2.3", Revision: "abc", Arithmetic: "avx2", Started: ends.AddDate(-1, 0, 0), Serving: true,
				Reload:          Reload{OK: true, At: ends.AddDate(0, -2, 0), Success: ends.AddDate(0, -1, 0), Error: "it did not"},
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
primary: {score: c_crit_max, threshold: 0.002}
fallback: {score: cbec, threshold: 0.003}
calibration:
  policy_hash: 0000000000000000000000000000000000000000000000000000000000000000
  recording: {inputs: 500, critical_inputs: 70, passes: 6}
  posterior: mc-dropout
  objective: at most 5% of the critical inputs missed
  expected_coverage: {value: 0.8, low: 0.75, high: 0.85}
  expected_critical_fnr: {value: 0.04, low: 0.02, high: 0.06}
  certificate: {kind: conformal-risk-control, target: 0.05, statement: At most 5% are missed.}`+
		reference([]string{"suspect"}, 500, 0.0001)))
	w := d.watch(t, "m")
	w.Add(audit.SameRetain)
	d.page.sample()
	d.clock.advance(stepTime)
	d.feed(t, "m", randomInputs(7, 70, 5, 10))
	m := d.models["m"].metrics
	m.Rejected("not_finite", 1)
	m.Late(2)
	m.Abandoned(3)
	m.OtherPasses()
	m.InputsOpen(4)
	m.StreamsOpen(1)
	m.PassesUsed(5, 6)
	m.SettleAudited(audit.WronglyRetained, 5, 6)
	m.SettleAudited(audit.OtherSide, 5, 6)
	m.SettleAudited(audit.OtherSide, 5, 6)
	m.SettleAuditLost()
	for range 20 {
		w.Add(audit.WronglyRetained)
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
	if err := cmp.Or(json.Unmarshal(answer.Body.Bytes(), &gotValue), json.Unmarshal(want, &wantValue)); err != nil {
		t.Fatal(err)
	}
	if sameJSON(t, "state", gotValue, wantValue); t.Failed() {
		t.Log("if the state should be as it is, -update writes " + golden + " anew")
	}
	s := decode(t, bytes.NewReader(want))
	again, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(want) {
		t.Errorf("decoded and encoded it is another:\n%s", again)
	}
	empty := map[string]bool{ // which would be so only without others
		"State.Model.RecentWhy": true, "State.Model.Spans.Observed": true, "State.Model.Policy.Observes": true,
	}
	checkFields(t, reflect.ValueOf(s).Elem(), "State", func(path string, is bool) {
		if is == empty[path] {
			t.Errorf("%s: given %v", path, is)
		}
	})
}

// sameJSON reports where two values of JSON differ: in more than the rounding of a
// number.
func sameJSON(t *testing.T, path string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || !slices.Equal(slices.Sorted(maps.Keys(g)), slices.Sorted(maps.Keys(w))) {
			t.Errorf("%s: %v, expected %v", path, got, want)
			return
		}
		for name := range w {
			sameJSON(t, path+"."+name, g[name], w[name])
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			t.Errorf("%s: %v, expected %v", path, got, want)
			return
		}
		for i := range w {
			sameJSON(t, fmt.Sprintf("%s[%d]", path, i), g[i], w[i])
		}
	case float64:
		if g, ok := got.(float64); !ok || math.Abs(g-w) > 1e-9*math.Abs(w) {
			t.Errorf("%s: %v, expected %v", path, got, want)
		}
	default:
		if got != want {
			t.Errorf("%s: %v, expected %v", path, got, want)
		}
	}
}

// checkFields tells of every field whether it, or one of those in a list, has a
// value.
func checkFields(t *testing.T, v reflect.Value, path string, tell func(path string, given bool)) {
	found := make(map[string]bool)
	var order []string
	var look func(v reflect.Value, path string)
	look = func(v reflect.Value, path string) {
		switch {
		case v.Type() == reflect.TypeFor[time.Time]():
		case v.Kind() == reflect.Pointer:
			if !v.IsNil() {
				look(v.Elem(), path)
				return
			}
		case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
			for i := range v.Len() {
				look(v.Index(i), path)
			}
			if v.Len() > 0 {
				return
			}
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				look(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
			return
		}
		if _, ok := found[path]; !ok {
			order = append(order, path)
		}
		found[path] = found[path] || !v.IsZero()
	}
	look(v, path)
	for _, path := range order {
		tell(path, found[path])
	}
	if len(order) < 80 {
		t.Errorf("%d fields were looked at, expected more", len(order))
	}
}

// TestEmpty: lists are lists where there is nothing.
func TestEmpty(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{Deferrals: NewDeferrals(1)}, 0)
	if got := d.get(t, "/triage/state").Body.String(); !strings.Contains(got, `"models":[],"model":null`) {
		t.Errorf("%s", got)
	}
	d = newDaemon(t, Options{Deferrals: NewDeferrals(1)}, 0, manyClasses("m", 3, 1))
	got := d.get(t, "/triage/state").Body.String()
	if strings.Count(got, "null") != len(spanMinutes)*(1+1+3)+6 { // shares, settling, quantiles; thresholds, calibration, drift, settling, certificate
		t.Errorf("%s", got)
	}
}

// TestNumber is null where it is none, both ways.
func TestNumber(t *testing.T) {
	t.Parallel()
	for n, want := range map[Number]string{0.5: "0.5", Number(math.Inf(1)): "null", Number(math.Inf(-1)): "null", Number(math.NaN()): "null"} {
		got, err := json.Marshal(n)
		if err != nil || string(got) != want {
			t.Errorf("%v: %s, %v, expected %s", n, got, err, want)
		}
		var back Number
		if err := json.Unmarshal(got, &back); err != nil || want != "null" && back != n || want == "null" && !math.IsNaN(float64(back)) {
			t.Errorf("%s: %v, %v", got, back, err)
		}
	}
	var n Number
	if err := json.Unmarshal([]byte(`"x"`), &n); err == nil {
		t.Error("a text is taken for a number")
	}
}
