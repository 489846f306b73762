package metrics

import (
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

	recorders []Recorder // by shard

	decisions []decisionSeries
	scores    [1 + policy.ByFallback]policy.Score // by outcome of the gate
	labels    classLabels
	classes   []classSeries // by label
	pairs     []pairSeries

	drift    *driftWatch // nil where there is nothing to compare with
	compared []comparedClass

	mutualInformation, entropy, epistemicSum *histogramSeries
	fallback, passes, degenerate, saturated  *counterSeries

	settle *settleSeries // nil where inputs are not settled

	late, abandoned             prometheus.Counter
	rejected, messages          *reasonCounters
	otherPasses, otherPosterior prometheus.Counter
	inputsOpen, streamsOpen     prometheus.Gauge
}

// decisionSeries is the series of a decision that the policy can take.
type decisionSeries struct {
	decision
	series *counterSeries
}

// classSeries is the series of one class, or of those that share a label.
type classSeries struct {
	epistemic, skewness                       *histogramSeries
	unreliable, predicted, dominant, deciding *counterSeries
}

// pairSeries is the series of one pair of the plan.
type pairSeries struct {
	term      int // in Plan.Pairs
	a, b      string
	confusion *counterSeries
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

		recorders: make([]Recorder, len(s.shards)),
		labels:    newClassLabels(p, o.ClassLabels),

		mutualInformation: s.mutualInformation.with(name),
		entropy:           s.entropy.with(name),
		epistemicSum:      s.epistemicSum.with(name),

		fallback:   s.fallback.with(name),
		passes:     s.passes.with(name),
		late:       s.late.WithLabelValues(name),
		degenerate: s.degenerate.with(name),
		saturated:  s.saturated.with(name),
		abandoned:  s.abandoned.WithLabelValues(name),
		rejected:   newReasonCounters(s.rejected, name, o.RejectReasons),
		messages:   newReasonCounters(s.messages, name, o.MessageReasons),

		otherPasses:    s.mismatches.WithLabelValues(name, "passes"),
		otherPosterior: s.mismatches.WithLabelValues(name, "posterior"),

		inputsOpen:  s.inputsOpen.WithLabelValues(name),
		streamsOpen: s.streamsOpen.WithLabelValues(name),
	}
	m.settle = s.settling(p)
	m.drift = s.watch(p, &m.labels)
	m.compared = m.drift.comparedClasses(p)
	for i := range m.recorders {
		m.recorders[i] = Recorder{model: m, shard: &s.shards[i], index: i}
	}
	m.scores[policy.ByPrimary], m.scores[policy.ByFallback] = p.Primary.Score, p.Fallback.Score
	for _, d := range decisionsOf(p) {
		m.decisions = append(m.decisions, decisionSeries{d, m.decisionSeries(d)})
	}
	for _, label := range m.labels.names {
		m.classes = append(m.classes, classSeries{
			epistemic:  s.epistemic.with(name, label),
			skewness:   s.skewness.with(name, label),
			unreliable: s.unreliable.with(name, label),
			predicted:  s.predicted.with(name, label),
			dominant:   s.dominant.with(name, label),
			deciding:   s.deciding.with(name, label),
		})
	}
	for i, pair := range plan.Pairs() {
		if m.labels.isCut(pair.A) || m.labels.isCut(pair.B) {
			continue
		}
		a, b := p.Classes[pair.A], p.Classes[pair.B]
		m.pairs = append(m.pairs, pairSeries{i, a, b, s.confusion.with(name, a, b)})
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
			f.vec.DeletePartialMatch(prometheus.Labels{"model": m.name, "class": label})
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

func (m *Model) decisionSeries(d decision) *counterSeries {
	return m.series.decisions.with(m.name, d.action.String(), string(d.score), d.reason.String())
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
