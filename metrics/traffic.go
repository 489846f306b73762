package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// traffic declares what comes in for a model: open inputs and streams, refusals, and inputs and
// passes that no decision counts.
type traffic struct {
	late, rejected, abandoned, messages, mismatches, slices *prometheus.CounterVec
	inputsOpen, streamsOpen                                 *prometheus.GaugeVec
}

func declareTraffic(t *table) traffic {
	return traffic{
		late: t.counter("ckd_passes_late_total",
			"Passes ignored because their input was already decided or had failed.",
			"model"),
		rejected: t.counter("ckd_inputs_rejected_total",
			"Inputs refused with an error. A refused call counts the inputs that it states, a "+
				"refused stream one; model is empty if the call named no served model.",
			"model", "reason"),
		messages: t.counter("ckd_messages_refused_total",
			"Messages of streams refused without blaming one input: for a group that is "+
				"already open, or a row that its group does not have.",
			"model", "reason"),
		abandoned: t.counter("ckd_inputs_abandoned_total",
			"Inputs that ended undecided because their call was cancelled or broke.",
			"model"),
		mismatches: t.counter("ckd_calibration_mismatches_total",
			"Inputs decided with another number of passes than the calibration, or from a "+
				"client that states another posterior. The thresholds do not carry over.",
			"model", "what"),
		slices: t.counter("ckd_slices_undeclared_total",
			"Slices of inputs that clients state and the policy's audit does not declare, by name or "+
				"value. Receipts leave them out.",
			"model"),
		inputsOpen: t.gauge("ckd_inputs_open",
			"Inputs open on streams, whose passes are still arriving.",
			"model"),
		streamsOpen: t.gauge("ckd_streams_open",
			"Open streams.",
			"model"),
	}
}

// modelTraffic holds the traffic of one model. It may be shared.
type modelTraffic struct {
	late, abandoned             prometheus.Counter
	rejected, messages          *reasonCounters
	otherPasses, otherPosterior prometheus.Counter
	slices                      prometheus.Counter
	inputsOpen, streamsOpen     prometheus.Gauge
}

// of creates the series of a model, or finds those that exist.
func (f *traffic) of(model string, o Options) modelTraffic {
	return modelTraffic{
		late:           f.late.WithLabelValues(model),
		abandoned:      f.abandoned.WithLabelValues(model),
		rejected:       newReasonCounters(f.rejected, model, o.RejectReasons),
		messages:       newReasonCounters(f.messages, model, o.MessageReasons),
		otherPasses:    f.mismatches.WithLabelValues(model, "passes"),
		otherPosterior: f.mismatches.WithLabelValues(model, "posterior"),
		slices:         f.slices.WithLabelValues(model),
		inputsOpen:     f.inputsOpen.WithLabelValues(model),
		streamsOpen:    f.streamsOpen.WithLabelValues(model),
	}
}

// Late counts passes that were ignored because their input was finished or had failed. n must not be
// negative.
func (m *modelTraffic) Late(n int) { m.late.Add(float64(n)) }

// Rejected counts n refused inputs under one of Options.RejectReasons, or any other text as "other".
func (m *modelTraffic) Rejected(reason string, n int) { m.rejected.add(reason, n) }

// MessageRefused counts a refused message of a stream under one of Options.MessageReasons.
func (m *modelTraffic) MessageRefused(reason string) { m.messages.add(reason, 1) }

// SliceUndeclared counts a slice of an input that the policy's audit does not declare.
func (m *modelTraffic) SliceUndeclared() { m.slices.Inc() }

// OtherPasses counts a decided input that had another number of passes than the calibration.
func (m *modelTraffic) OtherPasses() { m.otherPasses.Inc() }

// OtherPosterior counts a decided input whose client states another posterior than the calibration.
func (m *modelTraffic) OtherPosterior() { m.otherPosterior.Inc() }

// Abandoned counts inputs that ended undecided. n must not be negative.
func (m *modelTraffic) Abandoned(n int) { m.abandoned.Add(float64(n)) }

// InputsOpen changes the number of open inputs.
func (m *modelTraffic) InputsOpen(delta int) { m.inputsOpen.Add(float64(delta)) }

// StreamsOpen changes the number of open streams.
func (m *modelTraffic) StreamsOpen(delta int) { m.streamsOpen.Add(float64(delta)) }

// reasonCounters counts refusals by reason.
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

// add counts under the reason. A reason that is not in the list might be a client's text: add counts
// it as "other".
func (c *reasonCounters) add(reason string, n int) {
	counter, ok := c.byReason[reason]
	if !ok {
		counter = c.vec.WithLabelValues(c.model, "other")
	}
	counter.Add(float64(n))
}
