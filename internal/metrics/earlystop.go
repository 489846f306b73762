package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
)

// passesEdges lists the bucket edges of ckd_passes_used.
var passesEdges = []float64{2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}

// earlyStops declares what early stopping saves and what full-pass checks of it say. Only models
// whose policy has a rule in force have these series.
type earlyStops struct {
	used                           *prometheus.HistogramVec // passes
	saved                          *prometheus.CounterVec   // passes
	checked, disagreements, lost   *prometheus.CounterVec
	disagreement, evidence, halted *computed

	inForce map[string]bool // the models with a rule in force, under the collector's lock
}

func declareEarlyStops(t *table) earlyStops {
	const used, usedHelp = "ckd_passes_used", "Passes used by an input that may be decided early; a checked one uses all."
	passes := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: used, Help: usedHelp, Buckets: passesEdges}, []string{"model"})
	t.add(used, "histogram", usedHelp, []string{"model"}, passes)
	return earlyStops{
		used: passes,
		saved: t.counter("ckd_passes_saved_total",
			"Passes that inputs decided early did not use.",
			"model"),
		checked: t.counter("ckd_early_stop_checked_total",
			"Inputs that ran on to their last pass to check the early decision.",
			"model"),
		disagreements: t.counter("ckd_early_stop_disagreements_total",
			"Checked inputs whose early decision differs from that of all passes, by how.",
			"model", "verdict"),
		lost: t.counter("ckd_early_stop_checks_lost_total",
			"Inputs chosen for a full-pass check that ended without their last pass.",
			"model"),
		disagreement: t.computed("ckd_early_stop_disagreement",
			"Share of inputs decided early otherwise than by all passes, or of the deferred ones retained early: "+
				"the ends of its 95% interval, valid at all times at once, and what is certified.",
			"model", "inputs", "bound"),
		evidence: t.computed("ckd_early_stop_evidence",
			"Evidence that a certified share is exceeded; at 1 the daemon stops deciding early.",
			"model"),
		halted: t.computed("ckd_early_stop_halted",
			"1 if the daemon has stopped deciding early, until the policy changes; else 0.",
			"model"),
		inForce: make(map[string]bool),
	}
}

// modelEarlyStop holds the counts of a model whose policy has a rule in force.
type modelEarlyStop struct {
	used          prometheus.Observer
	saved         prometheus.Counter // passes
	checked, lost prometheus.Counter
	disagreements map[fullpass.Verdict]prometheus.Counter
}

// model creates the series of a model, or finds those that exist. If its policy has no rule in force,
// model deletes them and returns nil.
func (f *earlyStops) model(p *policy.Policy) *modelEarlyStop {
	if p.EarlyStop() == nil {
		f.remove(p.Name)
		return nil
	}
	f.inForce[p.Name] = true
	m := &modelEarlyStop{
		used:          f.used.WithLabelValues(p.Name),
		saved:         f.saved.WithLabelValues(p.Name),
		checked:       f.checked.WithLabelValues(p.Name),
		lost:          f.lost.WithLabelValues(p.Name),
		disagreements: make(map[fullpass.Verdict]prometheus.Counter),
	}
	for _, v := range []fullpass.Verdict{fullpass.WronglyRetained, fullpass.WronglyDeferred, fullpass.OtherSide} {
		m.disagreements[v] = f.disagreements.WithLabelValues(p.Name, v.String())
	}
	return m
}

// remove deletes the series of a model.
func (f *earlyStops) remove(model string) {
	if !f.inForce[model] {
		return
	}
	delete(f.inForce, model)
	for _, v := range []vec{f.used, f.saved, f.checked, f.disagreements, f.lost} {
		v.DeletePartialMatch(prometheus.Labels{"model": model})
	}
}

// collect sends a scrape what full-pass checks say, unless the rule they are about went out of
// force since.
func (f *earlyStops) collect(checks map[string]fullpass.Status, to chan<- prometheus.Metric) {
	for model, now := range checks {
		if !f.inForce[model] {
			continue
		}
		for inputs, rate := range map[string]fullpass.Rate{"all": now.All, "deferred": now.Deferred} {
			f.disagreement.send(to, rate.Low, model, inputs, "low")
			f.disagreement.send(to, rate.High, model, inputs, "high")
			if rate.Certified > 0 {
				f.disagreement.send(to, rate.Certified, model, inputs, "certified")
			}
		}
		f.evidence.send(to, now.Evidence/now.RunLength, model)
		f.halted.send(to, oneIf(now.Stop != nil), model)
	}
}

// PassesUsed counts an input that may be stopped early and was not checked: it used this many of
// all passes.
func (m *Model) PassesUsed(used, all int) {
	if s := m.earlyStop; s != nil {
		s.used.Observe(float64(used))
		s.saved.Add(float64(max(all-used, 0)))
	}
}

// FullPassChecked counts a checked input, which had all passes.
func (m *Model) FullPassChecked(v fullpass.Verdict, all int) {
	s := m.earlyStop
	if s == nil {
		return
	}
	s.used.Observe(float64(all))
	s.checked.Inc()
	if counter := s.disagreements[v]; counter != nil {
		counter.Inc()
	}
}

// FullPassCheckLost counts a checked input that ended without its last pass.
func (m *Model) FullPassCheckLost() {
	if s := m.earlyStop; s != nil {
		s.lost.Inc()
	}
}

// ReadFullPassChecks makes every scrape call read for what full-pass checks say, by model. A scrape
// takes only models whose policy has a rule in force. read may wait for Model and Remove.
func (m *Metrics) ReadFullPassChecks(read func() map[string]fullpass.Status) {
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		checks := read()
		return func(to chan<- prometheus.Metric) { m.collector.earlyStop.collect(checks, to) }
	})
}
