package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Model is the series of one model under one policy. It may be shared.
type Model struct {
	series        *series
	name          string
	version, hash string
	threshold     float64 // of reliability

	decisions map[decision]prometheus.Counter
	labels    classLabels
	classes   []classSeries // by label
	pairs     []pairSeries

	mutualInformation, entropy, epistemicSum prometheus.Observer

	passes, late                     prometheus.Counter
	degenerate, saturated, abandoned prometheus.Counter
	rejected, messages               *reasonCounters
	otherPasses, otherPosterior      prometheus.Counter
	inputsOpen, streamsOpen          prometheus.Gauge
}

// classSeries is the series of one class, or of those that share a label.
type classSeries struct {
	epistemic, skewness                       prometheus.Observer
	unreliable, predicted, dominant, deciding prometheus.Counter
}

// pairSeries is the series of one pair of the plan.
type pairSeries struct {
	term      int // in Result.PairTerm
	a, b      string
	confusion prometheus.Counter
}

// Observe counts an input that was decided. r must come from the model's plan
// and d from its policy. It allocates only where a native histogram bucket gets
// its first value.
func (m *Model) Observe(r *decomp.Result, d policy.Decision) {
	m.decided(d)
	for k, c := range r.C {
		class := &m.classes[m.labels.of[k]]
		observe(class.epistemic, c)
		observe(class.skewness, min(r.Skewness[k], largestSkewness))
		if r.Skewness[k] > m.threshold {
			class.unreliable.Inc()
		}
	}
	m.class(r.Predicted).predicted.Inc()
	if r.Dominant >= 0 {
		m.class(r.Dominant).dominant.Inc()
	}
	if d.Action == policy.Defer && d.Class >= 0 {
		m.class(d.Class).deciding.Inc()
	}
	for i := range m.pairs {
		if pair := &m.pairs[i]; r.PairTerm[pair.term] > 0 {
			pair.confusion.Add(r.PairTerm[pair.term])
		}
	}
	observe(m.mutualInformation, r.MI)
	observe(m.entropy, r.Entropy)
	observe(m.epistemicSum, r.SumC)
	m.passes.Add(float64(r.Passes))
	if r.Degenerate {
		m.degenerate.Inc()
	}
	if r.Saturated {
		m.saturated.Inc()
	}
}

// Late counts passes that were ignored because their input was finished or had
// failed. n must not be negative.
func (m *Model) Late(n int) { m.late.Add(float64(n)) }

// Rejected counts n inputs refused for one of Options.RejectReasons. Any other
// text is counted as "other".
func (m *Model) Rejected(reason string, n int) { m.rejected.add(reason, n) }

// MessageRefused counts a message of a stream that was refused, for one of
// Options.MessageReasons, without an input of its own.
func (m *Model) MessageRefused(reason string) { m.messages.add(reason, 1) }

// OtherPasses counts an input decided with another number of passes than those
// that the policy was calibrated on.
func (m *Model) OtherPasses() { m.otherPasses.Inc() }

// OtherPosterior counts an input decided whose client states another posterior.
func (m *Model) OtherPosterior() { m.otherPosterior.Inc() }

// Abandoned counts inputs that were given up undecided. n must not be negative.
func (m *Model) Abandoned(n int) { m.abandoned.Add(float64(n)) }

// InputsOpen changes the number of open inputs.
func (m *Model) InputsOpen(delta int) { m.inputsOpen.Add(float64(delta)) }

// StreamsOpen changes the number of open streams.
func (m *Model) StreamsOpen(delta int) { m.streamsOpen.Add(float64(delta)) }

