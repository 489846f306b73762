package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// traffic declares what comes in for a model: open inputs, refusals, and inputs and passes that no
// decision counts.
type traffic struct {
	late, rejected, abandoned, mismatches *prometheus.CounterVec
	inputsOpen                            *prometheus.GaugeVec
	reasons                               []string             // to refuse for
	onDemand                              map[string]*onDemand // by model, under the collector's lock
}

func declareTraffic(t *table, reasons []string) traffic {
	return traffic{
		late: t.counter("ckd_passes_late_total",
			"Passes ignored because their input was already decided or had failed.",
			"model"),
		rejected: t.counter("ckd_inputs_rejected_total",
			"Inputs refused with an error; a refused stream counts as one. The model is empty if no served one was named.",
			"model", "reason"),
		abandoned: t.counter("ckd_inputs_abandoned_total",
			"Inputs that ended undecided because their call was cancelled or broke.",
			"model"),
		mismatches: t.counter("ckd_calibration_mismatches_total",
			"Inputs with another number of passes than the calibration, or another posterior: its thresholds do not hold for them.",
			"model", "what"),
		inputsOpen: t.gauge("ckd_inputs_open",
			"Inputs open on streams, whose passes are still arriving.",
			"model"),
		reasons:  slices.Clone(reasons),
		onDemand: make(map[string]*onDemand),
	}
}

// onDemand counts in series that are created by their first count, until the model is removed.
type onDemand struct {
	mu      sync.Mutex
	removed bool
}

func (o *onDemand) count(v *prometheus.CounterVec, n int, labels ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.removed {
		v.WithLabelValues(labels...).Add(float64(n))
	}
}

// These reasons to refuse have series from the start, since an alert must see their first burst:
// inputs of a model that are faulty, and what found no room before it named a model.
var (
	faultyInputs = []string{"not_finite", "negative", "above_one", "sum_not_one", "not_logits", "too_few_passes", "wrong_length", "wrong_classes"}
	withoutRoom  = []string{"overloaded", "too_many_streams", "out_of_memory_budget"}
)

// create creates the series of some reasons, as far as they are among those to refuse for.
func (f *traffic) create(model string, reasons []string) {
	for _, reason := range reasons {
		if slices.Contains(f.reasons, reason) {
			f.rejected.WithLabelValues(model, reason)
		}
	}
}

// modelTraffic holds the traffic of one model. It may be shared.
type modelTraffic struct {
	families        *traffic
	onDemand        *onDemand
	model           string
	late, abandoned prometheus.Counter
	inputsOpen      prometheus.Gauge
}

// model returns the series of a model, and creates those that alerts need from the start.
func (f *traffic) model(name string) modelTraffic {
	if f.onDemand[name] == nil {
		f.onDemand[name] = new(onDemand)
	}
	f.create(name, faultyInputs)
	f.mismatches.WithLabelValues(name, "passes")
	f.mismatches.WithLabelValues(name, "posterior")
	return modelTraffic{
		families: f, onDemand: f.onDemand[name], model: name,
		late:       f.late.WithLabelValues(name),
		abandoned:  f.abandoned.WithLabelValues(name),
		inputsOpen: f.inputsOpen.WithLabelValues(name),
	}
}

// remove ends the counts of a model, before its series are deleted.
func (f *traffic) remove(name string) {
	if o := f.onDemand[name]; o != nil {
		o.mu.Lock()
		o.removed = true
		o.mu.Unlock()
		delete(f.onDemand, name)
	}
}

// Late counts passes that were ignored because their input was finished or had failed. n must not be
// negative.
func (m *modelTraffic) Late(n int) { m.late.Add(float64(n)) }

// Rejected counts n refused inputs under one of Options.RejectReasons. A reason that is not in the list
// might be a client's text: Rejected counts it as "other".
func (m *modelTraffic) Rejected(reason string, n int) {
	if !slices.Contains(m.families.reasons, reason) {
		reason = "other"
	}
	m.onDemand.count(m.families.rejected, n, m.model, reason)
}

// Mismatched counts a decided input that differs from the calibration in "passes" or in the "posterior".
func (m *modelTraffic) Mismatched(what string) {
	m.onDemand.count(m.families.mismatches, 1, m.model, what)
}

// Abandoned counts inputs that ended undecided. n must not be negative.
func (m *modelTraffic) Abandoned(n int) { m.abandoned.Add(float64(n)) }

// InputsOpen changes the number of open inputs.
func (m *modelTraffic) InputsOpen(delta int) { m.inputsOpen.Add(float64(delta)) }
