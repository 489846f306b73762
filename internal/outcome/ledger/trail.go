package ledger

import (
	"encoding/json"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/store"
)

// An Event is an entry of the trail.
type Event struct {
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// By names who did it; empty for the ledger itself.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Policy is the hash in hex; Model its model; Version the model version.
	Policy  string `json:"policy,omitempty"`
	Model   string `json:"model,omitempty"`
	Version string `json:"version,omitempty"`
	// Before is the hash of the policy that was in force before.
	Before string `json:"before,omitempty"`
	// Figure names the figure whose alarm was raised or cleared, such as
	// critical miss rate of melanoma.
	Figure string `json:"figure,omitempty"`
	// Alarm names the alarm that was cleared, as alarmName does.
	Alarm string `json:"alarm,omitempty"`
	// Successor is the hash of the policy that answered it.
	Successor string `json:"successor,omitempty"`
	// Detail says more, such as how many outcomes were deleted.
	Detail string `json:"detail,omitempty"`
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	eventPolicy        EventKind = "policy_added"
	eventPolicyChanged EventKind = "policy_changed" // audits or what else the hash does not cover
	eventRaised        EventKind = "alarm_raised"
	eventCleared       EventKind = "alarm_cleared"
	eventDeleted       EventKind = "outcomes_deleted"
	eventInForce       EventKind = "policy_in_force" // it has decided for the first time
	eventReloaded      EventKind = "policy_reloaded" // a daemon has put it in force
	eventLineHeld      EventKind = "line_held"       // a policy has a higher one, or none: that of before stays
	eventLineRaised    EventKind = "line_raised"
	eventRecalled      EventKind = "alarm_recalled" // daemons remember it, and an older copy was put back
	eventRestored      EventKind = "ledger_restored"
	eventImported      EventKind = "outcomes_imported"
)

// note appends an event to the trail.
func (l *Ledger) note(tx *store.Tx, e Event) error { return addEvent(tx, l.now(), e) }

func addEvent(tx *store.Tx, now time.Time, e Event) error {
	e.At = now.UTC()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return tx.AddEvent(text)
}

// Reloaded notes that a daemon has put policies in force.
func (l *Ledger) Reloaded(changes ...Event) error {
	if len(changes) == 0 {
		return nil
	}
	return l.store.Update(func(tx *store.Tx) error {
		for _, e := range changes {
			e.Kind = eventReloaded
			if err := l.note(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// Trail returns all events, the oldest first. Nothing deletes them.
func (l *Ledger) Trail() ([]Event, error) {
	var events []Event
	err := l.store.View(func(tx *store.Tx) error {
		return tx.Trail(func(text []byte) error {
			var e Event
			if err := json.Unmarshal(text, &e); err != nil {
				return err
			}
			events = append(events, e)
			return nil
		})
	})
	return events, err
}
