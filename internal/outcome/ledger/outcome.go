package ledger

import (
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// An Outcome is the true class of a decision's input, found later.
type Outcome struct {
	// Receipt is the sealed receipt of the decision.
	Receipt []byte
	// Truth names the true class, as the policy does.
	Truth string
	// Source says who says so: a person, a laboratory, a register. A second reading needs another source.
	// Of an audit the first reading of a source stands, of another input the last.
	Source string
	// At is when it was found out; the zero time means now. It may lie up to five minutes in the
	// future or before the decision, for clocks that differ.
	At time.Time
	// SawModel says that the reader had seen the model's answer. It matters for readings only.
	SawModel bool
	// Kind says how the truth was found.
	Kind truth.Kind
	// By says who reported it first, Reported when. They count in imports alone.
	By       string
	Reported time.Time
}

// An Answer says what became of one outcome.
type Answer struct {
	Status Status
	// Why names the value found and the value expected; empty where the status says all.
	Why string
	// Field names the field of the outcome that Why is about: receipt, truth, source, at or kind.
	Field string
	// Want says which further reading of the input is wanted, if any.
	Want truth.Want
	// Policy is the hash in the receipt; zero where it could not be opened.
	Policy [32]byte
	// Predicted and Time repeat the decision, for confirmation that it is the right case. They are
	// empty where nothing was stored: a reading comes first, then the model's answer.
	Predicted string
	Time      time.Time
}

// Stored reports whether the ledger holds the outcome, now or from before.
func (a Answer) Stored() bool { return a.Status >= Counted && a.Status <= Duplicate }

// Status says what became of an outcome.
type Status uint8

// The statuses.
const (
	// Counted: it is the first of its decision, or a further reading.
	Counted Status = 1 + iota
	// Corrected: it replaces an earlier reading of the same source. Answer.Want says whether another
	// source should read the input now.
	Corrected
	// SecondReadWanted: it is stored, and another source should read the input: see Answer.Want.
	SecondReadWanted
	// Apart: it is stored, but outside the figures. Nobody had picked the input for review, or an
	// audit was read by someone who had seen the model's answer, or had been answered before.
	Apart
	// Duplicate: it says nothing new, or an equal input that was decided before counts.
	Duplicate
	// UnknownKey: the receipt was sealed under a key that is not among the receipt keys.
	UnknownKey
	// Forged: the receipt was changed or cut, or is none.
	Forged
	// PolicyUnknown: no daemon has told the policy yet. Send the outcome again later.
	PolicyUnknown
	// Invalid: Why names the fault of the outcome.
	Invalid
	statuses
)

// String returns the status' name in JSON and metrics, or "" for none.
func (s Status) String() string {
	if s < statuses {
		return [statuses]string{"", "counted", "corrected", "second_read_wanted", "apart", "duplicate", "unknown_key", "forged",
			"policy_unknown", "invalid"}[s]
	}
	return ""
}

// Statuses lists all statuses.
func Statuses() []Status {
	all := make([]Status, 0, statuses-1)
	for s := Counted; s < statuses; s++ {
		all = append(all, s)
	}
	return all
}

// Sealed says how many receipts a sealer had made when its process counted what it issued: the
// counts have all receipts up to that number.
type Sealed struct {
	Sealer receipt.SealerID
	Count  uint64
	Key    string // id of its receipt key
}

// Issued counts what one process decided under a promise and stratum in one counting period. Counts
// are absolute: telling them twice changes nothing.
type Issued struct {
	// Process names one run of a daemon.
	Process string
	Policy  [32]byte
	// Version is the model version's text. Receipts hold its hash.
	Version string
	Stratum receipt.Stratum
	// Start begins the counting period: see promise.CountPeriod.
	Start time.Time
	// Decisions counts all decisions, Eligible those of clients that take receipts, Receipts the
	// receipts handed out, Reviews the inputs to be reviewed.
	Decisions, Eligible, Receipts, Reviews uint64
	// Propensity sums pi over the eligible decisions, InversePropensity 1/pi over the reviews.
	Propensity, InversePropensity float64
	// Audit holds the settings in force; nil for none.
	Audit *policy.Audit
}
