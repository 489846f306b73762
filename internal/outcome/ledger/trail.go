package ledger

import (
	"encoding/binary"
	"encoding/json"
	"time"

	bolt "go.etcd.io/bbolt"
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
	// Figure names the figure whose alarm was raised or cleared, such as critical_fnr.
	Figure string `json:"figure,omitempty"`
	// Detail says more, such as how many outcomes were deleted.
	Detail string `json:"detail,omitempty"`
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventPolicy        EventKind = "policy_added"
	EventPolicyChanged EventKind = "policy_changed" // lines, audits or what else the hash does not cover
	EventRaised        EventKind = "alarm_raised"
	EventCleared       EventKind = "alarm_cleared"
	EventLine          EventKind = "line_changed" // evidence against the new line begins anew
	EventDeleted       EventKind = "outcomes_deleted"
)

// note appends an event to the trail.
func (st *store) note(tx *bolt.Tx, e Event) error {
	b := tx.Bucket(bucketTrail)
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	e.At = st.now().UTC()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return b.Put(binary.BigEndian.AppendUint64(nil, n), text)
}

// Trail returns all events, the oldest first. Nothing deletes them.
func (l *Ledger) Trail() ([]Event, error) {
	var events []Event
	err := l.main.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketTrail).ForEach(func(_, text []byte) error {
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
