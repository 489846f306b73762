package fullpass

import (
	"errors"
	"fmt"
	"math"
)

// defaultRunLength is the default of Options.RunLength; confidence is that of the intervals in Status.
const (
	defaultRunLength = 50_000
	confidence       = 0.95
)

// Options configures a Watch.
type Options struct {
	// Disagreement is the certified share of inputs that are decided differently early than by all
	// passes, in (0, 1).
	Disagreement float64
	// Retained is the certified share, among inputs that all passes defer, of those retained early,
	// in (0, 1); 0 if nothing is certified of it.
	Retained float64
	// RunLength is the least mean number of checks until a stop without cause: at least 100; 0
	// means 50,000.
	RunLength float64
}

// Verdict is the result of a check: it compares the early decision with the decision of all
// passes. An input that only its last pass decides has just one decision, which agrees with itself.
type Verdict uint8

// The verdicts.
const (
	SameRetain      Verdict = iota // retained by both
	SameDefer                      // deferred by both
	WronglyRetained                // retained early, deferred by all passes
	WronglyDeferred                // deferred early, retained by all passes
	OtherSide                      // retained by both, but only one predicts a critical class
	verdicts
)

// Disagrees reports whether the two decisions differ.
func (v Verdict) Disagrees() bool { return v >= WronglyRetained }

// deferred reports whether all passes defer the input.
func (v Verdict) deferred() bool { return v == SameDefer || v == WronglyRetained }

// String returns the verdict as metrics write it.
func (v Verdict) String() string {
	names := [verdicts]string{"same_retain", "same_defer", "wrongly_retained", "wrongly_deferred", "other_side"}
	if v >= verdicts {
		return fmt.Sprintf("verdict %d", uint8(v))
	}
	return names[v]
}

// Watch collects the checks of one policy. A stopped Watch stays stopped: early stopping resumes only
// with a new one. A Watch is for one goroutine at a time.
type Watch struct {
	options  Options
	all      detector // watches all checked inputs
	deferred detector // watches the inputs that all passes defer
	verdicts [verdicts]uint64
	stop     *Stop
}

// NewWatch returns a Watch without checks. The error joins all faults of the options.
func NewWatch(o Options) (*Watch, error) {
	if o.RunLength == 0 {
		o.RunLength = defaultRunLength
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

// Add adds the verdict of a check, and reports whether it stops the Watch. A stopped Watch goes on
// counting.
func (w *Watch) Add(v Verdict) (stops bool) {
	w.verdicts[v]++
	w.all.count(v.Disagrees())
	if v.deferred() {
		w.deferred.count(v == WronglyRetained)
	}
	if w.stop != nil {
		return false
	}
	w.all.weigh(v.Disagrees())
	if v.deferred() && w.options.Retained != 0 {
		w.deferred.weigh(v == WronglyRetained)
	}
	if w.evidence() < w.options.RunLength {
		return false
	}
	w.stop = &Stop{Checked: w.all.seen.Checked, Recent: w.all.recent()}
	if w.deferred.evidence() > w.all.evidence() {
		w.stop.Retained, w.stop.Recent = true, w.deferred.recent()
	}
	return true
}

// Stopped reports whether a verdict has stopped the Watch.
func (w *Watch) Stopped() bool { return w.stop != nil }

// Wary reports whether the evidence has reached a hundredth of what stops the Watch, so that more
// inputs should be checked.
func (w *Watch) Wary() bool { return w.stop == nil && w.evidence() >= w.options.RunLength/100 }

// evidence returns the evidence of a breach of either share. The mean of two e-detectors is an
// e-detector, so both together keep the run length.
func (w *Watch) evidence() float64 {
	if w.options.Retained == 0 {
		return w.all.evidence()
	}
	return (w.all.evidence() + w.deferred.evidence()) / 2
}

// Status is a snapshot of a Watch.
type Status struct {
	Stop      *Stop   // nil unless the Watch is stopped
	Evidence  float64 // evidence of a breach; RunLength stops the Watch and freezes it
	RunLength float64
	All       Rate // share of checked inputs that disagree
	Deferred  Rate // share of the inputs deferred by all passes that are retained early
	// Verdicts counts the checks by Verdict.
	Verdicts [verdicts]uint64
}

// Rate is a share of checked inputs: as certified and as seen.
type Rate struct {
	Certified float64 // 0 if nothing is certified
	Count
	Low, High float64 // 95% interval of the share, which holds however often it is read
}

// Count counts checked inputs, and those among them that disagree.
type Count struct{ Checked, Disagreements uint64 }

// Stop says why and when a Watch stopped.
type Stop struct {
	Retained bool   // there was more evidence against Options.Retained than against Options.Disagreement
	Checked  uint64 // inputs until the stop
	// Recent counts the checks that most of the evidence rests on, those since the rise seems to
	// have begun; of deferred inputs if Retained. They are chosen in hindsight, so their share is
	// above the true one on average.
	Recent Count
}

// Status returns a snapshot. It computes two intervals.
func (w *Watch) Status() Status {
	s := Status{
		Evidence: w.evidence(), RunLength: w.options.RunLength,
		All: w.all.rate(w.options.Disagreement), Deferred: w.deferred.rate(w.options.Retained),
		Verdicts: w.verdicts,
	}
	if w.stop != nil {
		stop := *w.stop
		s.Stop = &stop
	}
	return s
}

func (d *detector) rate(certified float64) Rate {
	low, high := interval(d.seen.Disagreements, d.seen.Checked, confidence)
	return Rate{certified, d.seen, low, high}
}
