package triage

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
)

const ctg = `
name: ctg
version: "3"
classes: [normal, suspect, pathologic]
critical: [suspect, pathologic]
passes: {fewest: 5, expected: 30}
primary: {score: c_crit_max, threshold: 0.01}
fallback: {score: cbec, threshold: 0.02}
`

// holdsQuantiles compares quantiles with the values that they are of.
func holdsQuantiles(tb rapid.TB, got *[4]float64, values []float64) {
	if got == nil {
		tb.Fatalf("no quantiles of %d values", len(values))
	}
	values = slices.Sorted(slices.Values(values))
	for i, level := range levels {
		want := values[max(0, int(math.Ceil(level*float64(len(values))))-1)]
		if want <= 1e-6 {
			want = 0 // the zero bucket
		}
		if math.Abs(got[i]-want) > 0.1*want {
			tb.Errorf("quantile %v: %v, expected %v", level, got[i], want)
		}
	}
}

// TestSpans compares the counts of the last one, five and fifteen minutes, and of each step, with the outcomes
// of real inputs.
func TestSpans(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, ctg)
	d.page.sample()
	inputs := recorded(t)
	s := d.models["ctg"]
	var spans [3]pagestate.Counts
	for step := range 60 {
		s.each(t, inputs[step*len(inputs)/60:(step+1)*len(inputs)/60], func(o *engine.Outcome) {
			d.count(s, "", o)
			for i, minutes := range spanMinutes {
				if step < 60-4*minutes {
					continue
				}
				spans[i].Inputs++
				if o.Decision.Gate == policy.ByFallback {
					spans[i].Fallback++
				}
				if o.Decision.Action == policy.Defer {
					spans[i].Deferred++
				} else {
					spans[i].Retained++
				}
			}
		})
		d.step(stepTime)
	}
	m := d.state(t, "ctg").Model
	for i, minutes := range spanMinutes {
		got, want := m.Spans[i], spans[i]
		if got.Minutes != minutes || got.Seconds != float64(60*minutes) || got.Inputs != want.Inputs || got.Retained != want.Retained ||
			got.Deferred != want.Deferred || got.Fallback != want.Fallback || got.Classes[0].Observations != want.Inputs {
			t.Errorf("%d minutes: %+v, expected %+v", minutes, got, want)
		}
	}
	if all := spans[2]; all.Fallback == 0 || all.Fallback == all.Inputs || all.Deferred == 0 {
		t.Fatalf("%+v: the inputs show nothing", all)
	}
	if len(m.History) != 60 {
		t.Fatalf("%d steps, expected 60", len(m.History))
	}
	var sum pagestate.Step
	for i, step := range m.History {
		if at := m.History[0].At + int64(i)*stepTime.Milliseconds(); step.At != at || step.Seconds != stepTime.Seconds() {
			t.Errorf("step %d at %d of %v s, expected %d", i, step.At, step.Seconds, at)
		}
		sum.Inputs += step.Inputs
		sum.Retained += step.Retained
		sum.Deferred += step.Deferred
		sum.Fallback += step.Fallback
	}
	if all := m.Spans[2]; sum.Inputs != all.Inputs || sum.Retained != all.Retained || sum.Deferred != all.Deferred || sum.Fallback != all.Fallback {
		t.Errorf("steps have %+v together, the span %+v", sum, all)
	}

	// Steps older than 15 minutes are dropped one by one.
	if m := d.later(t, "ctg"); len(m.History) != 60 || m.Spans[2].Inputs != float64(len(inputs)-len(inputs)/60) {
		t.Errorf("a step later %d steps with %v inputs, expected one less", len(m.History), m.Spans[2].Inputs)
	}
	d.clock.advance(2 * time.Second)
	if m := d.state(t, "ctg").Model; len(m.History) != 60 || m.Spans[2].Seconds != 15*60+2 {
		t.Errorf("two seconds later %d steps, of %v s together, expected 60, of 902", len(m.History), m.Spans[2].Seconds)
	}
	d.step(time.Hour)
	if m := d.later(t, "ctg"); len(m.History) != 2 || m.Spans[2].Inputs != 0 || m.Spans[0].DeferredShare != nil || m.Spans[0].Classes[0].Quantiles != nil {
		t.Errorf("an hour later: %d steps, %+v", len(m.History), m.Spans[2])
	}
}

