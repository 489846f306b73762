package triage

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/internal/monitor/prevalence"
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
		Name: p.Name, Policy: h.about, Classes: h.classes, ClassesCut: h.rest,
		InputsOpen: h.gauges.value(seriesOf{name: "ckd_inputs_open"}), LastHour: h.lastHour(),
		History: []pagestate.Step{}, Drift: h.drift(), Suggested: h.gauges.suggested(), EarlyStop: h.describeEarlyStop(),
	}
	expectsMisses := h.policy.Risk != nil && !h.policy.Observes() && !inAlarm(m.Drift)
	sum, next := h.counters.newSums(), 0
	end := func() { m.Spans = append(m.Spans, h.span(sum, spanMinutes[next], expectsMisses)) }
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
	m.PairsCut = max(0, numPairs(p)-len(m.Spans[0].Pairs))

	steps := h.steps[max(0, len(h.steps)-maxSteps+1):]
	for i := range steps {
		if steps[i].changed.After(since) {
			m.History = append(m.History, h.describeStep(&steps[i]))
		}
	}
	return m
}

// numPairs returns how many pairs the policy computes.
func numPairs(p *policy.Policy) int {
	if p.Pairs == policy.AllPairs {
		return len(p.Classes) * (len(p.Classes) - 1) / 2
	}
	return len(p.Safe) * len(p.Critical)
}

// span returns the counts of some steps, with or without the expected misses.
func (h *history) span(total *sums, minutes int, expectsMisses bool) pagestate.Span {
	s := pagestate.Span{
		Minutes: minutes, Seconds: total.seconds,
		Reasons: []pagestate.Reason{}, Rejections: []pagestate.Reason{}, Classes: make([]pagestate.ClassSpan, len(h.classes)), Pairs: []pagestate.Pair{},
	}
	if expectsMisses {
		s.ExpectedMisses = new(float64)
	}
	if h.stopsEarly() {
		s.EarlyStop = &pagestate.EarlyStopSpan{Disagreements: []pagestate.Reason{}}
	}
	for i, v := range total.counters {
		series := h.counters.series[i]
		a, isRow := h.position[series.a]
		if series.name == pairConfusion {
			if b, ok := h.position[series.b]; isRow && ok && h.counters.seen[i] {
				s.Pairs = append(s.Pairs, pagestate.Pair{A: a, B: b, Nats: v})
			}
			continue
		}
		if v == 0 {
			continue
		}
		count(&s, series, v)
		if class := families[series.name].class; class != nil && isRow {
			*class(&s.Classes[a]) = v
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
		c.MeanC = ratio(c.MeanC, c.Observations) // the sum before
		c.Quantiles = quantiles(total.buckets[k*numBuckets : (k+1)*numBuckets])
	}
	slices.SortFunc(s.Pairs, func(x, y pagestate.Pair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	for i := range s.Pairs {
		s.Pairs[i].Nats = ratio(s.Pairs[i].Nats, s.Inputs)
	}
	return s
}

// count adds the value of a counter of the model, unless it is of a class.
func count(s *pagestate.Span, series seriesOf, v float64) {
	f := families[series.name]
	if f.span != nil {
		if sum := f.span(s); sum != nil {
			*sum += v
		}
	}
	if f.earlyStop != nil && s.EarlyStop != nil {
		*f.earlyStop(s.EarlyStop) += v
	}
	switch series.name {
	case "ckd_decisions_total":
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
		s.Rejections = addReason(s.Rejections, series.a, v)
	case "ckd_early_stop_disagreements_total":
		if s.EarlyStop != nil {
			s.EarlyStop.Disagreements = addReason(s.EarlyStop.Disagreements, series.a, v)
		}
	case "ckd_calibration_mismatches_total": // an input may count for both passes and posterior
		s.Mismatched = max(s.Mismatched, v)
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

// countsOf returns the counts of a step.
func (h *history) countsOf(s *step) pagestate.Counts {
	var sum pagestate.Span
	for i, v := range s.counters {
		count(&sum, h.counters.series[i], v)
	}
	return sum.Counts
}

// hourOf returns what a step adds to the last hour.
func (h *history) hourOf(s *step) pagestate.Hour {
	c := h.countsOf(s)
	return pagestate.Hour{Since: s.begun.UTC(), Seconds: s.seconds, Retained: c.Retained, Deferred: c.Deferred}
}

// lastHour returns what was decided in the last hour.
func (h *history) lastHour() (sum pagestate.Hour) {
	parts := slices.Clone(h.older)
	for i := range h.steps {
		parts = append(parts, h.hourOf(&h.steps[i]))
	}
	for i, part := range parts {
		if i == 0 {
			sum.Since = part.Since
		}
		sum.Seconds += part.Seconds
		sum.Retained += part.Retained
		sum.Deferred += part.Deferred
	}
	return sum
}

func (h *history) describeStep(s *step) pagestate.Step {
	d := pagestate.Step{At: s.begun.UnixMilli(), Seconds: s.seconds, Counts: h.countsOf(s), Quantiles: make([]*[4]float64, len(h.classes))}
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

// suggested returns the suggested prevalence; nil while there is none.
func (g gauges) suggested() *pagestate.Suggested {
	bound := func(name string) float64 { return g.value(seriesOf{name: suggested, a: name}) }
	if _, known := g[seriesOf{name: suggested, a: "estimate"}]; !known {
		return nil
	}
	return &pagestate.Suggested{Interval: pagestate.Interval{Value: bound("estimate"), Low: bound("low"), High: bound("high")}, Inputs: prevalence.Inputs}
}

// inAlarm reports whether some signal of some class is in alarm.
func inAlarm(d *pagestate.Drift) bool {
	return d != nil && slices.ContainsFunc(d.Classes, func(c pagestate.ClassDrift) bool {
		return c.Epistemic.Alarm || c.Skewness.Alarm || c.Predicted.Alarm
	})
}

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

// calibratedFallback bounds the share of the calibration's inputs whose skewness of some critical class is over
// the reliability threshold: at least the largest share of a class, at most the sum. It returns nil where no
// fallback score waits for that, or where a critical class has no reference.
func calibratedFallback(p *policy.Policy) *pagestate.Bounds {
	if p.Gate != policy.AnyCritical || p.Calibration.Reference == nil {
		return nil
	}
	var b pagestate.Bounds
	classes := 0
	for _, c := range p.Calibration.Reference.Classes {
		if !slices.Contains(p.Critical, c.Class) {
			continue
		}
		classes++
		// A 64th of the inputs lies between two quantiles.
		over := 0
		for _, q := range c.Skewness {
			if q > p.ReliabilityThreshold {
				over++
			}
		}
		const parts = policy.Levels - 1
		b.Low = max(b.Low, float64(over-1)/parts)
		b.High += float64(min(over, parts)) / parts
	}
	if classes == 0 || classes < len(p.Critical) {
		return nil
	}
	b.High = min(b.High, 1)
	return &b
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
		d.Changed = p.ChangedSinceCalibration()
		d.CalibratedFallback = calibratedFallback(p)
		if c.Certificate != nil {
			if d.Certificate = c.Certificate.Statement; d.Certificate == "" && !d.Changed {
				d.Certificate = c.Certificate.Explain()
			}
		}
	}
	return d
}
