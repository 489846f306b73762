package pagestate

import (
	"encoding/json"
	"math"
	"time"
)

// State is the page's view of the daemon and of one of its models.
//
// /triage/state answers with it. It has counts, and leaves shares to the page.
type State struct {
	At     time.Time `json:"at"`
	Daemon Daemon    `json:"daemon"`
	Models []string  `json:"models"` // names of the models in force
	Model  *Model    `json:"model"`  // null if the requested one is not in force
}

// Daemon is the state of the daemon as a whole.
type Daemon struct {
	Version    string    `json:"version"`
	Revision   string    `json:"revision"`
	Arithmetic string    `json:"arithmetic"`
	Started    time.Time `json:"started"`
	Serving    bool      `json:"serving"`
	Reload     Reload    `json:"reload"`
	// Ledger is the address that commands for the ledger take; empty without one.
	Ledger string `json:"ledger"`
	// CertificateEnds is when its TLS certificate expires; null without TLS.
	CertificateEnds *time.Time `json:"certificate_ends"`
}

// Reload says how the last attempt to load the policies went.
type Reload struct {
	OK      bool      `json:"ok"`
	At      time.Time `json:"at"`      // of the attempt
	Success time.Time `json:"success"` // time of the last success
	Error   string    `json:"error"`   // what was wrong; empty if OK
}

// Model is one model under the policy in force.
type Model struct {
	Name string `json:"name"`
	Policy
	// Classes lists the classes with a row, in the order of the policy. The last one may stand for
	// ClassesCut others, without series of their own. Critical classes are left out last. Wherever a class is a number, it is an index of this list.
	Classes    []Class `json:"classes"`
	ClassesCut int     `json:"classes_cut"`
	// PairsCut is how many computed pairs are not in Span.Pairs, which has the pairs of the first 64
	// classes with rows, critical ones first.
	PairsCut int `json:"pairs_cut"`

	InputsOpen float64 `json:"inputs_open"`

	Spans []Span `json:"spans"` // 1, 5 and 15 minutes, the shortest first
	// LastHour has what a rate per day needs.
	LastHour Hour `json:"last_hour"`
	// History lists steps of 15 s, the oldest first, at most 15 minutes; since an earlier state only those
	// that are new or have changed. The last one changes until it is over. At identifies a step.
	History []Step `json:"history"`
	Drift   *Drift `json:"drift"` // null if the policy has no reference
	// Suggested is the share of critical inputs that priorities suggest; null while it is not known.
	Suggested *Suggested `json:"suggested_prevalence"`
	// EarlyStop is about inputs decided before their last pass; null if the policy has no rule in
	// force.
	EarlyStop *EarlyStop `json:"settling"`
	// Promises holds a ckd.v1.PromiseFigures for each model version under the policy in force; null
	// without a ledger.
	Promises []json.RawMessage `json:"promises"`
	Recent   *Recent           `json:"recent"` // null if they are not kept, or not allowed to be seen
	// RecentWhy says why Recent is null: "off" or "not allowed".
	RecentWhy string `json:"recent_why"`
}

// Policy is the policy in force, with what a ckd.v1.Model does not say of it.
type Policy struct {
	// Message is a ckd.v1.Model without classes, promises and limits.
	Message  json.RawMessage `json:"policy"`
	Pairs    string          `json:"pairs"`    // safe-critical or all
	Warnings []string        `json:"warnings"` // as ckd check prints them
	// CalibratedFallback bounds the share of the calibration's inputs that the fallback score would decide; null
	// if the policy's reference does not tell.
	CalibratedFallback *Bounds `json:"calibrated_fallback"`
	// DefersOnAlarm says that all inputs called safe are deferred while outcomes raise the alarm.
	DefersOnAlarm bool `json:"defers_on_alarm"`
	// Inputs and CriticalInputs are those of the calibration's recording; 0 if unknown.
	Inputs         int `json:"inputs"`
	CriticalInputs int `json:"critical_inputs"`
	// Certificate states the guarantee in one sentence; empty without one.
	Certificate string `json:"certificate"`
	// Changed says that the policy was changed since its calibration, so that what that expects and
	// certifies does not hold.
	Changed bool `json:"changed"`
}