// TestReload checks that the history begins anew if the classes change, and that models come and go.
func TestReload(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyClasses("a", 3, 1), manyClasses("m", 3, 1))
	d.page.sample()
	feed := func(model string, inputs, classes int) {
		d.feed(t, model, randomInputs(1, inputs, 5, classes))
		d.step(stepTime)
	}
	feed("m", 10, 3)
	if m := d.state(t, "m").Model; m.Spans[0].Observed != 10 || m.Spans[0].DeferredShare != nil || !strings.Contains(string(m.Message), `"observes":true`) {
		t.Errorf("without thresholds: %+v", m)
	}

	// A policy with other classes.
	d.put(t, manyClasses("a", 3, 1), manyClasses("m", 4, 2))
	d.page.sample()
	if m := d.state(t, "m").Model; len(m.History) != 0 || m.Spans[2].Inputs != 0 || len(m.Classes) != 4 {
		t.Errorf("other classes: %+v", m)
	}
	feed("m", 40, 4)
	if m := d.state(t, "m").Model; m.Spans[2].Inputs != 40 || m.Spans[2].Classes[3].Observations != 40 {
		t.Errorf("other classes, and inputs: %+v", m)
	}

	// One model goes; the first inputs of the other, which is new, count.
	d.put(t, manyClasses("a", 3, 1), manyClasses("b", 3, 1))
	feed("b", 50, 3)
	gone := d.state(t, "m")
	if gone.Model != nil || !slices.Equal(gone.Models, []string{"a", "b"}) {
		t.Errorf("gone: %+v", gone)
	}
	if m := d.state(t, "b").Model; m.Spans[0].Inputs != 50 || m.Spans[0].Seconds != 15 {
		t.Errorf("new: %+v", m.Spans[0])
	}
	if s := d.state(t, ""); s.Model == nil || s.Model.Name != "a" {
		t.Errorf("without a name: %+v, expected a", s.Model)
	}
}

// TestPairs compares the pairs with the plan's, and their sums with those of the outcomes.
func TestPairs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		k := rapid.IntRange(2, 12).Draw(rt, "classes")
		critical := rapid.IntRange(1, k-1).Draw(rt, "critical")
		labels := rapid.IntRange(1, 14).Draw(rt, "labels")
		pairs := rapid.SampledFrom([]string{"all", "safe-critical"}).Draw(rt, "pairs")
		safe := rapid.IntRange(critical, k-1).Draw(rt, "safe")
		d := newDaemon(t, Options{}, labels, manyClasses("m", k, critical, "pairs: "+pairs,
			fmt.Sprintf("safe: [c%d]", safe)))
		d.page.sample()
		plan := d.models["m"].engine.Plan().Pairs()
		sums := make(map[[2]int]float64)
		const inputs = 8
		d.models["m"].each(t, randomInputs(rapid.Uint64().Draw(rt, "seed"), inputs, 5, k), func(o *engine.Outcome) {
			d.count(d.models["m"], "", o)
			for i, pair := range plan {
				sums[[2]int{pair.A, pair.B}] += o.Confusion(i)
			}
		})
		m := d.later(t, "m")
		if got := len(m.Spans[0].Pairs) + m.PairsCut; got != len(plan) {
			rt.Fatalf("%d pairs and %d cut, expected %d together", len(m.Spans[0].Pairs), m.PairsCut, len(plan))
		}
		for _, pair := range m.Spans[0].Pairs { // the first classes have labels, in order
			want := sums[[2]int{pair.A, pair.B}] / inputs
			if math.Abs(pair.Nats-want) > 1e-9*want {
				rt.Fatalf("%+v, expected %v nats", pair, want)
			}
		}
		if labels >= k && m.PairsCut != 0 || labels < k && len(m.Classes) != labels+1 {
			rt.Fatalf("%d pairs cut, %d classes", m.PairsCut, len(m.Classes))
		}
	})
}

