package audit

import (
	"errors"
	"fmt"
	"math"
)

// What Options are where they say nothing.
const (
	DefaultRunLength  = 50_000
	DefaultConfidence = 0.95
)

// Options of a Watch.
type Options struct {
	// Disagreement is the certified share of inputs whose settled decision is another
	// than that of all passes, in (0, 1).
	Disagreement float64
	// Retained is the certified share, of the inputs that all passes defer, which are
	// settled to be retained, in (0, 1); 0 if nothing is certified of them on their own.
	Retained float64
	// RunLength is how many audits there are at least, on average, until a stop that
	// nothing justifies: from 100, 0 for DefaultRunLength.
	RunLength float64
	// Confidence of the intervals in Status, in (0, 1); 0 for DefaultConfidence.
	Confidence float64
}

// Verdict is what came of an audit. An input that no pass before its last has settled is
// decided once, and so the same.
type Verdict uint8

// The verdicts.
const (
	SameRetain      Verdict = iota // retained by both
	SameDefer                      // deferred by both
	WronglyRetained                // settled to be retained, deferred by all passes
	WronglyDeferred                // settled to be deferred, retained by all passes
	OtherSide                      // retained by both, with predicted classes of which one is critical
	verdicts
)

// Disagrees reports whether the two decisions are not the same.
func (v Verdict) Disagrees() bool { return v >= WronglyRetained }

// Deferred reports whether all passes defer the input.
func (v Verdict) Deferred() bool { return v == SameDefer || v == WronglyRetained }

func (v Verdict) String() string {
	names := [verdicts]string{"same_retain", "same_defer", "wrongly_retained", "wrongly_deferred", "other_side"}
	if v >= verdicts {
		return fmt.Sprintf("verdict %d", uint8(v))
	}
	return names[v]
}

// State of a Watch.
type State uint8

// The states. Stopped is the last one: only a new Watch settles again.
const (
	Settling State = iota
	Stopped
)

func (s State) String() string {
	if s == Stopped {
		return "stopped"
	}
	return "settling"
}

// Watch is what audits have said of one policy. It is for one goroutine at a time.
type Watch struct {
	options  Options
	all      detector // of audited inputs
	deferred detector // of those that all passes defer
	verdicts [verdicts]uint64
	lost     uint64
	stop     *Stop
}

// NewWatch makes a Watch that settles. Its errors are all that is wrong with the
// options, joined.
func NewWatch(o Options) (*Watch, error) {
	if o.RunLength == 0 {
		o.RunLength = DefaultRunLength
	}
	if o.Confidence == 0 {
		o.Confidence = DefaultConfidence
	}
	var faults []error
	share := func(name string, x float64) {
		if !(x > 0 && x < 1) {
			faults = append(faults, fmt.Errorf("%s is %v: it must be above 0 and below 1", name, x))
		}
	}
	share("disagreement", o.Disagreement)
	if o.Retained != 0 {
		share("retained", o.Retained)
	}
	share("confidence", o.Confidence)
	if !(o.RunLength >= 100) || math.IsInf(o.RunLength, 1) {
		faults = append(faults, fmt.Errorf("run length is %v: it must be 100 or more", o.RunLength))
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	w := &Watch{options: o, all: newDetector(o.Disagreement)}
	if o.Retained != 0 {
		w.deferred = newDetector(o.Retained)
	}
	return w, nil
}

// Add takes the verdict of an audit and reports whether it is the one that stops the
// Watch. A Watch that is stopped goes on counting.
func (w *Watch) Add(v Verdict) (stops bool) {
	w.verdicts[v]++
	w.all.count(v.Disagrees())
	if v.Deferred() {
		w.deferred.count(v == WronglyRetained)
	}
	if w.stop != nil {
		return false
	}
	w.all.weigh(v.Disagrees())
	if v.Deferred() && w.options.Retained != 0 {
		w.deferred.weigh(v == WronglyRetained)
	}
	if w.evidence() < w.options.RunLength {
		return false
	}
	w.stop = &Stop{Audited: w.all.seen.Audited, Recent: w.all.recent()}
	if w.deferred.evidence() > w.all.evidence() {
		w.stop.Retained, w.stop.Recent = true, w.deferred.recent()
	}
	return true
}

// Lose counts an audit without a verdict, as its input was given up before its last
// pass. If many are, the rest may not speak for them.
func (w *Watch) Lose() { w.lost++ }

// State is where the Watch is.
func (w *Watch) State() State {
	if w.stop != nil {
		return Stopped
	}
	return Settling
}

// Wary reports whether there is so much evidence, a hundredth of what stops it, that more
// inputs should be audited.
func (w *Watch) Wary() bool { return w.stop == nil && w.evidence() >= w.options.RunLength/100 }

// evidence of a breach of either share. The mean of two e-detectors is one: both together
// have the run length.
func (w *Watch) evidence() float64 {
	if w.options.Retained == 0 {
		return w.all.evidence()
	}
	return (w.all.evidence() + w.deferred.evidence()) / 2
}

// Status is what is told of a Watch. It shares nothing with it.
type Status struct {
	State     State
	Stop      *Stop   // nil while settling
	Evidence  float64 // of a breach; it stops the Watch at RunLength, and then stays
	RunLength float64
	All       Rate // of audited inputs, those that disagree
	Deferred  Rate // of those that all passes defer, the ones settled to be retained
	// Verdicts are the audits by Verdict.
	Verdicts [verdicts]uint64
	Lost     uint64 // audits without a verdict
}

// Rate is a share of audited inputs: what was certified of it and what was seen.
type Rate struct {
	Certified float64 // 0 if nothing is
	Count
	Low, High float64 // Interval of the share
	Evidence  float64 // that the share is above the certified one
}

// Count of audited inputs and of those among them that disagree.
type Count struct{ Audited, Disagreements uint64 }

// Stop is why and when a Watch stopped.
type Stop struct {
	Retained bool   // most evidence was against Options.Retained, not Options.Disagreement
	Audited  uint64 // inputs, until then
	// Recent is the audits that most of the evidence rests on, of deferred inputs if
	// Retained: those since the rise seems to have begun. As they are chosen in hindsight,
	// their share is above the true one on average.
	Recent Count
}

// Status tells what is known. It computes two intervals, in some 100 microseconds.
func (w *Watch) Status() Status {
	s := Status{
		State: w.State(), Evidence: w.evidence(), RunLength: w.options.RunLength,
		All:      w.all.rate(w.options.Disagreement, w.options.Confidence),
		Deferred: w.deferred.rate(w.options.Retained, w.options.Confidence),
		Verdicts: w.verdicts, Lost: w.lost,
	}
	if w.stop != nil {
		stop := *w.stop
		s.Stop = &stop
	}
	return s
}

func (d *detector) rate(certified, confidence float64) Rate {
	low, high := Interval(d.seen.Disagreements, d.seen.Audited, confidence)
	return Rate{certified, d.seen, low, high, d.evidence()}
}
