package triage

import (
	"encoding/json"
	"math"
	"time"
)

// State is what the page shows: of the daemon, and of one of its models.
//
// It is what /triage/state answers with and what each event of /triage/events
// carries. Shares are not in it, only the counts that they are of.
type State struct {
	At     time.Time `json:"at"`
	Daemon Daemon    `json:"daemon"`
	Models []string  `json:"models"` // that may be looked at, by name
	Model  *Model    `json:"model"`  // null where the one that was asked for is not served
}

// Daemon is the state of the daemon as a whole.
type Daemon struct {
	Version    string    `json:"version"`
	Revision   string    `json:"revision"`
	Arithmetic string    `json:"arithmetic"`
	Started    time.Time `json:"started"`
	Serving    bool      `json:"serving"`
	Reload     Reload    `json:"reload"`
	// CertificateEnds is when its TLS certificate does; null without TLS.
	CertificateEnds *time.Time `json:"certificate_ends"`
}

// Reload is how the last attempt to load the policies went.
type Reload struct {
	OK      bool      `json:"ok"`
	At      time.Time `json:"at"`      // of the attempt
	Success time.Time `json:"success"` // of the last one that succeeded
	Error   string    `json:"error"`   // what was wrong; empty if OK
}

// Model is one model under the policy in force.
type Model struct {
	Name   string `json:"name"`
	Policy Policy `json:"policy"`
	// Classes are those that count by themselves, in the order of the policy, and, last,
	// the one that stands for ClassesCut more: classes without series of their own, and
	// those that are beyond 128 in all. Critical ones are left out last. Wherever a class
	// is a number, it is a position in this list.
	Classes    []Class `json:"classes"`
	ClassesCut int     `json:"classes_cut"`
	// PairsCut is how many pairs the policy computes that are not in Span.Pairs. Those
	// are of the first 64 classes that count by themselves, critical ones first.
	PairsCut int `json:"pairs_cut"`

	StreamsOpen float64 `json:"streams_open"`
	InputsOpen  float64 `json:"inputs_open"`

	Spans []Span `json:"spans"` // 1, 5 and 15 minutes, the shortest first
	// History is by steps of 15 s, the oldest first, 15 minutes at most. In an event
	// that is not the first it is only the steps that are new or have changed: the
	// last one changes until its time is over. A step is known by At.
	History []Step `json:"history"`
	// HistoryFrom is At of the oldest step there is; 0 for none. What came before is
	// to be forgotten: it is too old, or of other classes.
	HistoryFrom int64  `json:"history_from"`
	Drift       *Drift `json:"drift"` // null where the policy has no reference
	// Settling is how inputs are settled before their last pass; null where the policy has
	// no rule in force.
	Settling *Settling `json:"settling"`
	Recent   *Recent   `json:"recent"` // null where they are not kept, or not for who looks
	// RecentWhy says why Recent is null: "off", or "not allowed".
	RecentWhy string `json:"recent_why"`
}

// Policy is the policy in force.
type Policy struct {
	Version     string   `json:"version"`
	Hash        string   `json:"hash"`
	Observes    bool     `json:"observes"`
	Gate        string   `json:"gate"`
	Scope       string   `json:"scope"`
	Primary     Rule     `json:"primary"`
	Fallback    Rule     `json:"fallback"`
	Reliability float64  `json:"reliability"` // the skewness above which C_k is not trusted
	Kind        string   `json:"kind"`
	Passes      int      `json:"passes"` // expected of an input; 0: the fewest is Fewest, and a final block ends it
	Fewest      int      `json:"fewest"`
	Pairs       string   `json:"pairs"`    // safe-critical or all
	Warnings    []string `json:"warnings"` // as ckd check has them
	// Calibration is null where the policy does not tell where it comes from.
	Calibration *Calibration `json:"calibration"`
}

// Rule is a score with its threshold; null where it has none.
type Rule struct {
	Score     string   `json:"score"`
	Threshold *float64 `json:"threshold"`
}

// Calibration is what the thresholds come from.
type Calibration struct {
	Objective           string    `json:"objective"`
	Posterior           string    `json:"posterior"`
	Inputs              int       `json:"inputs"`
	CriticalInputs      int       `json:"critical_inputs"`
	Passes              int       `json:"passes"`
	ExpectedCoverage    *Interval `json:"expected_coverage"`
	ExpectedCriticalFNR *Interval `json:"expected_critical_fnr"`
	// Certificate is the guarantee in one sentence; empty for none.
	Certificate string `json:"certificate"`
	// Changed says that the policy is not as it was calibrated: nothing of this holds.
	Changed bool `json:"changed"`
}

