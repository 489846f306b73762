package triage

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// spanMinutes lists the spans in minutes, the shortest first.
var spanMinutes = [...]int{1, 5, 15}

// model returns the page's view of the model, with the steps that changed after the sample of a time.
func (h *history) model(since time.Time) *pagestate.Model {
	p := h.policy
	m := &pagestate.Model{
		Name: p.Name, Policy: h.about, Classes: h.describeClasses(), ClassesCut: h.rest,
		InputsOpen: h.gauges.value(seriesOf{name: "ckd_inputs_open"}),
		History:    []pagestate.Step{}, Drift: h.drift(), EarlyStop: h.describeEarlyStop(),
	}
	counted, withheld := h.expectsMisses(), inAlarm(m.Drift)
	pairs := h.pairs()
	m.PairsCut = max(0, numPairs(p)-len(pairs))

	sum, next := h.counters.newSums(), 0
	end := func() {
		s := h.span(sum, spanMinutes[next], pairs)
		if !counted || withheld {
			s.ExpectedMisses = nil
		}
		m.Spans = append(m.Spans, s)
	}
	for _, s := range slices.Backward(h.steps) {
		sum.add(&s)
		// A span ends with the step that brings it closest to its length.
		for next < len(spanMinutes) && sum.seconds >= float64(60*spanMinutes[next])-stepTime.Seconds()/2 {
			end()
			next++
		}
	}
	for ; next < len(spanMinutes); next++ {
		end()
	}

	steps := h.steps[max(0, len(h.steps)-maxSteps+1):]
	for i := range steps {
		if steps[i].changed.After(since) {
			m.History = append(m.History, h.describeStep(&steps[i]))
		}
	}
	return m
}

// describeClasses returns the classes that have rows.
func (h *history) describeClasses() []pagestate.Class {
	p, classes := h.policy, make([]pagestate.Class, len(h.classes))
	for k, name := range p.Classes {
		critical, safe := has(p.Critical, k), has(p.Safe, k)
		i := h.row(name)
		c := &classes[i]
		if c.Of == 0 {
			*c = pagestate.Class{Name: h.classes[i], Critical: critical, Safe: safe, Shared: h.rest > 0 && i == len(classes)-1, Of: 1}
			continue
		}
		c.Critical, c.Safe = c.Critical && critical, c.Safe && safe
		c.Of++
	}
	return classes
}

// pair is a computed pair with the slot of its counter.
type pair struct {
	pagestate.Pair
	slot int
}