// TestSharedLabel checks that critical classes have rows, and that all classes without a label of their own
// count together, in the last row.
func TestSharedLabel(t *testing.T) {
	t.Parallel()
	const k, inputs, labels = 40, 6, 12
	names, list := make([]string, k), "c38, c39"
	for i := range names {
		names[i] = fmt.Sprint("c", i)
	}
	d := newDaemon(t, Options{}, labels, strings.Replace(manyClasses("m", k, 1, allDeferred, "calibrated:"+reference(names, 500, 0.001)),
		"critical: [c0]", "critical: ["+list+"]", 1))
	if m := d.state(t, "m").Model; len(m.Classes) != labels+1 {
		t.Fatalf("%d classes at first", len(m.Classes))
	}
	var predicted, c [k]float64
	d.models["m"].each(t, randomInputs(1, inputs, 5, k), func(o *engine.Outcome) {
		d.count(d.models["m"], "", o)
		predicted[o.Predicted]++
		for i, v := range o.C {
			c[i] += v
		}
	})
	m := d.later(t, "m")
	if len(m.Classes) != labels+1 || m.ClassesCut != k-labels || m.Classes[labels] != (pagestate.Class{Name: "other", Safe: true, Shared: true, Of: k - labels}) {
		t.Fatalf("%d classes, %d cut, the last %+v", len(m.Classes), m.ClassesCut, m.Classes[len(m.Classes)-1])
	}
	s := m.Spans[0]
	restPredicted, restC := float64(inputs), 0.0
	for _, v := range c {
		restC += v
	}
	for i, class := range m.Classes[:labels] {
		index := i
		if i >= labels-2 {
			index = k - labels + i
		}
		if critical := index >= k-2; class != (pagestate.Class{Name: names[index], Critical: critical, Safe: !critical, Of: 1}) {
			t.Errorf("class %d is %+v", i, class)
		}
		if got := s.Classes[i]; got.Observations != inputs || got.Predicted != predicted[index] || math.Abs(got.MeanC-c[index]/inputs) > 1e-9 {
			t.Errorf("%s: %+v", class.Name, got)
		}
		restPredicted -= predicted[index]
		restC -= c[index]
	}
	rest := float64((k - labels) * inputs)
	if got := s.Classes[labels]; got.Observations != rest || got.Predicted != restPredicted || math.Abs(got.MeanC-restC/rest) > 1e-9 || got.Quantiles == nil {
		t.Errorf("all others: %+v, expected %v observations", got, rest)
	}
	if n := len(m.Drift.Classes); n != labels {
		t.Errorf("drift of %d classes, expected %d", n, labels)
	}
}

// TestLooking checks that of more models than have room those looked at last have a history, from the next
// sample on; the others show their policy.
func TestLooking(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, manyModels(2*maxHistories, 3, "pairs: all")...)
	d.page.sample()
	last := d.page.models.names[len(d.page.models.names)-1]
	if s := d.state(t, last); s.Model == nil || s.Model.Name != last || len(s.Model.Classes) != 3 || len(s.Model.History) != 0 || len(s.Model.Spans) != 3 {
		t.Fatalf("%+v, expected an empty history", s.Model)
	}
	d.step(watchedTime)
	d.feed(t, last, randomInputs(1, 3, 5, 3))
	d.clock.advance(watchedTime)
	if got := d.state(t, last).Model.Spans[0]; got.Inputs != 3 {
		t.Errorf("%v inputs after it was looked at, expected 3", got.Inputs)
	}
	kept := d.page.models.histories
	if first := d.page.models.names; len(kept) != maxHistories || kept[first[maxHistories-2]] == nil || kept[first[maxHistories-1]] != nil {
		t.Errorf("%d histories, expected those of before but one", len(kept))
	}
}