// Interval is a share with its 95% interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Class is one class, or those that share a label: critical or safe if all are.
type Class struct {
	Name     string `json:"name"`
	Critical bool   `json:"critical"`
	Safe     bool   `json:"safe"`
	Shared   bool   `json:"shared"` // it stands for those that have none of their own
	Of       int    `json:"of"`     // classes under this label: 1 but for the shared one
}

// Span is what was counted in the last minutes.
type Span struct {
	Minutes int     `json:"minutes"`
	Seconds float64 `json:"seconds"` // that it covers: less than Minutes while the model is new to the page

	Inputs   float64 `json:"inputs"` // decided
	Retained float64 `json:"retained"`
	Deferred float64 `json:"deferred"`
	Observed float64 `json:"observed"`
	// DeferredShare is Deferred of Retained and Deferred, with its 95% interval
	// (Wilson); null where there were none.
	DeferredShare *Interval `json:"deferred_share"`
	Fallback      float64   `json:"fallback"` // decided by the fallback score
	Degenerate    float64   `json:"degenerate"`
	Saturated     float64   `json:"saturated"`
	Rejected      float64   `json:"rejected"` // refused with an error
	Abandoned     float64   `json:"abandoned"`
	Late          float64   `json:"late"` // passes
	Mismatched    float64   `json:"mismatched"`
	Passes        float64   `json:"passes"`
	// Settling is null where that of the model is.
	Settling *SettlingSpan `json:"settling"`

	Reasons    []Reason    `json:"reasons"`    // of decisions, the most frequent first, none at 0
	Rejections []Reason    `json:"rejections"` // of refusals, likewise
	Classes    []ClassSpan `json:"classes"`    // by class
	Pairs      []Pair      `json:"pairs"`      // that are computed, but for Model.PairsCut; others are absent, not 0
}

// Reason is how often something happened for one reason.
type Reason struct {
	Reason string  `json:"reason"`
	Count  float64 `json:"count"`
}

// ClassSpan is one class in a span. Counts are of inputs; of a label that classes
// share, of inputs and classes.
type ClassSpan struct {
	Observations float64 `json:"observations"`
	Predicted    float64 `json:"predicted"`
	Dominant     float64 `json:"dominant"`
	Deciding     float64 `json:"deciding"`
	Unreliable   float64 `json:"unreliable"`
	MeanC        float64 `json:"mean_c"` // nats
	// Quantiles of C_k, in nats: 0.1, 0.5, 0.9 and 0.99; null where there are no
	// observations. They are read off buckets, to within a tenth; what is at most
	// 1e-6 is 0.
	Quantiles *[4]float64 `json:"quantiles"`
}

// Pair is one cell of the epistemic confusion matrix.
type Pair struct {
	A     int     `json:"a"`
	B     int     `json:"b"`
	Nats  float64 `json:"nats"` // per input
	Block bool    `json:"block"`
	// Block: one class is safe and the other critical; these pairs make cbec.
}

// Step is 15 seconds, or what there is of them.
type Step struct {
	At         int64   `json:"at"` // of its beginning, in ms since 1970
	Seconds    float64 `json:"seconds"`
	Inputs     float64 `json:"inputs"`
	Retained   float64 `json:"retained"`
	Deferred   float64 `json:"deferred"`
	Fallback   float64 `json:"fallback"`
	Degenerate float64 `json:"degenerate"`
	Rejected   float64 `json:"rejected"`
	// Quantiles of C_k by class, as in ClassSpan.
	Quantiles []*[4]float64 `json:"quantiles"`
}

// Drift is how far live inputs are from the reference of the policy.
type Drift struct {
	Reference int           `json:"reference"` // inputs of the reference
	Alarm     float64       `json:"alarm"`     // |z| above it is one
	Windows   []DriftWindow `json:"windows"`
	Classes   []ClassDrift  `json:"classes"` // those that the reference has
}

// DriftWindow is one window, counted in inputs.
type DriftWindow struct {
	Inputs int `json:"inputs"`
	// Visible is the smallest shift, |A - 1/2|, that is an alarm.
	Visible float64 `json:"visible"`
	Full    bool    `json:"full"` // so many inputs have come since the policy is in force
}

