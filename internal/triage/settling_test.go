package triage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/settle/audit"
)

const settledModel = `
name: m
classes: [a, b, c]
critical: [b]
passes: {fewest: 5, expected: 6}
primary: {score: c_crit_max, threshold: 0.1}
fallback: {score: cbec, threshold: 0.1}`

// TestSettling: the page says what was used and saved in each span, what audits have
// said, and when it saw settling stop.
func TestSettling(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{}, 0, withRule(t, settledModel))
	if s := d.state(t, "m"); s.Model.Settling != nil || s.Model.Spans[0].Settling != nil {
		t.Errorf("before the metrics tell of it: %+v", s.Model.Settling)
	}
	w := d.watch(t, "m")
	d.page.sample()
	m := d.models["m"].metrics
	m.PassesUsed(6, 6) // in the first step, 14 minutes before the last
	m.SettleAudited(audit.WronglyDeferred, 5, 6)
	d.clock.advance(stepTime)
	d.page.sample()
	d.clock.advance(14 * time.Minute)
	d.page.sample()
	m.PassesUsed(5, 6)
	m.PassesUsed(5, 6)
	m.SettleAudited(audit.SameRetain, 5, 6)
	m.SettleAudited(audit.WronglyRetained, 5, 6)
	m.SettleAudited(audit.OtherSide, 5, 6)
	m.SettleAudited(audit.OtherSide, 5, 6)
	m.SettleAudited(audit.SameDefer, 6, 6)
	m.SettleAuditLost()
	for range 300 {
		w.Add(audit.SameRetain)
	}
	d.clock.advance(stepTime)

	s := d.state(t, "m").Model
	for i, want := range []SettlingSpan{
		{7, 40, 2, 4, 5, 1, []Reason{{"other_side", 2}, {"wrongly_retained", 1}}},
		{9, 52, 2, 5, 6, 1, []Reason{{"other_side", 2}, {"wrongly_deferred", 1}, {"wrongly_retained", 1}}},
	} {
		got := s.Spans[2*i].Settling
		if got == nil || !slices.Equal(got.Disagreements, want.Disagreements) {
			t.Fatalf("%d minutes: %+v, want %+v", s.Spans[2*i].Minutes, got, want)
		}
		if got.Inputs != want.Inputs || got.Used != want.Used || got.Saved != want.Saved || got.OnAudit != want.OnAudit ||
			got.Audited != want.Audited || got.Lost != want.Lost {
			t.Errorf("%d minutes: %+v, want %+v", s.Spans[2*i].Minutes, got, want)
		}
	}
	is := w.Status()
	got := s.Settling
	if got == nil || got.Stopped || got.StoppedAt != nil || got.Passes != 6 || got.Confidence != 0.9 || got.MeanPasses != 3.5 ||
		*got.HalvesDiffer != 0.06 || got.Evidence != is.Evidence || got.EvidenceLimit != 1000 ||
		got.All.Low != is.All.Low || got.All.High != is.All.High || *got.All.Certified != 0.01 ||
		got.Deferred.High != 1 || *got.Deferred.Certified != 0.05 {
		t.Errorf("settling: %+v, want %+v", got, is)
	}

	for range 20 {
		w.Add(audit.WronglyRetained)
	}
	d.clock.advance(stepTime)
	at := d.clock.now()
	if got := d.state(t, "m").Model.Settling; !got.Stopped || got.StoppedAt == nil || !got.StoppedAt.Equal(at) {
		t.Errorf("settling has stopped: %+v, want so at %v", got, at)
	}
	d.clock.advance(time.Minute)
	if got := d.state(t, "m").Model.Settling; !got.Stopped || got.StoppedAt == nil || !got.StoppedAt.Equal(at) {
		t.Errorf("a minute later: %+v, want still %v", got, at)
	}

	// Of a rule that had stopped before the page looked, it is not known when.
	d.put(t, withRule(t, strings.Replace(settledModel, "threshold: 0.1", "threshold: 0.2", 1)))
	d.clock.advance(stepTime)
	if got := d.state(t, "m").Model.Settling; !got.Stopped || got.StoppedAt != nil {
		t.Errorf("under another policy: %+v", got)
	}
	// Without a rule in force there is nothing to be told.
	d.put(t, settledModel)
	d.clock.advance(stepTime)
	if s := d.state(t, "m").Model; s.Settling != nil || s.Spans[2].Settling != nil {
		t.Errorf("without a rule: %+v", s.Settling)
	}
}
