package triage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

const allDeferred = "primary: {score: c_crit_max, threshold: 0}\nfallback: {score: cbec, threshold: 0}"

// TestDeferred compares what is kept of an input with its outcome.
func TestDeferred(t *testing.T) {
	t.Parallel()
	const k = 12
	allFamiliar := strings.Replace(riskBlock(), "threshold: 0.5", "threshold: 9", 1)
	d := newDaemon(t, Options{Inputs: NewInputs(100)}, 0, manyClasses("m", k, 3, allDeferred, allFamiliar))
	s := d.models["m"]
	var want []pagestate.Deferred
	s.each(t, randomInputs(1, 10, 5, k), func(o *engine.Outcome) {
		d.clock.advance(time.Second)
		id := fmt.Sprint(len(want))
		d.count(s, id, o)
		order := make([]int, k)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return -cmp.Compare(o.C[a], o.C[b]) })
		w := pagestate.Deferred{
			At: d.clock.now(), ID: id, Predicted: s.policy.Classes[o.Predicted], Score: string(o.Decision.Score),
			Value: pagestate.Number(o.Decision.Value), Threshold: new(float64), Reason: "above_threshold", Passes: 5, Policy: s.policy.Hash,
			Deciding: s.policy.Classes[o.Decision.Class], PredictedCritical: o.Predicted < 3, DecidingCritical: o.Decision.Class < 3,
			Priority: pagestate.Number(o.Percentile),
		}
		for i, class := range order {
			if i < 8 {
				w.Fingerprint = append(w.Fingerprint, pagestate.Share{
					Class: s.policy.Classes[class], Critical: class < 3, C: o.C[class], Unreliable: o.Skewness[class] > 0.3,
				})
			} else {
				w.Rest += pagestate.Number(o.C[class])
			}
		}
		want = append(want, w)
	})
	slices.Reverse(want)
	got := d.inputs.recent("m", false)
	if got.Kept != 100 || len(got.Inputs) != len(want) {
		t.Fatalf("%d of %d kept, expected %d of 100", len(got.Inputs), got.Kept, len(want))
	}
	near := gocmp.Comparer(func(a, b pagestate.Number) bool {
		return math.IsNaN(float64(a)) && math.IsNaN(float64(b)) || math.Abs(float64(a-b)) <= 1e-15
	}) // Rest adds in another order
	if diff := gocmp.Diff(want, got.Inputs, near); diff != "" {
		t.Errorf("deferred inputs (-want +got):\n%s", diff)
	}
	isUnreliable := func(s pagestate.Share) bool { return s.Unreliable }
	if !slices.ContainsFunc(want, func(w pagestate.Deferred) bool { return slices.ContainsFunc(w.Fingerprint, isUnreliable) }) {
		t.Error("no class is unreliable: the inputs show nothing")
	}
}

// TestRing checks that each model keeps its last inputs, the latest first.
func TestRing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		keep := rapid.IntRange(1, 8).Draw(rt, "keep")
		d := NewInputs(keep)
		p := parse(t, manyClasses("m", 3, 1, allDeferred)).policy
		o := outcome(3)
		var ids []string
		for i := range rapid.IntRange(0, 30).Draw(rt, "inputs") {
			id := strings.Repeat(fmt.Sprint(i, " "), rapid.IntRange(1, 50).Draw(rt, "length"))
			d.Add(p, []byte(id), o, nil)
			ids = append(ids, id)
		}
		ids = ids[max(0, len(ids)-keep):]
		slices.Reverse(ids)
		var got []string
		for _, input := range d.recent("m", false).Inputs {
			got = append(got, input.ID)
		}
		if !slices.Equal(got, ids) {
			rt.Fatalf("%q, expected %q", got, ids)
		}
		if n := len(d.recent("n", false).Inputs); n != 0 {
			rt.Fatalf("%d inputs of another model", n)
		}
	})
}

// outcome returns an outcome of some classes with different C_k.
func outcome(classes int) *engine.Outcome {
	p, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte("models:\n  - " +
		strings.ReplaceAll(manyClasses("m", classes, 1, allDeferred), "\n", "\n    "))})
	if err != nil {
		panic(err)
	}
	m, err := engine.New(p.All()[0])
	if err != nil {
		panic(err)
	}
	o := m.NewOutcome()
	o.C, o.Skewness = make([]float64, classes), make([]float64, classes)
	for k := range o.C {
		o.C[k] = float64((k*7)%classes) / float64(classes)
	}
	o.Decision = policy.Decision{Action: policy.Defer, Class: 0, Reason: policy.AboveThreshold, HasThreshold: true}
	return o
}

// TestIDs checks that a long id is cut between characters.
func TestIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.StringN(0, 400, 600).Draw(rt, "id")
		got := string(cut([]byte(id)))
		if !strings.HasPrefix(id, got) || len(got) > maxIDSize || len(id) <= maxIDSize && got != id ||
			len(got) < min(len(id), maxIDSize-utf8.UTFMax+1) || !utf8.ValidString(got) {
			rt.Fatalf("%q of %q", got, id)
		}
	})
}

// TestInputsOfModels checks that the kept inputs of a model are dropped when the model is removed.
func TestInputsOfModels(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{Inputs: NewInputs(2)}, 0, manyClasses("a", 3, 1, allDeferred), manyClasses("b", 3, 1, allDeferred))
	d.feed(t, "a", randomInputs(1, 3, 5, 3))
	d.feed(t, "b", randomInputs(1, 3, 5, 3))
	d.put(t, manyClasses("b", 3, 1, allDeferred))
	d.page.sample()
	if a, b := len(d.inputs.recent("a", false).Inputs), len(d.inputs.recent("b", false).Inputs); a != 0 || b != 2 {
		t.Errorf("%d and %d inputs, expected 0 and 2", a, b)
	}
}
