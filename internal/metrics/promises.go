package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/store"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// promises declares what outcomes say about policies, and how the store of outcomes is. Only a daemon that
// keeps a ledger has these series, but for alarms, faults and the age of the state, which every daemon with a ledger has.
type promises struct {
	outcomes *prometheus.CounterVec

	share, evidence, since, state, reviews, overdue, age, raised, ended, fault *computed
	bytes, free, failed, backup                                                *computed
}

func declarePromises(t *table) promises {
	return promises{
		outcomes: t.counter("ckd_outcomes_total",
			"Outcomes that were reported to the ledger, by what became of them; without a model where the "+
				"receipt does not say.",
			"model", "status"),
		share: t.computed("ckd_promise",
			"A risk that outcomes show, on average since the policy came into force: the estimate, the ends "+
				"low and high of its 95% interval, valid at all times at once, and the line that it is held "+
				"against; while an alarm is up also the rate since the risk seems to have risen. Absent while "+
				"nothing is known.",
			"model", "policy", "version", "figure", "class", "bound"),
		evidence: t.computed("ckd_promise_evidence",
			"Evidence that the risk is above its line, on a scale where 1 raises the alarm: its logarithm "+
				"over that of its limit. Absent without a line.",
			"model", "policy", "version", "figure", "class"),
		since: t.computed("ckd_promise_since_timestamp_seconds",
			"When the risk seems to have risen above its line, while an alarm is up: chosen by looking.",
			"model", "policy", "version", "figure", "class"),
		state: t.computed("ckd_promise_state",
			"1 for the verdict on a policy and model version, 0 for the others.",
			"model", "policy", "version", "verdict"),
		reviews: t.computed("ckd_promise_reviews",
			"Reviews that the ledger knows of, since the policy came into force: issued, as daemons told; "+
				"due, those whose outcome is due; answered, those of the due that have one. Of inputs called "+
				"critical that come back without asking, due and answered count receipts.",
			"model", "policy", "version", "stratum", "state"),
		overdue: t.computed("ckd_outcomes_overdue_ratio",
			"Share of the reviews whose outcome is due that have none, over the last cohorts. Absent while "+
				"none is due.",
			"model", "policy", "version", "stratum"),
		age: t.computed("ckd_ledger_state_age_seconds",
			"Seconds since the ledger last answered this daemon, or since the daemon started if it never has; "+
				"absent without a ledger."),
		raised: t.computed("ckd_alarm_raised_timestamp_seconds",
			"When the last alarm on a figure of a model was raised, as far as this daemon knows: it remembers "+
				"alarms whatever becomes of the ledger. 0 for never.",
			"model", "figure", "class"),
		ended: t.computed("ckd_alarm_ended_timestamp_seconds",
			"When that alarm was ended by somebody; 0 while it is up.",
			"model", "figure", "class"),
		fault: t.computed("ckd_ledger_fault",
			"1 for what is wrong between this daemon and its ledger, 0 for what is not; absent without a "+
				"ledger.",
			"fault"),
		bytes: t.computed("ckd_ledger_bytes",
			"Bytes of the ledger's file and its log, in the daemon that keeps it."),
		free: t.computed("ckd_ledger_free_bytes",
			"Bytes that the file system of the ledger has left for this daemon."),
		failed: t.computedCounter("ckd_ledger_failed_writes_total",
			"Writes of the ledger that its disk refused. What they would have kept was answered as not kept."),
		backup: t.computed("ckd_ledger_backup_timestamp_seconds",
			"When the ledger was last backed up, in seconds since 1970; 0 for never."),
	}
}

