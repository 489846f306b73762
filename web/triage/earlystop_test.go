package triage

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/monitor/fullpass"
)

const earlyStopModel = `
name: m
classes: [a, b, c]
critical: [b]
passes: {fewest: 5, expected: 6}
primary: {score: c_crit_max, threshold: 0.1}
fallback: {score: cbec, threshold: 0.1}`

// TestEarlyStop checks that the page shows what was used and saved in each span, what full-pass
// checks said, and when it saw early stopping end.
func TestEarlyStop(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, withRule(t, earlyStopModel))
	if s := d.state(t, "m"); s.Model.EarlyStop != nil || s.Model.Spans[0].EarlyStop != nil {
		t.Errorf("before the metrics tell of it: %+v", s.Model.EarlyStop)
	}
	w := d.watch(t, "m")
	d.page.sample()
	m := d.models["m"].metrics
	m.PassesUsed(6, 6) // in the first step, 14 minutes before the last
	m.FullPassChecked(fullpass.WronglyDeferred, 6)
	d.step(stepTime)
	d.step(14 * time.Minute)
	m.PassesUsed(5, 6)
	m.PassesUsed(5, 6)
	m.FullPassChecked(fullpass.SameRetain, 6)
	m.FullPassChecked(fullpass.WronglyRetained, 6)
	m.FullPassChecked(fullpass.OtherSide, 6)
	m.FullPassChecked(fullpass.OtherSide, 6)
	m.FullPassChecked(fullpass.SameDefer, 6)
	m.FullPassCheckLost()
	for range 300 {
		w.Add(fullpass.SameRetain)
	}
	d.clock.advance(stepTime)

	s := d.state(t, "m").Model
	for i, want := range []earlyStopSpan{
		{7, 40, 2, 5, 1, []Reason{{"other_side", 2}, {"wrongly_retained", 1}}},
		{9, 52, 2, 6, 1, []Reason{{"other_side", 2}, {"wrongly_deferred", 1}, {"wrongly_retained", 1}}},
	} {
		if diff := cmp.Diff(&want, s.Spans[2*i].EarlyStop); diff != "" {
			t.Errorf("%d minutes (-want +got):\n%s", s.Spans[2*i].Minutes, diff)
		}
	}
	status := w.Status()
	want := &earlyStopState{
		Passes: 6, Confidence: 0.9, MeanPasses: 3.5, Groups: 40, HalvesDiffer: new(0.06), Evidence: status.Evidence / 1000,
		All:      checkedShare{status.All.Low, status.All.High, new(0.01)},
		Deferred: checkedShare{status.Deferred.Low, status.Deferred.High, new(0.05)},
	}
	if diff := cmp.Diff(want, s.EarlyStop); diff != "" {
		t.Errorf("early stopping (-want +got):\n%s", diff)
	}

	for range 20 {
		w.Add(fullpass.WronglyRetained)
	}
	d.clock.advance(stepTime)
	stopped := d.clock.now()
	for _, later := range []time.Duration{0, time.Minute} {
		d.clock.advance(later)
		if got := d.state(t, "m").Model.EarlyStop; !got.Stopped || got.StoppedAt == nil || !got.StoppedAt.Equal(stopped) {
			t.Errorf("%v after the stop: %+v, want stopped at %v", later, got, stopped)
		}
	}

	// The page cannot know when a rule stopped before the first sample.
	d.put(t, withRule(t, strings.Replace(earlyStopModel, "threshold: 0.1", "threshold: 0.2", 1)))
	if got := d.later(t, "m").EarlyStop; !got.Stopped || got.StoppedAt != nil {
		t.Errorf("under another policy: %+v", got)
	}
	// Without a rule in force the page shows nothing.
	d.put(t, earlyStopModel)
	if s := d.later(t, "m"); s.EarlyStop != nil || s.Spans[2].EarlyStop != nil {
		t.Errorf("without a rule: %+v", s.EarlyStop)
	}
}