// TestAnyTimes samples at random times while inputs arrive and policies change: no count is
// negative, and none is lost.
func TestAnyTimes(t *testing.T) {
	t.Parallel()
	inputs := randomInputs(1, 50, 5, 3)
	rapid.Check(t, func(rt *rapid.T) {
		observing, deciding := manyClasses("m", 3, 1), manyClasses("m", 3, 1, "primary: {score: c_crit_max, threshold: 0.01}", "fallback: {score: cbec, threshold: 0.01}")
		d := newDaemon(t, Options{}, 0, observing)
		d.page.sample()
		fed, begun := 0, d.clock.now()
		for range rapid.IntRange(1, 30).Draw(rt, "samples") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				d.put(t, rapid.SampledFrom([]string{observing, deciding}).Draw(rt, "policy"))
			case 1:
				d.put(t)
				d.put(t, observing)
			default:
				n := rapid.IntRange(0, len(inputs)).Draw(rt, "inputs")
				d.feed(t, "m", inputs[:n])
				fed += n
			}
			d.step(time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "ms")) * time.Millisecond)

			m := d.state(t, "m").Model
			all := 0.0
			for i, s := range m.Spans {
				if i > 0 && (s.Inputs < m.Spans[i-1].Inputs || s.Seconds < m.Spans[i-1].Seconds) {
					rt.Fatalf("%+v has less than %+v", s, m.Spans[i-1])
				}
				reasons := 0.0
				for _, r := range s.Reasons {
					reasons += r.Count
				}
				if s.Inputs != s.Retained+s.Deferred+s.Observed || reasons != s.Inputs || s.Passes != 5*s.Inputs {
					rt.Fatalf("%+v does not add up", s)
				}
				for _, c := range s.Classes {
					if c.Observations != s.Inputs || c.MeanC < 0 || (c.Quantiles != nil) != (s.Inputs > 0) {
						rt.Fatalf("%+v of %v inputs", c, s.Inputs)
					}
				}
				for _, pair := range s.Pairs {
					if pair.Nats < 0 {
						rt.Fatalf("%+v", pair)
					}
				}
				all = s.Inputs
			}
			steps := 0.0
			for i, s := range m.History {
				if s.Inputs < 0 || s.Retained < 0 || s.Deferred < 0 || s.Fallback < 0 || s.Seconds < 0 {
					rt.Fatalf("%+v", s)
				}
				if i > 0 && s.At <= m.History[i-1].At {
					rt.Fatalf("step at %d after one at %d", s.At, m.History[i-1].At)
				}
				if end := time.UnixMilli(s.At).Add(time.Duration(s.Seconds * 1e9)); d.clock.now().Sub(end) >= 15*time.Minute {
					rt.Fatalf("a step that ended at %v, at %v", end, d.clock.now())
				}
				steps += s.Inputs
			}
			if d.clock.now().Sub(begun) < 14*time.Minute && (all != float64(fed) || steps != all) {
				rt.Fatalf("%v inputs in all, %v in steps, expected %d", all, steps, fed)
			}
		}
	})
}

// TestExpectedMisses checks that expected misses are the risk of what was retained, that they are
// withheld while drift is in alarm, and unknown without a risk model or decisions.
func TestExpectedMisses(t *testing.T) {
	t.Parallel()
	rules := "primary: {score: c_crit_max, threshold: 0.1}\nfallback: {score: cbec, threshold: 0.05}\n"
	moved := reference([]string{"c0", "c1", "c2", "c3"}, 500, 0.001)
	for _, c := range []struct {
		name, fields string
		inputs       int
		known        bool
	}{
		{"no reference", rules + riskBlock(), 64, true},
		{"before the first window", rules + riskBlock() + moved, 63, true},
		{"alarm", rules + riskBlock() + moved, 64, false},
		{"no risk model", rules, 64, false},
		{"observes", riskBlock(), 64, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, Options{}, 8, manyClasses("m", 4, 1, c.fields))
			d.page.sample()
			inputs, want := randomInputs(1, c.inputs, 5, 4), 0.0
			d.feed(t, "m", inputs)
			d.models["m"].each(t, inputs, func(o *engine.Outcome) {
				if o.Decision.Action == policy.Retain && o.Risk >= 0 {
					want += o.Risk
				}
			})
			for _, s := range d.later(t, "m").Spans {
				if got := s.ExpectedMisses; (got != nil) != c.known || got != nil && math.Abs(*got-want) > 1e-9 || c.known && want == 0 {
					t.Errorf("%d minutes: %v, want %v (%v)", s.Minutes, got, want, c.known)
				}
			}
		})
	}
}

// broken wraps a registry that may fail.
type broken struct {
	prometheus.Gatherer
	err error
}

