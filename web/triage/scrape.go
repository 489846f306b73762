package triage

import (
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/internal/pagestate"
)

// seriesOf identifies a series of a model by its name and remaining labels.
type seriesOf struct{ name, a, b, c string }

// The histograms that the page reads.
const epistemic, passesUsed = "ckd_class_epistemic_nats", "ckd_passes_used"

// driftPrefix begins the names of what the page shows as it stands, counters or not.
const driftPrefix = "ckd_drift_"

// suggested names the share of critical inputs that priorities suggest.
const suggested = "ckd_prevalence_suggested"

// pairConfusion names the counters of the confusion of pairs of classes.
const pairConfusion = "ckd_pair_confusion_nats_total"

// family says how the page reads the series of a metric, and what its counters count.
type family struct {
	labels    []string                                // those that distinguish the series of one model
	span      func(*pagestate.Span) *float64          // nil, as what it returns may be, for nothing
	earlyStop func(*pagestate.EarlyStopSpan) *float64 // nil for nothing
	class     func(*pagestate.ClassSpan) *float64     // nil for nothing
}

// families lists the metrics that the page reads, by name. Of histograms it has the sum and the
// count.
var families = map[string]family{
	"ckd_decisions_total":              {labels: []string{"action", "score", "reason"}, span: func(s *pagestate.Span) *float64 { return &s.Inputs }},
	"ckd_inputs_fallback_total":        {span: func(s *pagestate.Span) *float64 { return &s.Fallback }},
	"ckd_inputs_rejected_total":        {labels: []string{"reason"}, span: func(s *pagestate.Span) *float64 { return &s.Rejected }},
	"ckd_passes_total":                 {span: func(s *pagestate.Span) *float64 { return &s.Passes }},
	"ckd_passes_late_total":            {span: func(s *pagestate.Span) *float64 { return &s.Late }},
	"ckd_inputs_degenerate_total":      {span: func(s *pagestate.Span) *float64 { return &s.Degenerate }},
	"ckd_inputs_saturated_total":       {span: func(s *pagestate.Span) *float64 { return &s.Saturated }},
	"ckd_expected_misses_total":        {span: func(s *pagestate.Span) *float64 { return s.ExpectedMisses }}, // a sum of risks
	"ckd_inputs_abandoned_total":       {span: func(s *pagestate.Span) *float64 { return &s.Abandoned }},
	"ckd_calibration_mismatches_total": {labels: []string{"what"}},
	pairConfusion:                      {labels: []string{"class_a", "class_b"}},
	"ckd_inputs_open":                  {},
	"ckd_drift_z":                      {labels: []string{"class", "signal", "window"}},
	"ckd_drift_shift":                  {labels: []string{"class", "signal", "window"}},
	"ckd_drift_alarm":                  {labels: []string{"class", "signal"}},
	"ckd_drift_alarms_total":           {labels: []string{"class", "signal"}},
	suggested:                          {labels: []string{"bound"}},

	epistemic + "_sum":           {class: func(c *pagestate.ClassSpan) *float64 { return &c.MeanC }},
	epistemic + "_count":         {class: func(c *pagestate.ClassSpan) *float64 { return &c.Observations }},
	"ckd_class_unreliable_total": {labels: []string{"class"}, class: func(c *pagestate.ClassSpan) *float64 { return &c.Unreliable }},
	"ckd_class_predicted_total":  {labels: []string{"class"}, class: func(c *pagestate.ClassSpan) *float64 { return &c.Predicted }},
	"ckd_class_dominant_total":   {labels: []string{"class"}, class: func(c *pagestate.ClassSpan) *float64 { return &c.Dominant }},
	"ckd_class_deciding_total":   {labels: []string{"class"}, class: func(c *pagestate.ClassSpan) *float64 { return &c.Deciding }},

	passesUsed + "_count":                {earlyStop: func(s *pagestate.EarlyStopSpan) *float64 { return &s.Inputs }},
	passesUsed + "_sum":                  {earlyStop: func(s *pagestate.EarlyStopSpan) *float64 { return &s.Used }},
	"ckd_passes_saved_total":             {earlyStop: func(s *pagestate.EarlyStopSpan) *float64 { return &s.Saved }},
	"ckd_early_stop_checked_total":       {earlyStop: func(s *pagestate.EarlyStopSpan) *float64 { return &s.Checked }},
	"ckd_early_stop_checks_lost_total":   {earlyStop: func(s *pagestate.EarlyStopSpan) *float64 { return &s.Lost }},
	"ckd_early_stop_disagreements_total": {labels: []string{"verdict"}},
	"ckd_early_stop_disagreement":        {labels: []string{"inputs", "bound"}},
	"ckd_early_stop_evidence":            {},
	"ckd_early_stop_halted":              {},
}

// readValues passes each history its values in a scrape.
func readValues(scrape []*dto.MetricFamily, histories map[string]*history) {
	for _, scraped := range scrape {
		name := scraped.GetName()
		f, ok := families[name]
		if !ok && name != epistemic && name != passesUsed {
			continue
		}
		for _, m := range scraped.GetMetric() {
			h := histories[label(m, "model")]
			if h == nil {
				continue
			}
			switch name {
			case epistemic:
				h.readHistogram(label(m, "class"), m.GetHistogram())
				continue
			case passesUsed:
				h.read(seriesOf{name: passesUsed + "_sum"}, m.GetHistogram().GetSampleSum())
				h.read(seriesOf{name: passesUsed + "_count"}, float64(m.GetHistogram().GetSampleCount()))
				continue
			}
			s := seriesOf{name: name}
			for i, to := range []*string{&s.a, &s.b, &s.c}[:len(f.labels)] {
				*to = label(m, f.labels[i])
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
