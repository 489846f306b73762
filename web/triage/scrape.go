package triage

import (
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// seriesOf identifies a series of a model by its name and remaining labels.
type seriesOf struct{ name, a, b, c string }

// The histograms that the page reads.
const epistemic, passesUsed = "ckd_class_epistemic_nats", "ckd_passes_used"

// driftPrefix begins the names of what the page shows as it stands, counters or not.
const driftPrefix = "ckd_drift_"

// sources lists the families that the page reads, save histograms, with the labels that distinguish
// the series of one model.
var sources = map[string][]string{
	"ckd_decisions_total":              {"action", "score", "reason"},
	"ckd_inputs_fallback_total":        nil,
	"ckd_inputs_rejected_total":        {"reason"},
	"ckd_passes_total":                 nil,
	"ckd_passes_late_total":            nil,
	"ckd_inputs_degenerate_total":      nil,
	"ckd_inputs_saturated_total":       nil,
	"ckd_expected_misses_total":        nil, // a sum of risks
	"ckd_inputs_abandoned_total":       nil,
	"ckd_calibration_mismatches_total": {"what"},
	"ckd_class_unreliable_total":       {"class"},
	"ckd_class_predicted_total":        {"class"},
	"ckd_class_dominant_total":         {"class"},
	"ckd_class_deciding_total":         {"class"},
	"ckd_pair_confusion_nats_total":    {"class_a", "class_b"},
	"ckd_inputs_open":                  nil,
	"ckd_drift_z":                      {"class", "signal", "window"},
	"ckd_drift_shift":                  {"class", "signal", "window"},
	"ckd_drift_alarm":                  {"class", "signal"},
	"ckd_drift_alarms_total":           {"class", "signal"},

	"ckd_passes_saved_total":             nil,
	"ckd_early_stop_checked_total":       nil,
	"ckd_early_stop_disagreements_total": {"verdict"},
	"ckd_early_stop_checks_lost_total":   nil,
	"ckd_early_stop_disagreement":        {"inputs", "bound"},
	"ckd_early_stop_evidence":            nil,
	"ckd_early_stop_halted":              nil,
}

// readValues passes each history its values in a scrape.
func readValues(scrape []*dto.MetricFamily, histories map[string]*history) {
	for _, f := range scrape {
		name := f.GetName()
		labels, ok := sources[name]
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
				h.read(seriesOf{name: "ckd_passes_used_sum"}, m.GetHistogram().GetSampleSum())
				h.read(seriesOf{name: "ckd_passes_used_count"}, float64(m.GetHistogram().GetSampleCount()))
				continue
			}
			s := seriesOf{name: name}
			for i, to := range []*string{&s.a, &s.b, &s.c}[:len(labels)] {
				*to = label(m, labels[i])
			}
			if m.Gauge != nil || strings.HasPrefix(name, driftPrefix) {
				h.readGauge(s, value(m))
			} else {
				h.read(s, value(m))
			}
			if name == "ckd_passes_total" && m.GetCounter().GetCreatedTimestamp() != nil {
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
