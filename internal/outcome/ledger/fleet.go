package ledger

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Identity names one state of one ledger.
type Identity struct {
	// ID stays as long as the ledger does.
	ID string
	// Generation counts how often an older copy was put back.
	Generation uint64
	// Branch is a random name of the generation: two copies of one backup differ in it.
	Branch string
	// Commit counts transactions.
	Commit uint64
}

// Precedes reports whether a ledger of this identity may lack what one of the other identity was told.
func (i Identity) Precedes(other Identity) bool {
	return i.ID == other.ID && (i.Generation < other.Generation || i.Generation == other.Generation && (i.Branch != other.Branch || i.Commit < other.Commit))
}

// An Alarm is evidence against a line of a model, across its policies and versions. It stays up until a
// named end.
type Alarm struct {
	Model string
	// Figure is critical_fnr or critical_miss_rate; Class is empty for all critical classes.
	Figure, Class string
	Raised        time.Time
	// Ended is zero while the alarm is up.
	Ended                 time.Time
	By, Reason, Successor string
}

// A Replica is a daemon that tells this ledger what it issued.
type Replica struct {
	// Process names one run of a daemon, Identity who it is by access control.
	Process, Identity string
	// ClockAhead is its clock less the ledger's, the way of the message included.
	ClockAhead time.Duration
	// Keys are the ids of its receipt keys.
	Keys []string
	// Remembers is the ledger that it was told by before; zero for none.
	Remembers Identity
	At        time.Time // when it was last heard
}

// fleet holds what a ledger knows of itself and of its daemons.
type fleet struct {
	mu       sync.Mutex
	identity Identity
	replicas map[string]Replica
	recalled []Alarm
}

var fleets sync.Map // of *Ledger: *fleet

func (l *Ledger) fleet() *fleet {
	known, found := fleets.Load(l)
	if !found {
		made := &fleet{replicas: map[string]Replica{}}
		text, err := os.ReadFile(l.identityFile())
		if err == nil {
			err = json.Unmarshal(text, &made.identity)
		} else if errors.Is(err, fs.ErrNotExist) {
			made.identity = Identity{ID: rand.Text()[:12], Branch: rand.Text()[:6]}
			err = l.keep(made.identity)
		}
		if err != nil {
			panic(err)
		}
		known, _ = fleets.LoadOrStore(l, made)
	}
	return known.(*fleet)
}

func (l *Ledger) identityFile() string {
	return filepath.Join(filepath.Dir(l.main.Path()), "identity.json")
}

func (l *Ledger) keep(i Identity) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return os.WriteFile(l.identityFile(), text, 0o600)
}

// Identity returns the ledger's present state by name.
func (l *Ledger) Identity() Identity {
	f := l.fleet()
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.identity
	_ = l.main.View(func(tx *bolt.Tx) error {
		i.Commit = uint64(tx.ID())
		return nil
	})
	return i
}

// Remembered hears what a daemon remembers of this ledger. If that is later than the ledger is, an older
// copy was put back: the ledger begins a new generation and returns true.
func (l *Ledger) Remembered(i Identity) (restored bool, err error) {
	if !l.Identity().Precedes(i) {
		return false, nil
	}
	f := l.fleet()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.identity.Generation > i.Generation {
		return false, nil
	}
	f.identity.Generation, f.identity.Branch = i.Generation+1, rand.Text()[:6]
	return true, l.keep(f.identity)
}

// Alarms returns the alarms of a model, those up and those that have ended, in the order in which they
// were raised.
func (l *Ledger) Alarms(model string) ([]Alarm, error) {
	events, err := l.Trail()
	if err != nil {
		return nil, err
	}
	var all []Alarm
	for _, e := range events {
		figure, class, _ := strings.Cut(e.Figure, " of ")
		if e.Model != model || figure == "" {
			continue
		}
		switch e.Kind {
		case EventRaised:
			all = append(all, Alarm{Model: model, Figure: figure, Class: class, Raised: e.At})
		case EventCleared:
			for i := range all {
				if a := &all[i]; a.Figure == figure && a.Class == class && a.Ended.IsZero() {
					a.Ended, a.By, a.Reason = e.At, e.By, e.Reason
				}
			}
		}
	}
	f := l.fleet()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.recalled {
		if a.Model == model {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b Alarm) int { return a.Raised.Compare(b.Raised) })
	return all, nil
}

// Recall takes up alarms that daemons remember as up and that this ledger lacks, as an older copy does
// that was put back. One that has ended here since it was raised has ended.
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
		f := l.fleet()
		f.mu.Lock()
		f.recalled = append(f.recalled, a)
		f.mu.Unlock()
	}
	return nil
}

// Heard learns that a daemon told something.
func (l *Ledger) Heard(r Replica) {
	f := l.fleet()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas[r.Process] = r
	for name, old := range f.replicas {
		if r.At.Sub(old.At) > 10*time.Minute {
			delete(f.replicas, name)
		}
	}
}

// Replicas returns the daemons that told something in the last ten minutes, by name.
func (l *Ledger) Replicas() []Replica {
	f := l.fleet()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Replica
	for _, r := range f.replicas {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Compare(a.Process, b.Process) })
	return all
}

// String returns the identity in words.
func (i Identity) String() string { return fmt.Sprintf("%s, generation %d", i.ID, i.Generation) }
