package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// Options configures a ledger.
type Options struct {
	// Keys returns the receipt keys now in force.
	Keys func() *receipt.Keys
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	noSync bool // commits are not durable, for tests that do not ask for it
}

// A Ledger is the durable store of outcomes. All methods may be called at the same time.
type Ledger struct {
	*store
	inbox    *inbox
	promises *promises
}

// The buckets of ledger.db.
var (
	bucketMeta     = []byte("meta")
	bucketPolicies = []byte("policies") // hash: YAML
	bucketPromises = []byte("promises") // promiseKey: a bucket with those below
	bucketTrail    = []byte("trail")    // sequence: JSON
	bucketSealers  = []byte("sealers")  // receipt.SealerID: the last number that was told

	bucketRecords = []byte("records") // recordKey: record
	bucketDraws   = []byte("draws")   // draw: time of the earliest decision
	bucketCohorts = []byte("cohorts") // start: cohort
	bucketTallies = []byte("tallies") // start: tally
	bucketIssued  = []byte("issued")  // start, stratum, process: counts
	bucketSums    = []byte("sums")    // cohort: issued counts by stratum
	bucketHistory = []byte("history") // cohort: Point

	keyInfo     = []byte("info")     // in a promise: what it is
	keyOfficial = []byte("official") // in a promise: alarms
	keyReplay   = []byte("replay")   // in a promise: alarms and sequences over the outcomes as they are now
	keyBase     = []byte("base")     // in a promise: the replay of the cohorts whose outcomes were deleted
	keyFormat   = []byte("format")   // in meta
	keyDeleted  = []byte("deleted")  // in meta: decisions before this time were deleted
)

// format is the first byte of all that is stored.
const format = 1

// ErrInUse says that another process has the ledger open.
var ErrInUse = errors.New("the ledger is open in another process")

// ErrPolicyUnknown says that no daemon has told a policy.
var ErrPolicyUnknown = errors.New("no daemon has told this policy")

// ErrNoPromise says that nothing is known of a policy and model version.
var ErrNoPromise = errors.New("no such policy and model version in the ledger")

// Open opens the ledger in a directory, and makes one there if there is none. It reads no outcomes
// but those of the last seconds before a crash.
func Open(dir string, o Options) (*Ledger, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	main, err := openFile(filepath.Join(dir, "ledger.db"), o.noSync)
	if err != nil {
		return nil, err
	}
	file, err := openFile(filepath.Join(dir, "inbox.db"), o.noSync)
	if err != nil {
		return nil, errors.Join(err, main.Close())
	}
	l := &Ledger{store: newStore(o, main)}
	l.inbox = newInbox(l.store, file)
	l.promises = newPromises(l.store, l.inbox)
	if err := l.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), main.Close(), file.Close())
	}
	return l, nil
}

// openFile opens one file of the store. The address space is reserved at once: a file that outgrows
// it has to wait for all readers.
func openFile(path string, noSync bool) (*bolt.DB, error) {
	const reserved = 16 << 30
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         time.Second,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: reserved,
		NoStatistics:    true,
		NoSync:          noSync,
		NoGrowSync:      noSync,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return db, nil
}

// load makes the buckets, and reads the state that is kept in memory: policies, promises, and the batches that
// no merge has taken.
func (l *Ledger) load() error {
	if err := l.main.Update(makeBuckets); err != nil {
		return err
	}
	err := l.main.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if found := meta.Get(keyFormat); len(found) != 1 || found[0] != format {
			return fmt.Errorf("format %v, expected %d: made by another version of ckd", found, format)
		}
		if at := meta.Get(keyDeleted); at != nil {
			l.inbox.deleted = timeOf(at)
		}
		if err := l.policies.load(tx.Bucket(bucketPolicies)); err != nil {
			return err
		}
		if err := l.told.load(tx.Bucket(bucketSealers)); err != nil {
			return err
		}
		return l.promises.load(tx.Bucket(bucketPromises))
	})
	if err != nil {
		return err
	}
	return l.inbox.load()
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketPolicies, bucketPromises, bucketTrail, bucketSealers} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if meta.Get(keyFormat) != nil {
		return nil
	}
	return meta.Put(keyFormat, []byte{format})
}

// Close merges what has gathered and closes the files.
func (l *Ledger) Close() error {
	return errors.Join(l.inbox.merge(), l.inbox.file.Close(), l.main.Close())
}

// A promiseKey names a promise: policy hash and version hash.
type promiseKey struct {
	policy  [32]byte
	version uint64
}

func (k promiseKey) bytes() []byte {
	return binary.BigEndian.AppendUint64(k.policy[:len(k.policy):len(k.policy)], k.version)
}

func promiseKeyOf(b []byte) (k promiseKey) {
	copy(k.policy[:], b)
	k.version = binary.BigEndian.Uint64(b[len(k.policy):])
	return k
}

// promiseBucket returns the bucket of a promise, nil for none.
func promiseBucket(tx *bolt.Tx, k promiseKey) *bolt.Bucket {
	return tx.Bucket(bucketPromises).Bucket(k.bytes())
}

// makePromise returns the bucket of a promise, and makes it if there is none.
func makePromise(tx *bolt.Tx, k promiseKey) (*bolt.Bucket, error) {
	all := tx.Bucket(bucketPromises)
	if b := all.Bucket(k.bytes()); b != nil {
		return b, nil
	}
	b, err := all.CreateBucket(k.bytes())
	if err != nil {
		return nil, err
	}
	for _, name := range [][]byte{bucketRecords, bucketDraws, bucketCohorts, bucketTallies, bucketIssued, bucketSums, bucketHistory} {
		if _, err := b.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// appendTime appends a time in microseconds so that bytes order as times do.
func appendTime(b []byte, at int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(at)^1<<63) }

func timeOf(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }
