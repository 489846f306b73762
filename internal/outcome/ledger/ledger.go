package ledger

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// Options configures a ledger.
type Options struct {
	// Keys returns the receipt keys now in force.
	Keys func() *receipt.Keys
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// ReadOnly opens the ledger beside a process that serves it.
	ReadOnly bool

	noSync bool // commits are not durable, for tests that do not ask for it
}

// A Ledger is the durable store of outcomes. All methods may be called at the same time, and other
// processes may have the same ledger open.
type Ledger struct {
	options  Options
	store    *store.Store
	policies policies
	told     told
	runs     runs
	replicas replicas

	mu       sync.Mutex // guards what follows; held while states are brought up to date
	models   map[string]*model
	unstored error                  // what kept the last states from being stored
	seen     uint64                 // the commit up to which the store was read
	last     atomic.Pointer[recent] // all states as last computed; nil for never
	reads    atomic.Int64           // decisions read to count them, for tests
}

// ErrPolicyUnknown says that no daemon has told a policy.
var ErrPolicyUnknown = errors.New("no daemon has told this policy")

// ErrNoPromise says that nothing is known of a policy and model version.
var ErrNoPromise = errors.New("no such policy and model version in the ledger")

// ErrExists says that the folder in which a ledger was to begin holds one.
var ErrExists = store.ErrExists

// Begin begins a ledger in a folder that holds none. Open never does: an emptied or mistyped folder is
// not a beginning.
func Begin(dir string, o Options) error { return store.Create(dir, store.Options{Now: o.Now}) }

// Open opens the ledger in a folder. It reads no outcomes.
func Open(dir string, o Options) (*Ledger, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	open := store.Open
	if o.ReadOnly {
		open = store.OpenReadOnly
	}
	s, err := open(dir, store.Options{Now: o.Now, NoSync: o.noSync})
	if err != nil {
		return nil, err
	}
	l := &Ledger{options: o, store: s, models: make(map[string]*model)}
	if err := s.View(l.load); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// load reads what is kept in memory: policies and runs, and which receipts were told of.
func (l *Ledger) load(tx *store.Tx) error {
	if err := l.policies.load(tx); err != nil {
		return err
	}
	text, err := tx.Meta(metaDeleted)
	if err != nil {
		return err
	}
	if text != "" {
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		l.runs.refuseBefore(at)
	}
	return l.told.load(tx, 0)
}

// metaDeleted names the time, in microseconds, before which outcomes were deleted.
const metaDeleted = "deleted_before"

// Close closes the store.
func (l *Ledger) Close() error { return l.store.Close() }

// now returns the time, as exactly as it is stored.
func (l *Ledger) now() time.Time { return l.options.Now().UTC().Truncate(time.Microsecond) }

// A runKey names a policy and a model version by their hashes.
type runKey struct {
	policy  [32]byte
	version uint64
}

// runs knows the numbers that the store gave to policies and versions. No other lock is taken while
// holding mu.
type runs struct {
	mu      sync.Mutex
	byKey   map[runKey]store.Promise
	deleted int64              // decisions before this time, in microseconds, were deleted
	final   map[cohortKey]bool // cohorts of which outcomes were deleted
}

// A cohortKey names a cohort by the number of its policy and version.
type cohortKey struct{ promise, start int64 }

// get returns a run that is known.
func (r *runs) get(key runKey) (store.Promise, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known := r.byKey[key]
	return p, known
}

func (r *runs) set(all ...store.Promise) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[runKey]store.Promise)
	}
	for _, p := range all {
		r.byKey[runKey{p.Policy, p.Version}] = p
	}
}

// refuseBefore refuses outcomes of decisions before a time from now on, and returns the time before
// which they are refused: what was refused stays so.
func (r *runs) refuseBefore(limit int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = max(limit, r.deleted)
	return r.deleted
}

// finish refuses outcomes of a cohort from now on.
func (r *runs) finish(key cohortKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.final == nil {
		r.final = make(map[cohortKey]bool)
	}
	r.final[key] = true
}

// refused says until when outcomes of decisions like one were deleted; zero where they were not.
func (r *runs) refused(p store.Promise, at int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	start := promise.Grid{Period: p.Period}.Start(at)
	switch {
	case at < r.deleted:
		return time.UnixMicro(r.deleted).UTC()
	case r.final[cohortKey{p.Number, start}]:
		return time.UnixMicro(start + p.Period).UTC()
	}
	return time.Time{}
}

// run returns the run of a policy and version, and makes it if there is none. The transaction's end
// decides whether it stays: it is known to others once it was stored.
func (l *Ledger) run(tx *store.Tx, t *truth.Terms, version uint64) (store.Promise, error) {
	key := runKey{t.Hash, version}
	if p, known := l.runs.get(key); known {
		return p, nil
	}
	p := store.Promise{Policy: t.Hash, Version: version}
	p.Period = promise.CohortPeriod(time.Duration(promise.SettingsOf(t.Policy.Audit).Due) * time.Microsecond).Microseconds()
	if receipt.VersionHash(t.Policy.Version) == version {
		p.Name = t.Policy.Version
	}
	return p, tx.AddPromise(&p)
}

// told says up to which number the receipts of each sealer are among the counts of issued ones. A
// process that is killed does not tell what it issued last. Its receipts prove it: their numbers are
// higher.
type told struct {
	mu      sync.RWMutex
	through map[receipt.SealerID]uint64
}

// last returns the highest number of a sealer that a daemon reported; 0 for none.
func (t *told) last(sealer receipt.SealerID) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.through[sealer]
}

// has reports whether a receipt is among the counts.
func (t *told) has(id receipt.ID) bool { return id.Number() <= t.last(id.Sealer()) }

// load reads the sealers that a commit later than one changed.
func (t *told) load(tx *store.Tx, since uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.through == nil {
		t.through = make(map[receipt.SealerID]uint64)
	}
	return tx.Sealers(since, func(s receipt.SealerID, through uint64) error {
		t.through[s] = max(t.through[s], through)
		return nil
	})
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
