package triage

import (
	"math"

	dto "github.com/prometheus/client_model/go"
)

// kind is the quantity that a series counts or shows.
type kind uint8

const (
	decided kind = iota + 1 // by action, score and reason
	byFallback
	rejected // by reason
	passes
	late
	degenerate
	saturated
	expectedMisses // sum of risk, not inputs
	abandoned
	mismatched // by what does not match
	usedPasses // this and the next of inputs that may be stopped early
	usedInputs
	savedPasses
	checked
	disagreed // by verdict
	checkLost
	classSum // kinds from here on are by class
	classCount
	classUnreliable
	classPredicted
	classDominant
	classDeciding
	pairSum // by both classes

	inputsOpen   // kinds from here on are gauges
	driftZ       // by class, signal and window
	driftShift   // the same labels
	driftAlarm   // by class and signal
	driftAlarms  // the same labels
	disagreement // by the inputs that the share is of, and by bound
	checkEvidence
	halted
)

// seriesOf identifies a series of a model by its kind and remaining labels.
type seriesOf struct {
	kind    kind
	a, b, c string
}

const epistemic, passesUsed = "ckd_class_epistemic_nats", "ckd_passes_used"

// sources lists the families that the page reads, save histograms, with the labels that distinguish
// the series of one model.
var sources = map[string]struct {
	kind   kind
	labels []string
}{
	"ckd_decisions_total":              {decided, []string{"action", "score", "reason"}},
	"ckd_inputs_fallback_total":        {byFallback, nil},
	"ckd_inputs_rejected_total":        {rejected, []string{"reason"}},
	"ckd_passes_total":                 {passes, nil},
	"ckd_passes_late_total":            {late, nil},
	"ckd_inputs_degenerate_total":      {degenerate, nil},
	"ckd_inputs_saturated_total":       {saturated, nil},
	"ckd_expected_misses_total":        {expectedMisses, nil},
	"ckd_inputs_abandoned_total":       {abandoned, nil},
	"ckd_calibration_mismatches_total": {mismatched, []string{"what"}},
	"ckd_class_unreliable_total":       {classUnreliable, []string{"class"}},
	"ckd_class_predicted_total":        {classPredicted, []string{"class"}},
	"ckd_class_dominant_total":         {classDominant, []string{"class"}},
	"ckd_class_deciding_total":         {classDeciding, []string{"class"}},
	"ckd_pair_confusion_nats_total":    {pairSum, []string{"class_a", "class_b"}},
	"ckd_inputs_open":                  {inputsOpen, nil},
	"ckd_drift_z":                      {driftZ, []string{"class", "signal", "window"}},
	"ckd_drift_shift":                  {driftShift, []string{"class", "signal", "window"}},
	"ckd_drift_alarm":                  {driftAlarm, []string{"class", "signal"}},
	"ckd_drift_alarms_total":           {driftAlarms, []string{"class", "signal"}},

	"ckd_passes_saved_total":             {savedPasses, nil},
	"ckd_early_stop_checked_total":       {checked, nil},
	"ckd_early_stop_disagreements_total": {disagreed, []string{"verdict"}},
	"ckd_early_stop_checks_lost_total":   {checkLost, nil},
	"ckd_early_stop_disagreement":        {disagreement, []string{"inputs", "bound"}},
	"ckd_early_stop_evidence":            {checkEvidence, nil},
	"ckd_early_stop_halted":              {halted, nil},
}

// readValues passes each history its values in a scrape.
func readValues(scrape []*dto.MetricFamily, histories map[string]*history) {
	for _, f := range scrape {
		name := f.GetName()
		source, ok := sources[name]
		if !ok && name != epistemic && name != passesUsed {
			continue
		}
		for _, m := range f.GetMetric() {
			h := histories[label(m, "model")]
			if h == nil {
				continue
			}
			switch name {
			case epistemic:
				h.readHistogram(label(m, "class"), m.GetHistogram())
				continue
			case passesUsed:
				h.read(seriesOf{kind: usedPasses}, m.GetHistogram().GetSampleSum())
				h.read(seriesOf{kind: usedInputs}, float64(m.GetHistogram().GetSampleCount()))
				continue
			}
			s := seriesOf{kind: source.kind}
			for i, to := range []*string{&s.a, &s.b, &s.c}[:len(source.labels)] {
				*to = label(m, source.labels[i])
			}
			if source.kind >= inputsOpen {
				h.readGauge(s, value(m))
			} else {
				h.read(s, value(m))
			}
			if source.kind == passes && m.GetCounter().GetCreatedTimestamp() != nil {
				h.counters.createdAt(m.GetCounter().GetCreatedTimestamp().AsTime())
			}
		}
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func value(m *dto.Metric) float64 {
	if m.Counter != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