// collect sends a scrape what outcomes say.
func (f *promises) collect(all []*ckdv1.PromiseFigures, to chan<- prometheus.Metric) {
	for _, p := range all {
		state := p.GetPromise()
		of := []string{state.GetPolicy().GetModel(), state.GetPolicy().GetHash(), state.GetModelVersion()}
		with := func(more ...string) []string { return slices.Concat(of, more) }
		for number, name := range ckdv1.Verdict_name {
			if v := ckdv1.Verdict(number); v != ckdv1.Verdict_VERDICT_UNSPECIFIED {
				f.state.send(to, oneIf(state.GetVerdict() == v), with(label(name, "VERDICT_"))...)
			}
		}
		for _, s := range p.GetStrata() {
			stratum := label(s.GetStratum().String(), "STRATUM_")
			if s.Expected != nil {
				f.reviews.send(to, float64(s.GetReviews()), with(stratum, "issued")...)
			}
			f.reviews.send(to, float64(s.GetDue()), with(stratum, "due")...)
			f.reviews.send(to, float64(s.GetArrived()), with(stratum, "answered")...)
			if late := s.GetLateLately().GetShare(); late != nil {
				f.overdue.send(to, late.GetValue(), with(stratum)...)
			}
		}
		for _, figure := range p.GetMature().GetFigures() {
			f.collectFigure(figure, with(label(figure.GetFigure().String(), "CERTIFIED_FIGURE_"), figure.GetCriticalClass()), to)
		}
	}
}

func (f *promises) collectFigure(figure *ckdv1.RiskFigure, labels []string, to chan<- prometheus.Metric) {
	bound := func(name string, value float64) { f.share.send(to, value, append(slices.Clone(labels), name)...) }
	if a := figure.GetAverage(); a != nil {
		bound("estimate", a.GetValue())
		bound("low", a.GetLow())
		bound("high", a.GetHigh())
	}
	if figure.Line != nil {
		bound("line", figure.GetLine())
	}
	if m := figure.GetMonitor(); m != nil {
		f.evidence.send(to, m.GetLogEvidence(), labels...)
		if m.GetSince() != nil {
			f.since.send(to, seconds(m.GetSince().AsTime()), labels...)
		}
		if rate := m.GetSinceRate().GetShare(); rate != nil {
			bound("since", rate.GetValue())
		}
	}
}

// label returns the label value of an enum's name.
func label(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// Outcome counts an outcome that was reported to the ledger. model is empty where its receipt does not
// say.
func (m *Metrics) Outcome(model string, s ledger.Status) {
	m.collector.promises.outcomes.WithLabelValues(model, s.String()).Inc()
}

// ReadPromises makes every scrape call read for what the ledger of this daemon says. The counts of
// outcomes exist from then on.
func (m *Metrics) ReadPromises(read func() []*ckdv1.PromiseFigures) {
	for _, s := range ledger.Statuses() {
		m.collector.promises.outcomes.WithLabelValues("", s.String())
	}
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		all := read()
		return func(to chan<- prometheus.Metric) { m.collector.promises.collect(all, to) }
	})
}

// ReadLedger makes every scrape call read for what is wrong between this daemon and its ledger, by
// name, and for the last alarm of each figure.
func (m *Metrics) ReadLedger(faults func() map[string]bool, alarms func() []ledger.Alarm) {
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		present, known := faults(), alarms()
		return func(to chan<- prometheus.Metric) {
			f := &m.collector.promises
			for name, now := range present {
				f.fault.send(to, oneIf(now), name)
			}
			for i := range known {
				a := &known[i]
				f.raised.send(to, seconds(a.Raised), a.Model, a.Figure, a.Class)
				f.ended.send(to, seconds(a.Ended), a.Model, a.Figure, a.Class)
			}
		}
	})
}

// ReadStore makes every scrape call read for how the store of this daemon's ledger is.
func (m *Metrics) ReadStore(read func() store.Status) {
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		s := read()
		return func(to chan<- prometheus.Metric) {
			f := &m.collector.promises
			f.bytes.send(to, float64(s.FileBytes+s.LogBytes))
			f.free.send(to, float64(s.FreeBytes))
			f.failed.send(to, float64(s.FailedWrites))
			f.backup.send(to, seconds(s.LastBackup))
		}
	})
}

// seconds returns a time in seconds since 1970; 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

// ReadStateTime makes every scrape call read for when the ledger last answered this daemon; when the
// daemon started if it never has, so that a ledger that was never reached is seen too.
func (m *Metrics) ReadStateTime(read func() time.Time) {
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		age := max(0, clock.Since(read()).Seconds())
		return func(to chan<- prometheus.Metric) { m.collector.promises.age.send(to, age) }
	})
}
