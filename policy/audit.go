package policy

import (
	"fmt"
	"hash/fnv"
	"strconv"
)

// Audit says which of the retained inputs a person looks at, so that the truth of what the model
// kept is known, and what happens when the truth breaks the promise. It decides nothing about a
// single input: the hash does not cover it, and a change of it voids no certificate.
type Audit struct {
	// Rate is the share of the retained inputs that is audited, in (0,1].
	Rate float64
	// M is the share of Rate, in (0,1], that is the same for all inputs called safe. The rest
	// follows their risk. 1 audits all alike.
	M float64
	// PredictedCritical says how inputs are reviewed that were retained and called critical.
	PredictedCritical AuditedCritical
	// Cap is the number of audits an hour, of one daemon, above which fewer inputs called safe are
	// audited; 0 for none.
	Cap float64
	// Due is the time within which outcomes are expected to come. A cohort of inputs is judged that
	// long after it has ended.
	Due Period
	// OnBreach says what the daemon does while the alarm is up.
	OnBreach OnBreach
	// Surge is the number of reviews per 1,000 inputs that DeferOnBreach causes, in (0,1000]; 0
	// where it was not stated.
	Surge float64
	// Slices lists the properties of inputs whose results are told apart, at most MaxSlices.
	Slices []Slice
}

// DefaultAuditM makes half of the rate follow the risk. Audits are then never much worse than
// uniform ones, and up to three times better.
const DefaultAuditM = 0.5

// DefaultDue is the time within which outcomes are expected by default: 14 days.
const DefaultDue = 14 * Day

// MaxSlices bounds the slices, for which receipts have room.
const MaxSlices = 8

// AuditedCritical says how inputs are reviewed that were retained and called critical.
type AuditedCritical string

// The ways to review them.
const (
	// CriticalAudited draws them at the rate, whatever the cap.
	CriticalAudited AuditedCritical = "audited"
	// CriticalFree takes the outcome of the workflow, which works up every such input, for a review.
	CriticalFree AuditedCritical = "free"
)

// OnBreach says what the daemon does while the alarm is up.
type OnBreach string

// The choices.
const (
	AlarmOnBreach OnBreach = "alarm" // raises the alarm
	DeferOnBreach OnBreach = "defer" // also defers everything that is called safe
)

// Slice is a property of inputs, such as the site, with the values that are told apart.
type Slice struct {
	Name   string
	Values []string
}

// SliceHash returns the number by which receipts know a value of a slice, and never 0. No two
// values that a policy declares share one.
func SliceHash(name, value string) uint16 {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	sum := h.Sum64()
	return max(uint16(sum^sum>>16^sum>>32^sum>>48), 1)
}

// Period is a length of time in seconds.
type Period int

// Lengths of time.
const (
	Second Period = 1
	Minute        = 60 * Second
	Hour          = 60 * Minute
	Day           = 24 * Hour
)

// maxPeriod bounds periods.
const maxPeriod = 10_000 * Day

// periodUnits lists the units of periods, the longest first.
var periodUnits = []struct {
	letter string
	length Period
}{{"d", Day}, {"h", Hour}, {"m", Minute}, {"s", Second}}

// String returns the period in the longest unit of which it is a whole number, such as 14d or 36h.
func (p Period) String() string {
	for _, u := range periodUnits {
		if p%u.length == 0 {
			return strconv.Itoa(int(p/u.length)) + u.letter
		}
	}
	panic("not reached: every period is a number of seconds")
}

// MarshalText returns what String does.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// audit says which inputs are audited and what follows.
func (e explainer) audit() []string {
	a := e.Audit
	s := fmt.Sprintf("A person also looks at %s of the retained inputs, picked at random", percent(a.Rate))
	if e.Risk != nil && a.M < 1 {
		s += ", those of higher risk more often"
	}
	if a.PredictedCritical == CriticalFree {
		s += "; the workflow works up all those that are predicted critical"
	}
	if a.Cap > 0 {
		s += fmt.Sprintf("; above %v an hour fewer are picked", a.Cap)
	}
	sentences := []string{s + fmt.Sprintf(". Outcomes are expected within %v.", a.Due)}
	if a.OnBreach == DeferOnBreach {
		sentences = append(sentences, fmt.Sprintf("While they show that the promise is broken, every input that is called safe is deferred: "+
			"some %v reviews per 1,000 inputs.", a.Surge))
	}
	return sentences
}

// audit warns about the block audit.
func (w *warnings) audit() {
	a := w.Audit
	if len(w.Critical) == 0 {
		w.add("audit", "no class is critical: there are no misses to count, and outcomes can break no promise")
		return
	}
	if lines := w.Lines(); !w.Observes() && lines.CriticalFNR == 0 && lines.CriticalMissRate == 0 && len(lines.Classes) == 0 {
		w.add("audit", "there is no line that outcomes could cross, so that no alarm is ever raised: calibrate again, or state "+
			"calibration.lines")
	}
	if w.Risk != nil && a.M < 1 && (w.Calibration == nil || w.Calibration.MeanRootRisk == 0) {
		w.add("audit.m", "has no effect: audits follow the risk only with calibration.mean_root_risk, which ckd calibrate writes")
	}
	if w.Risk == nil && a.M != DefaultAuditM && a.M < 1 {
		w.add("audit.m", "has no effect: the policy has no risk that audits could follow")
	}
	if a.Surge > 0 && a.OnBreach != DeferOnBreach {
		w.add("audit.surge", "has no effect: on_breach is %s", a.OnBreach)
	}
	if a.Rate == 1 {
		w.add("audit.rate", "1 has a person look at every retained input: nothing is gained by retaining it")
	}
}