// Interval is a share with its 95% interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Bounds are the least and the most that a share can be.
type Bounds struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Suggested is a share of critical inputs that live priorities suggest, without labels.
type Suggested struct {
	Interval
	Inputs int `json:"inputs"` // the last ones, so many at most
}

// Class is one class, or several that share a label: critical or safe if all of them are.
type Class struct {
	Name     string `json:"name"`
	Critical bool   `json:"critical"`
	Safe     bool   `json:"safe"`
	Shared   bool   `json:"shared"` // it stands for classes without a row
	Of       int    `json:"of"`     // number of classes under this label
}

// Span holds the counts of the last minutes.
type Span struct {
	Minutes int     `json:"minutes"`
	Seconds float64 `json:"seconds"` // time covered, less than Minutes while the history is short

	Counts
	Observed float64 `json:"observed"`
	// DeferredShare is the share of Deferred in Retained and Deferred, with its 95% interval
	// (Wilson); null if both are 0.
	DeferredShare *Interval `json:"deferred_share"`
	Saturated     float64   `json:"saturated"`
	// ExpectedMisses is the number of critical inputs to expect among Retained, if traffic is as the
	// recording was. It is null if the policy has no risk model, and while drift is in alarm.
	ExpectedMisses *float64 `json:"expected_misses"`
	Abandoned      float64  `json:"abandoned"`
	Late           float64  `json:"late"` // passes
	Mismatched     float64  `json:"mismatched"`
	Passes         float64  `json:"passes"`
	// EarlyStop is null if the model's EarlyStop is null.
	EarlyStop *EarlyStopSpan `json:"settling"`

	Reasons    []Reason    `json:"reasons"`    // reasons of decisions, most frequent first, without zero counts
	Rejections []Reason    `json:"rejections"` // reasons of refusals, in the same order
	Classes    []ClassSpan `json:"classes"`    // by class
	Pairs      []Pair      `json:"pairs"`      // computed pairs, except Model.PairsCut; others are absent, not 0
}

// Hour counts the inputs of the last hour, or since the history began.
type Hour struct {
	Since    time.Time `json:"since"`
	Seconds  float64   `json:"seconds"` // less than 3,600 while the history is short
	Retained float64   `json:"retained"`
	Deferred float64   `json:"deferred"`
}

// Counts counts inputs.
type Counts struct {
	Inputs     float64 `json:"inputs"` // all that were decided
	Retained   float64 `json:"retained"`
	Deferred   float64 `json:"deferred"`
	Fallback   float64 `json:"fallback"` // decided by the fallback score
	Degenerate float64 `json:"degenerate"`
	Rejected   float64 `json:"rejected"` // refused with an error
}

// Reason says how often something happened for one reason.
type Reason struct {
	Reason string  `json:"reason"`
	Count  float64 `json:"count"`
}

// ClassSpan holds the counts of one class in a span: of inputs, or, for a label that classes share,
// of inputs times classes.
type ClassSpan struct {
	Observations float64 `json:"observations"`
	Predicted    float64 `json:"predicted"`
	Dominant     float64 `json:"dominant"`
	Deciding     float64 `json:"deciding"`
	Unreliable   float64 `json:"unreliable"`
	MeanC        float64 `json:"mean_c"` // nats
	// Quantiles are the 0.1, 0.5, 0.9 and 0.99 quantiles of C_k in nats; null without observations.
	// They are read off buckets, to within a tenth; values up to 1e-6 count as 0.
	Quantiles *[4]float64 `json:"quantiles"`
}

// Pair is one cell of the epistemic confusion matrix.
type Pair struct {
	A    int     `json:"a"`
	B    int     `json:"b"`
	Nats float64 `json:"nats"` // per input
}

// Step holds the counts of one step of 15 seconds, or less if it is not over.
type Step struct {
	At      int64   `json:"at"` // time of its beginning, in ms since 1970
	Seconds float64 `json:"seconds"`
	Counts
	// Quantiles are as in ClassSpan, by class.
	Quantiles []*[4]float64 `json:"quantiles"`
}

// Drift says how far live inputs are from the reference of the policy.
type Drift struct {
	Reference int           `json:"reference"` // inputs of the reference
	Alarm     float64       `json:"alarm"`     // |z| above it is an alarm
	Windows   []DriftWindow `json:"windows"`
	Classes   []ClassDrift  `json:"classes"` // of the reference
}