// pairs returns the pairs in the last scrape whose classes have rows, in order.
func (h *history) pairs() []pair {
	p := h.policy
	role := make(map[string]int, len(p.Critical)+len(p.Safe))
	for _, k := range p.Critical {
		role[p.Classes[k]] = 1
	}
	for _, k := range p.Safe {
		role[p.Classes[k]] = -1
	}
	var found []pair
	for i, s := range h.counters.series {
		if s.name != "ckd_pair_confusion_nats_total" || !h.counters.seen[i] {
			continue
		}
		a, hasA := h.position[s.a]
		b, hasB := h.position[s.b]
		if hasA && hasB {
			found = append(found, pair{pagestate.Pair{A: a, B: b, Block: role[s.a]*role[s.b] < 0}, i})
		}
	}
	slices.SortFunc(found, func(x, y pair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return found
}

// numPairs returns how many pairs the policy computes.
func numPairs(p *policy.Policy) int {
	if p.Pairs == policy.AllPairs {
		return len(p.Classes) * (len(p.Classes) - 1) / 2
	}
	return len(p.Safe) * len(p.Critical)
}

// span returns the counts of some steps.
func (h *history) span(total *sums, minutes int, pairs []pair) pagestate.Span {
	s := pagestate.Span{
		Minutes: minutes, Seconds: total.seconds,
		Decided: pagestate.Decided{ExpectedMisses: new(float64)},
		Reasons: []pagestate.Reason{}, Rejections: []pagestate.Reason{}, Classes: make([]pagestate.ClassSpan, len(h.classes)), Pairs: make([]pagestate.Pair, len(pairs)),
	}
	if h.stopsEarly() {
		s.EarlyStop = &pagestate.EarlyStopSpan{Disagreements: []pagestate.Reason{}}
	}
	for i, v := range total.counters {
		if v == 0 {
			continue
		}
		series := h.counters.series[i]
		countSpan(&s, series, v)
		if s.EarlyStop != nil {
			countEarlyStop(s.EarlyStop, series, v)
		}
		if k, ok := h.position[series.a]; ok {
			countClass(&s.Classes[k], series.name, v)
		}
	}
	byCount := func(a, b pagestate.Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	}
	slices.SortFunc(s.Reasons, byCount)
	slices.SortFunc(s.Rejections, byCount)
	if s.EarlyStop != nil {
		slices.SortFunc(s.EarlyStop.Disagreements, byCount)
	}
	s.DeferredShare = wilson(s.Deferred, s.Retained+s.Deferred)
	for k := range s.Classes {
		c := &s.Classes[k]
		c.MeanC = ratio(c.MeanC, c.Observations)
		c.Quantiles = quantiles(total.buckets[k*numBuckets : (k+1)*numBuckets])
	}
	for i, pair := range pairs {
		s.Pairs[i] = pair.Pair
		s.Pairs[i].Nats = ratio(total.counters[pair.slot], s.Inputs)
	}
	return s
}

// countSpan adds a counter of the model.
func countSpan(s *pagestate.Span, series seriesOf, v float64) {
	switch series.name {
	case "ckd_decisions_total":
		s.Inputs += v
		switch series.a {
		case policy.Retain.String():
			s.Retained += v
		case policy.Defer.String():
			s.Deferred += v
		default:
			s.Observed += v
		}
		s.Reasons = addReason(s.Reasons, series.c, v)
	case "ckd_inputs_rejected_total":
		s.Rejected += v
		s.Rejections = addReason(s.Rejections, series.a, v)
	case "ckd_inputs_fallback_total":
		s.Fallback = v
	case "ckd_passes_total":
		s.Passes = v
	case "ckd_passes_late_total":
		s.Late = v
	case "ckd_inputs_degenerate_total":
		s.Degenerate = v
	case "ckd_inputs_saturated_total":
		s.Saturated = v
	case "ckd_expected_misses_total":
		if s.ExpectedMisses != nil {
			*s.ExpectedMisses = v
		}
	case "ckd_inputs_abandoned_total":
		s.Abandoned = v
	case "ckd_calibration_mismatches_total": // an input may count for both passes and posterior
		s.Mismatched = max(s.Mismatched, v)
	}
}

// countEarlyStop adds a counter of the model, if it is one of early stopping.
func countEarlyStop(s *pagestate.EarlyStopSpan, series seriesOf, v float64) {
	switch series.name {
	case "ckd_passes_used_count":
		s.Inputs = v
	case "ckd_passes_used_sum":
		s.Used = v
	case "ckd_passes_saved_total":
		s.Saved = v
	case "ckd_early_stop_checked_total":
		s.Checked = v
	case "ckd_early_stop_checks_lost_total":
		s.Lost = v
	case "ckd_early_stop_disagreements_total":
		s.Disagreements = addReason(s.Disagreements, series.a, v)
	}
}

// countClass adds a counter of the class. MeanC holds the sum until span divides it.
func countClass(c *pagestate.ClassSpan, counted string, v float64) {
	switch counted {
	case "ckd_class_epistemic_nats_sum":
		c.MeanC = v
	case "ckd_class_epistemic_nats_count":
		c.Observations = v
	case "ckd_class_unreliable_total":
		c.Unreliable = v
	case "ckd_class_predicted_total":
		c.Predicted = v
	case "ckd_class_dominant_total":
		c.Dominant = v
	case "ckd_class_deciding_total":
		c.Deciding = v
	}
}

func addReason(reasons []pagestate.Reason, reason string, count float64) []pagestate.Reason {
	for i := range reasons {
		if reasons[i].Reason == reason {
			reasons[i].Count += count
			return reasons
		}
	}
	return append(reasons, pagestate.Reason{Reason: reason, Count: count})
}

func (h *history) describeStep(s *step) pagestate.Step {
	var sum pagestate.Span
	for i, v := range s.counters {
		countSpan(&sum, h.counters.series[i], v)
	}
	d := pagestate.Step{
		At: s.begun.UnixMilli(), Seconds: s.seconds, Quantiles: make([]*[4]float64, len(h.classes)),
		Inputs: sum.Inputs, Retained: sum.Retained, Deferred: sum.Deferred,
		Fallback: sum.Fallback, Degenerate: sum.Degenerate, Rejected: sum.Rejected,
	}
	if s.buckets != nil {
		for k := range d.Quantiles {
			d.Quantiles[k] = quantiles(s.buckets[k*numBuckets : (k+1)*numBuckets])
		}
	}
	return d
}

// drift returns the metrics of the policy's reference; nil without one.
func (h *history) drift() *pagestate.Drift {
	if h.policy.Calibration == nil || h.policy.Calibration.Reference == nil {
		return nil
	}
	reference := h.policy.Calibration.Reference
	d := &pagestate.Drift{Reference: reference.Inputs, Alarm: drift.Alarm, Windows: []pagestate.DriftWindow{}, Classes: []pagestate.ClassDrift{}}
	for _, inputs := range drift.Windows {
		window := strconv.Itoa(inputs)
		d.Windows = append(d.Windows, pagestate.DriftWindow{
			Inputs: inputs, Visible: drift.SmallestVisible(inputs, reference.Inputs), Full: h.gauges.filled(window),
		})
	}
	for _, class := range reference.Classes {
		name := h.policy.Classes[class.Class]
		if k, ok := h.position[name]; ok {
			d.Classes = append(d.Classes, pagestate.ClassDrift{
				Class: k, Epistemic: h.gauges.signal(name, "epistemic"), Skewness: h.gauges.signal(name, "skewness"), Predicted: h.gauges.signal(name, "predicted"),
			})
		}
	}
	slices.SortFunc(d.Classes, func(a, b pagestate.ClassDrift) int { return cmp.Compare(a.Class, b.Class) })
	if len(d.Classes) == 0 {
		return nil
	}
	return d
}

// filled reports whether a window has had all its inputs: its z are absent before.
func (g gauges) filled(window string) bool {
	for s := range g {
		if s.name == "ckd_drift_z" && s.c == window {
			return true
		}
	}
	return false
}

// inAlarm reports whether some signal of some class is in alarm.
func inAlarm(d *pagestate.Drift) bool {
	return d != nil && slices.ContainsFunc(d.Classes, func(c pagestate.ClassDrift) bool {
		return c.Epistemic.Alarm || c.Skewness.Alarm || c.Predicted.Alarm
	})
}

// expectsMisses reports whether the expected misses among the retained are known: whether the
// policy has a risk model, and decides.
func (h *history) expectsMisses() bool { return h.policy.Risk != nil && !h.policy.Observes() }

// signal returns one signal of drift of a class.
func (g gauges) signal(class, name string) pagestate.Signal {
	s := pagestate.Signal{
		Alarm:  g.value(seriesOf{name: "ckd_drift_alarm", a: class, b: name}) == 1,
		Alarms: g.value(seriesOf{name: "ckd_drift_alarms_total", a: class, b: name}),
	}
	for _, inputs := range drift.Windows {
		window := strconv.Itoa(inputs)
		s.Z = append(s.Z, pagestate.Number(g[seriesOf{"ckd_drift_z", class, name, window}]))
		s.Shift = append(s.Shift, pagestate.Number(g[seriesOf{"ckd_drift_shift", class, name, window}]))
	}
	return s
}

// stopsEarly reports whether there is a rule in force whose metrics were scraped.
func (h *history) stopsEarly() bool {
	_, scraped := h.gauges[seriesOf{name: "ckd_early_stop_halted"}]
	return scraped && h.policy.EarlyStop() != nil
}

// describeEarlyStop returns the state of the rule in force, by policy and metrics.
func (h *history) describeEarlyStop() *pagestate.EarlyStop {
	if !h.stopsEarly() {
		return nil
	}
	return &pagestate.EarlyStop{
		Stopped:  h.gauges.value(seriesOf{name: "ckd_early_stop_halted"}) == 1,
		Evidence: h.gauges.value(seriesOf{name: "ckd_early_stop_evidence"}),
		All:      h.gauges.checkedShare("all"), Deferred: h.gauges.checkedShare("deferred"),
		HalvesDiffer: h.policy.EarlyStopping.HalvesDiffer,
	}
}

// checkedShare returns the interval of a share of checked inputs.
func (g gauges) checkedShare(inputs string) pagestate.CheckedShare {
	bound := func(name string) float64 {
		return g.value(seriesOf{name: "ckd_early_stop_disagreement", a: inputs, b: name})
	}
	return pagestate.CheckedShare{Low: bound("low"), High: bound("high")}
}

func has(ascending []int, k int) bool {
	_, ok := slices.BinarySearch(ascending, k)
	return ok
}

// describe returns the policy as the page shows it, given its message of the API.
func describe(p *policy.Policy, message *ckdv1.Model) pagestate.Policy {
	message.Classes, message.Critical, message.Safe = nil, nil, nil
	text, _ := apiJSON(message) // always: the texts of a policy are UTF-8
	d := pagestate.Policy{
		Message: text, Pairs: string(p.Pairs), Warnings: append([]string{}, p.Warnings()...),
		DefersOnAlarm: p.Audit != nil && p.Audit.OnBreach == policy.DeferOnBreach,
	}
	if c := p.Calibration; c != nil {
		d.Inputs, d.CriticalInputs = c.Recording.Inputs, c.Recording.CriticalInputs
		d.Changed = c.PolicyHash != "" && c.PolicyHash != p.Hash
		if c.Certificate != nil {
			d.Certificate = cmp.Or(c.Certificate.Statement, explainCertificate(p))
		}
	}
	return d
}

// explainCertificate returns the policy's explanation of a certificate without a statement of its own;
// nothing if the policy was changed since.
func explainCertificate(p *policy.Policy) string {
	for _, sentence := range p.Explain() {
		if strings.HasPrefix(sentence, "Its certificate") {
			return sentence
		}
	}
	return ""
}
