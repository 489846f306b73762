package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle/audit"
)

// passesEdges are the buckets of ckd_passes_used.
var passesEdges = []float64{2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}

// settleSeries is what is counted of a model whose policy has a rule to settle inputs
// by. A nil one counts nothing.
type settleSeries struct {
	used                          prometheus.Observer
	saved, onAudits               prometheus.Counter // passes
	audited, lost                 prometheus.Counter
	retained, deferred, otherwise prometheus.Counter // disagreements
}

// PassesUsed counts an input that might be settled and was not audited: so many of all
// passes were used.
func (m *Model) PassesUsed(used, all int) {
	if s := m.settle; s != nil {
		s.used.Observe(float64(used))
		s.saved.Add(float64(max(all-used, 0)))
	}
}

// SettleAudited counts an audited input. It had all passes, and would have been settled
// after so many of them, or else after all.
func (m *Model) SettleAudited(v audit.Verdict, would, all int) {
	s := m.settle
	if s == nil {
		return
	}
	s.used.Observe(float64(all))
	s.onAudits.Add(float64(max(all-would, 0)))
	s.audited.Inc()
	switch v {
	case audit.WronglyRetained:
		s.retained.Inc()
	case audit.WronglyDeferred:
		s.deferred.Inc()
	case audit.OtherSide:
		s.otherwise.Inc()
	}
}

// SettleAuditLost counts an audited input that ended without its last pass.
func (m *Model) SettleAuditLost() {
	if s := m.settle; s != nil {
		s.lost.Inc()
	}
}

// ReadSettling makes every scrape ask what audits have said, by model. It is told of
// those alone whose policy has a rule in force; before that of none. read may wait for
// whoever puts a policy in force.
func (m *Metrics) ReadSettling(read func() map[string]audit.Status) {
	m.series.mu.Lock()
	defer m.series.mu.Unlock()
	m.series.readSettling = read
}

// readSettled asks what audits have said. The caller does not hold the lock, as read may
// wait for somebody who wants it.
func (s *series) readSettled() map[string]audit.Status {
	s.mu.RLock()
	read := s.readSettling
	s.mu.RUnlock()
	if read == nil {
		return nil
	}
	return read()
}

// collectSettled tells a scrape.
func (s *series) collectSettled(all map[string]audit.Status, to chan<- prometheus.Metric) {
	for model, is := range all {
		if !s.settled[model] {
			continue // its policy is gone since
		}
		tell := func(of *gauges, value float64, labels ...string) {
			sample := of.with(append([]string{model}, labels...)...)
			sample.value = value
			to <- &sample
		}
		for _, one := range []struct {
			of string
			audit.Rate
		}{{"all", is.All}, {"deferred", is.Deferred}} {
			tell(s.settleLow, one.Low, one.of)
			tell(s.settleHigh, one.High, one.of)
			if one.Certified > 0 {
				tell(s.settleCertified, one.Certified, one.of)
			}
		}
		tell(s.settleEvidence, is.Evidence)
		tell(s.settleEvidenceLimit, is.RunLength)
		tell(s.settleStopped, oneIf(is.State == audit.Stopped))
	}
}

// declareSettling is the rows of declare that only models with a rule in force have.
func (s *series) declareSettling() {
	from := len(s.families)
	const used, usedHelp = "ckd_passes_used", "Passes used of an input that might be settled; an audited one uses all."
	s.passesUsed = prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: used, Help: usedHelp, Buckets: passesEdges}, []string{"model"})
	s.families = append(s.families, family{used, "histogram", usedHelp, []string{"model"}, s.passesUsed})
	s.passesSaved = s.counter("ckd_passes_saved_total",
		"Passes that settled inputs did not use. It is net of audits, whose inputs use all.",
		"model")
	s.passesAudited = s.counter("ckd_settle_passes_audited_total",
		"Passes that audited inputs used and would not have: what the audits cost.",
		"model")
	s.settleAudited = s.counter("ckd_settle_audited_total",
		"Inputs that had all their passes so that what they would have been settled to could be compared.",
		"model")
	s.settleDisagreements = s.counter("ckd_settle_disagreements_total",
		"Audited inputs that all passes decide otherwise than they would have been settled, by how.",
		"model", "verdict")
	s.settleLost = s.counter("ckd_settle_audits_lost_total",
		"Inputs that were to be audited and ended without their last pass: nothing could be compared.",
		"model")
	s.ofSettling = s.families[from:len(s.families):len(s.families)]

	s.settleLow = s.asked("ckd_settle_disagreement_low",
		"Lower end of the 95% interval, valid at all times at once, of the share of inputs that would be settled otherwise than "+
			"all passes decide them; of deferred, of those that all passes defer the share that would be settled to be retained.",
		"model", "of")
	s.settleHigh = s.asked("ckd_settle_disagreement_high",
		"Upper end of the interval of ckd_settle_disagreement_low.",
		"model", "of")
	s.settleCertified = s.asked("ckd_settle_disagreement_certified",
		"What the policy certifies that the share of ckd_settle_disagreement_low does not exceed; only where it does.",
		"model", "of")
	s.settleEvidence = s.asked("ckd_settle_evidence",
		"Evidence from audits that a certified share is exceeded; at ckd_settle_evidence_limit the daemon stops settling.",
		"model")
	s.settleEvidenceLimit = s.asked("ckd_settle_evidence_limit",
		"The ckd_settle_evidence that stops settling: how many audits there are on average until a stop that nothing justifies.",
		"model")
	s.settleStopped = s.asked("ckd_settle_stopped",
		"1 if the daemon has stopped settling, as audits disagreed, until its policy is another one; else 0.",
		"model")
}

// settling creates the series of a model whose policy has a rule in force, or finds those
// that are there. Where it has none they go.
func (s *series) settling(p *policy.Policy) *settleSeries {
	if p.SettleRule() == nil {
		for _, f := range s.ofSettling {
			f.vec.DeletePartialMatch(prometheus.Labels{"model": p.Name})
		}
		delete(s.settled, p.Name)
		return nil
	}
	found := &settleSeries{
		used:      s.passesUsed.WithLabelValues(p.Name),
		saved:     s.passesSaved.WithLabelValues(p.Name),
		onAudits:  s.passesAudited.WithLabelValues(p.Name),
		audited:   s.settleAudited.WithLabelValues(p.Name),
		lost:      s.settleLost.WithLabelValues(p.Name),
		retained:  s.settleDisagreements.WithLabelValues(p.Name, audit.WronglyRetained.String()),
		deferred:  s.settleDisagreements.WithLabelValues(p.Name, audit.WronglyDeferred.String()),
		otherwise: s.settleDisagreements.WithLabelValues(p.Name, audit.OtherSide.String()),
	}
	s.settled[p.Name] = true
	return found
}