// DriftWindow is one window, in inputs.
type DriftWindow struct {
	Inputs int `json:"inputs"`
	// Visible is the smallest shift, |A - 1/2|, that is an alarm.
	Visible float64 `json:"visible"`
	Full    bool    `json:"full"` // the window has had all its inputs
}

// ClassDrift holds the signals of one class.
type ClassDrift struct {
	Class     int    `json:"class"`
	Epistemic Signal `json:"epistemic"`
	Skewness  Signal `json:"skewness"`
	Predicted Signal `json:"predicted"`
}

// Signal is one quantity that may move: over each window, in standard errors and as a shift.
type Signal struct {
	Z      []Number `json:"z"`
	Shift  []Number `json:"shift"`
	Alarm  bool     `json:"alarm"`
	Alarms float64  `json:"alarms"` // since the reference came into force
}

// EarlyStop says what full-pass checks say of the early-stopping rule since it came into force.
// The rule and what is certified of it are in the Policy.
type EarlyStop struct {
	// Stopped says that the daemon no longer stops inputs early until the policy changes.
	Stopped bool `json:"stopped"`
	// Evidence of a breach of a certified share; at 1 early stopping ends.
	Evidence float64 `json:"evidence"`
	// All is the share of inputs that all passes decide differently. Deferred is the share, among
	// the inputs that all passes defer, of those that would have been retained.
	All      CheckedShare `json:"all"`
	Deferred CheckedShare `json:"deferred"`
	// HalvesDiffer is the share of inputs that two halves of their passes decide differently; null
	// if the policy does not state it.
	HalvesDiffer *float64 `json:"halves_differ"`
}

// CheckedShare is the 95% interval of a share of checked inputs, which holds at all times at once.
type CheckedShare struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// EarlyStopSpan holds the counts of inputs that may be stopped early.
type EarlyStopSpan struct {
	Inputs  float64 `json:"inputs"`
	Used    float64 `json:"used"`    // passes
	Saved   float64 `json:"saved"`   // passes, net of full-pass checks
	Checked float64 `json:"audited"` // inputs checked with a result
	Lost    float64 `json:"lost"`    // inputs checked without a result
	// Disagreements lists the checked inputs that all passes decide differently, by how: the most
	// frequent first, without those at 0.
	Disagreements []Reason `json:"disagreements"`
}

// Recent holds the last deferred inputs.
type Recent struct {
	Kept   int        `json:"kept"`   // most inputs that are kept
	Inputs []Deferred `json:"inputs"` // the latest first
	// Blind says that inputs that wait for a reading are left out.
	Blind bool `json:"blind"`
}

// Deferred is one deferred input.
type Deferred struct {
	At        time.Time `json:"at"`
	ID        string    `json:"id"`        // from the client; may be empty
	Predicted string    `json:"predicted"` // name of a class, which may have no row
	Score     string    `json:"score"`
	Value     Number    `json:"value"`     // of the score
	Threshold *float64  `json:"threshold"` // null if no threshold decided, as for degenerate inputs
	Reason    string    `json:"reason"`
	Deciding  string    `json:"deciding"` // name of the class that set the score; may be empty
	Passes    int       `json:"passes"`
	Policy    string    `json:"policy"` // hash of the deciding policy
	// Priority is the percentile that work lists are sorted by, the highest first; null if unknown.
	Priority Number `json:"priority_percentile"`
	// PredictedCritical and DecidingCritical say whether these two classes are critical.
	PredictedCritical bool `json:"predicted_critical"`
	DecidingCritical  bool `json:"deciding_critical"`
	// Fingerprint lists the classes with the largest C_k in descending order, at most 8.
	Fingerprint []Share `json:"fingerprint"`
	Rest        Number  `json:"rest"` // sum of C_k over all other classes
}

// Share is one class of a fingerprint.
type Share struct {
	Class      string  `json:"class"`
	Critical   bool    `json:"critical"`
	C          float64 `json:"c"` // nats
	Unreliable bool    `json:"unreliable"`
}

// Number is a float64 that JSON writes as null if it is not finite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