func (b *broken) Gather() ([]*dto.MetricFamily, error) {
	families, err := b.Gatherer.Gather()
	if b.err != nil {
		return families[:len(families)/2], b.err
	}
	return families, err
}

// TestScrapeFails checks that after a failed scrape the page keeps its state, loses no count, and
// reports the failure once.
func TestScrapeFails(t *testing.T) {
	t.Parallel()
	var failed []error
	d := newDaemon(t, Options{Failed: func(err error) { failed = append(failed, err) }}, 0, manyClasses("m", 3, 1))
	d.feed(t, "m", randomInputs(2, 64, 5, 3)) // a window is full
	b := &broken{Gatherer: d.page.options.Gatherer}
	d.page.options.Gatherer = b
	d.page.sample()
	d.feed(t, "m", randomInputs(1, 10, 5, 3))
	d.step(stepTime)
	b.err = fmt.Errorf("cannot")
	d.feed(t, "m", randomInputs(1, 10, 5, 3))
	d.clock.advance(stepTime)
	if s := d.state(t, "m"); s.Model.Spans[0].Inputs != 10 || s.At != d.clock.now().Add(-stepTime) {
		t.Errorf("%+v", s)
	}
	if pause := d.page.pause(); pause != watchedTime {
		t.Errorf("the next attempt in %v, expected %v", pause, watchedTime)
	}
	d.page.sample()
	if len(failed) != 1 || !errors.Is(failed[0], b.err) {
		t.Errorf("Failed was called with %v, expected one of two failures", failed)
	}
	b.err = nil
	d.clock.advance(stepTime)
	if s := d.state(t, "m"); s.Model.Spans[0].Inputs != 20 || s.Model.Spans[0].Seconds != 45 {
		t.Errorf("%+v", s.Model.Spans[0])
	}
	b.err = errors.New("cannot again")
	d.page.sample()
	if len(failed) != 2 || !errors.Is(failed[1], b.err) {
		t.Errorf("Failed was called with %v, expected the failure after it had gone well", failed)
	}
}

// TestCostlySamples checks that costly samples are taken less often, but at the end of every step.
func TestCostlySamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ takes, pause, fresh time.Duration }{
		{10 * time.Millisecond, 14990 * time.Millisecond, 2 * time.Second},
		{100 * time.Millisecond, 14900 * time.Millisecond, 5 * time.Second},
		{time.Second, 14 * time.Second, 15 * time.Second},
		{time.Minute, 0, 15 * time.Second},
	} {
		d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
		d.gatherBy(func(metrics prometheus.Gatherer) ([]*dto.MetricFamily, error) {
			d.clock.advance(c.takes)
			return metrics.Gather()
		})
		d.page.sample()
		if pause := d.page.pause(); pause != c.pause {
			t.Errorf("after %v: %v, expected %v", c.takes, pause, c.pause)
		}
		if fresh := d.page.schedule.rest(); fresh != c.fresh {
			t.Errorf("after %v: fresh for %v, expected %v", c.takes, fresh, c.fresh)
		}
	}
}

// TestRun checks that Run samples every 15 s, and that who asks every 2 s gets a new sample.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, Options{}, 0, manyClasses("m", 3, 1))
		d.page.now = time.Now
		began, sampled := time.Now(), 0
		d.gatherBy(func(metrics prometheus.Gatherer) ([]*dto.MetricFamily, error) {
			sampled++
			return metrics.Gather()
		})
		go d.page.Run(t.Context())
		time.Sleep(61 * time.Second) // by the fake clock
		synctest.Wait()
		if sampled != 5 {
			t.Errorf("%d samples in a minute, expected 5", sampled)
		}
		for range 30 {
			d.state(t, "m")
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if n := sampled - 5; n < 30 || n > 34 {
			t.Errorf("%d samples in a minute of questions, expected one for each and those of Run", n)
		}
		m := d.state(t, "m").Model
		for i, s := range m.History {
			if want := began.Add(time.Duration(i) * stepTime).UnixMilli(); s.At != want {
				t.Errorf("step %d at %d, expected %d", i, s.At, want)
			}
		}
	})
}