// newModel creates the series of a model, or finds those that are there.
func newModel(s *series, p *policy.Policy, plan *decomp.Plan, o Options) *Model {
	name := p.Name
	m := &Model{
		series: s, name: name, version: p.Version, hash: p.Hash, threshold: p.ReliabilityThreshold,

		decisions: make(map[decision]prometheus.Counter),
		labels:    newClassLabels(p, o.ClassLabels),

		mutualInformation: s.mutualInformation.WithLabelValues(name),
		entropy:           s.entropy.WithLabelValues(name),
		epistemicSum:      s.epistemicSum.WithLabelValues(name),

		passes:     s.passes.WithLabelValues(name),
		late:       s.late.WithLabelValues(name),
		degenerate: s.degenerate.WithLabelValues(name),
		saturated:  s.saturated.WithLabelValues(name),
		abandoned:  s.abandoned.WithLabelValues(name),
		rejected:   newReasonCounters(s.rejected, name, o.RejectReasons),
		messages:   newReasonCounters(s.messages, name, o.MessageReasons),

		otherPasses:    s.mismatches.WithLabelValues(name, "passes"),
		otherPosterior: s.mismatches.WithLabelValues(name, "posterior"),

		inputsOpen:  s.inputsOpen.WithLabelValues(name),
		streamsOpen: s.streamsOpen.WithLabelValues(name),
	}
	for _, d := range decisionsOf(p) {
		m.decisions[d] = m.decisionCounter(d)
	}
	for _, label := range m.labels.names {
		m.classes = append(m.classes, classSeries{
			epistemic:  s.epistemic.WithLabelValues(name, label),
			skewness:   s.skewness.WithLabelValues(name, label),
			unreliable: s.unreliable.WithLabelValues(name, label),
			predicted:  s.predicted.WithLabelValues(name, label),
			dominant:   s.dominant.WithLabelValues(name, label),
			deciding:   s.deciding.WithLabelValues(name, label),
		})
	}
	for i, pair := range plan.Pairs() {
		if m.labels.isCut(pair.A) || m.labels.isCut(pair.B) {
			continue
		}
		a, b := p.Classes[pair.A], p.Classes[pair.B]
		m.pairs = append(m.pairs, pairSeries{i, a, b, s.confusion.WithLabelValues(name, a, b)})
	}
	s.labelsCut.WithLabelValues(name).Set(float64(m.labels.cut))
	s.policyInfo.WithLabelValues(name, p.Version, p.Hash).Set(1)
	s.expect(p)
	return m
}

// dropStale deletes the series of m that the next policy of the model has not,
// but for those of decisions: they stay, so that sums over them are never less
// than they were.
func (m *Model) dropStale(next *Model) {
	for _, label := range m.labels.names {
		if slices.Contains(next.labels.names, label) {
			continue
		}
		for _, f := range m.series.perClass() {
			f.vec.DeleteLabelValues(m.name, label)
		}
	}
	kept := make(map[[2]string]bool, len(next.pairs))
	for _, pair := range next.pairs {
		kept[[2]string{pair.a, pair.b}] = true
	}
	for _, pair := range m.pairs {
		if !kept[[2]string{pair.a, pair.b}] {
			m.series.confusion.DeleteLabelValues(m.name, pair.a, pair.b)
		}
	}
	if m.version != next.version || m.hash != next.hash {
		m.series.policyInfo.DeleteLabelValues(m.name, m.version, m.hash)
	}
}

// class is the series that class k is counted in.
func (m *Model) class(k int) *classSeries { return &m.classes[m.labels.of[k]] }

// decided counts a decision. Those that the policy can take have their counters
// here; another one would be a fault of decisionsOf, and is counted all the same.
func (m *Model) decided(d policy.Decision) {
	key := decision{d.Action, d.Score, d.Reason}
	counter, ok := m.decisions[key]
	if !ok {
		counter = m.decisionCounter(key)
	}
	counter.Inc()
}

func (m *Model) decisionCounter(d decision) prometheus.Counter {
	return m.series.decisions.WithLabelValues(m.name, string(d.action), string(d.score), string(d.reason))
}

// observe leaves out what is undefined: one NaN would make a sum NaN for good.
func observe(o prometheus.Observer, v float64) {
	if !math.IsNaN(v) {
		o.Observe(v)
	}
}

// reasonCounters counts refusals, each under a reason of a fixed list.
type reasonCounters struct {
	vec      *prometheus.CounterVec
	model    string
	byReason map[string]prometheus.Counter
}

func newReasonCounters(v *prometheus.CounterVec, model string, reasons []string) *reasonCounters {
	c := &reasonCounters{vec: v, model: model, byReason: make(map[string]prometheus.Counter, len(reasons))}
	for _, reason := range reasons {
		c.byReason[reason] = v.WithLabelValues(model, reason)
	}
	return c
}

// add counts under the reason, or where it is not in the list under a word of
// our own: it might be a client's.
func (c *reasonCounters) add(reason string, n int) {
	counter, ok := c.byReason[reason]
	if !ok {
		counter = c.vec.WithLabelValues(c.model, "other")
	}
	counter.Add(float64(n))
}

type Recorder struct{ m *Model }

func (m *Model) Record(hint uint32) Recorder                              { return Recorder{m} }
func (r Recorder) Observe(o *decomp.Result, d policy.Decision) { r.m.Observe(o, d) }
func (r Recorder) Done()                                                  {}