// ClassDrift is one class.
type ClassDrift struct {
	Class     int    `json:"class"`
	Epistemic Signal `json:"epistemic"`
	Skewness  Signal `json:"skewness"`
	Predicted Signal `json:"predicted"`
}

// Signal is one thing that may move: over each window, in standard errors, and as a
// shift.
type Signal struct {
	Z      []Number `json:"z"`
	Shift  []Number `json:"shift"`
	Alarm  bool     `json:"alarm"`
	Alarms float64  `json:"alarms"` // ever
}

// Settling is the rule in force by which inputs are settled, and what its audits say
// since it came into force.
type Settling struct {
	Passes int `json:"passes"` // of the full decision
	// Stopped says that the daemon has stopped settling, until the policy is another one.
	// StoppedAt is when the page saw that; null where it was so from the first.
	Stopped   bool       `json:"stopped"`
	StoppedAt *time.Time `json:"stopped_at"`
	// Evidence that a certified share is exceeded; at EvidenceLimit the daemon stops.
	Evidence      float64 `json:"evidence"`
	EvidenceLimit float64 `json:"evidence_limit"`
	// All is the share of inputs that all passes decide otherwise; Deferred, of the inputs
	// that all passes defer, the share that would have been retained.
	All      AuditedShare `json:"all"`
	Deferred AuditedShare `json:"deferred"`
	// What was promised: the confidence of what is certified, and the mean of the passes
	// used.
	Confidence float64 `json:"confidence"`
	MeanPasses float64 `json:"mean_passes"`
	// HalvesDiffer is the share of inputs that two halves of their passes decide
	// otherwise; null where that is not told.
	HalvesDiffer *float64 `json:"halves_differ"`
}

// AuditedShare is a share of audited inputs: its 95% interval, which holds at all times
// at once, and what it is certified not to exceed; null where nothing is.
type AuditedShare struct {
	Low       float64  `json:"low"`
	High      float64  `json:"high"`
	Certified *float64 `json:"certified"`
}

// SettlingSpan is what was counted of inputs that might be settled.
type SettlingSpan struct {
	Inputs  float64 `json:"inputs"`
	Used    float64 `json:"used"`      // passes
	Saved   float64 `json:"saved"`     // passes, net of audits
	OnAudit float64 `json:"on_audits"` // passes that audits cost
	Audited float64 `json:"audited"`   // inputs, with a result
	Lost    float64 `json:"lost"`      // inputs that were to be audited and have none
	// Disagreements are the audited inputs that all passes decide otherwise, by how: the
	// most frequent first, none at 0.
	Disagreements []Reason `json:"disagreements"`
}

// Recent is the last deferred inputs.
type Recent struct {
	Kept   int        `json:"kept"`   // at most so many are
	Inputs []Deferred `json:"inputs"` // the last one first
}

// Deferred is one deferred input.
type Deferred struct {
	At        time.Time `json:"at"`
	ID        string    `json:"id"`        // the client's; empty where it gave none
	Predicted string    `json:"predicted"` // name of a class, also of one without a series
	Score     string    `json:"score"`
	Value     Number    `json:"value"`     // of the score
	Threshold *float64  `json:"threshold"` // null where none decided, as for degenerate inputs
	Reason    string    `json:"reason"`
	Deciding  string    `json:"deciding"` // name of the class that set the score; empty for none
	Passes    int       `json:"passes"`
	Policy    string    `json:"policy"` // hash of the policy that decided
	// PredictedCritical and DecidingCritical say so of these two classes.
	PredictedCritical bool `json:"predicted_critical"`
	DecidingCritical  bool `json:"deciding_critical"`
	// Fingerprint is the classes of the largest C_k, the largest first, 8 at most.
	Fingerprint []Share `json:"fingerprint"`
	Rest        Number  `json:"rest"` // sum of the C_k of all others
}

// Share is one class of a fingerprint.
type Share struct {
	Class      string  `json:"class"`
	Critical   bool    `json:"critical"`
	C          float64 `json:"c"` // nats
	Unreliable bool    `json:"unreliable"`
}

// Number is a number, null where it is not a finite one.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(text []byte) error {
	v := math.NaN()
	if string(text) != "null" {
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
	}
	*n = Number(v)
	return nil
}
