package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/store"
)

// Identity names a ledger, and what it was when somebody heard of it.
type Identity = store.Identity

// Identity returns the identity of the ledger, as of its last transaction.
func (l *Ledger) Identity() Identity { return l.store.Identity() }

// Remembered hears what a daemon remembers of this ledger. If that is later than the ledger is, an older
// copy was put back: the ledger begins a new generation, notes it in the trail, and returns true. Of
// another ledger nothing follows.
func (l *Ledger) Remembered(i Identity) (restored bool, err error) {
	if now := l.Identity(); !now.Precedes(i) {
		return false, nil
	}
	err = l.store.Update(func(tx *store.Tx) error {
		now := tx.Identity()
		if restored = now.Precedes(i); !restored {
			return nil
		}
		for range i.Generation + 1 - now.Generation {
			if err := tx.NextGeneration(); err != nil {
				return err
			}
		}
		return l.note(tx, Event{Kind: eventRestored, Detail: fmt.Sprintf(
			"an older copy was put back: a daemon remembers transaction %d of generation %d, the copy ends with %d of %d", i.Commit, i.Generation, now.Commit, now.Generation)})
	})
	return restored, err
}

// An Alarm is one that is up, or that ended. It belongs to a model, across its policies and versions.
type Alarm struct {
	Model string
	// Figure is critical_miss_rate or critical_fnr; Class is empty for all critical classes.
	Figure, Class string
	// Raised is when it was seen, Ended when it ended; zero while it is up.
	Raised, Ended time.Time
	By, Reason    string
	Successor     string // hash of the policy that answered it
}

// Alarms returns the alarms of a model that are up, and all that ended, as of the states of Recent.
func (l *Ledger) Alarms(model string) ([]Alarm, error) {
	if _, err := l.Recent(); err != nil {
		return nil, err
	}
	last := l.last.Load()
	if last == nil { // cleared meanwhile
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(last.alarms), func(a Alarm) bool { return a.Model != model }), nil
}

// alarms returns the alarms of all models. The caller holds mu.
func (l *Ledger) alarms() (all []Alarm) {
	for _, name := range sortedKeys(l.models) {
		m := l.models[name]
		for _, e := range m.Alarms.Ended() {
			all = append(all, Alarm{Model: name, Figure: e.Risk.String(), Class: e.Class, Raised: e.Raised, Ended: e.At, By: e.By, Reason: e.Reason, Successor: e.Successor})
		}
		for _, w := range m.Alarms.Raised() {
			_, seen := m.Alarms.Since(w)
			all = append(all, Alarm{Model: name, Figure: w.Risk.String(), Class: w.Class, Raised: seen})
		}
	}
	return all
}

// Recall takes up alarms that daemons remember as up and that this ledger lacks, as an older copy does that
// was put back. One that has ended here since it was raised has ended.
func (l *Ledger) Recall(alarms []Alarm) error {
	for _, a := range alarms {
		known, err := l.Alarms(a.Model)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(known, func(k Alarm) bool {
			return k.Figure == a.Figure && k.Class == a.Class && (k.Ended.IsZero() || !k.Ended.Before(a.Raised))
		}) {
			continue
		}
		if err := l.recall(a); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) recall(a Alarm) error {
	w := promise.Watch{Risk: evidence.MissRate, Class: a.Class}
	if a.Figure == evidence.FNR.String() {
		w.Risk = evidence.FNR
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return err
	}
	m := l.models[a.Model]
	if m == nil { // it is younger than the copy
		m = &model{Model: promise.NewModel(a.Model), runs: make(map[int64]*run)}
		if err := l.store.View(func(tx *store.Tx) error { return m.readEvidence(tx) }); err != nil {
			return err
		}
	}
	alarms := m.Alarms.Clone()
	if !alarms.Recall(w, a.Raised) {
		return nil
	}
	e := Event{Kind: eventRecalled, Model: a.Model, Figure: w.String(), Alarm: alarmName(w, a.Raised), Detail: "daemons remember it as up, and this copy of the ledger lacks it"}
	if err := l.store.Update(func(tx *store.Tx) error { return l.putEvidence(tx, m, alarms, []Event{e}) }); err != nil {
		return err
	}
	m.Alarms, m.epoch, m.pending = alarms, m.epoch+1, true
	l.models[a.Model] = m
	l.last.Store(nil)
	return nil
}

// A Replica is a daemon that tells this ledger what it decides.
type Replica struct {
	Process, Identity string
	// ClockAhead is by how much its clock is ahead of the ledger's.
	ClockAhead time.Duration
	// Keys are the ids of its receipt keys.
	Keys []string
	// Remembers is the ledger that it was told by before; zero for none.
	Remembers Identity
	At        time.Time // when it told last
}

// forgotten is how long a replica that tells nothing is remembered.
const forgotten = 10 * time.Minute

// replicas holds the replicas that told lately.
type replicas struct {
	mu        sync.Mutex
	byProcess map[string]Replica
}

// Heard notes what a replica said of itself.
func (l *Ledger) Heard(r Replica) {
	l.replicas.mu.Lock()
	defer l.replicas.mu.Unlock()
	if l.replicas.byProcess == nil {
		l.replicas.byProcess = make(map[string]Replica)
	}
	maps.DeleteFunc(l.replicas.byProcess, func(_ string, old Replica) bool { return r.At.Sub(old.At) > forgotten })
	l.replicas.byProcess[r.Process] = r
}

// Replicas returns the replicas that told within ten minutes, by process.
func (l *Ledger) Replicas() []Replica {
	l.replicas.mu.Lock()
	defer l.replicas.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.replicas.byProcess), func(a, b Replica) int { return strings.Compare(a.Process, b.Process) })
}
