package ledger

import (
	"encoding/binary"
	"maps"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

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

func (t *told) load(b *bolt.Bucket) error {
	return b.ForEach(func(sealer, count []byte) error {
		if len(sealer) != len(receipt.SealerID{}) || len(count) != 8 {
			return errRecord
		}
		t.through[receipt.SealerID(sealer)] = binary.BigEndian.Uint64(count)
		return nil
	})
}

// put stores the numbers that are higher than before, and returns them for set.
func (t *told) put(tx *bolt.Tx, sealed []Sealed) (map[receipt.SealerID]uint64, error) {
	higher := make(map[receipt.SealerID]uint64)
	for _, s := range sealed {
		if s.Count < t.last(s.Sealer) {
			continue
		}
		higher[s.Sealer] = s.Count
		if err := tx.Bucket(bucketSealers).Put(s.Sealer[:], uint64Key(s.Count)); err != nil {
			return nil, err
		}
	}
	return higher, nil
}

// set takes over the numbers that put has stored.
func (t *told) set(higher map[receipt.SealerID]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.through, higher)
}

// untold counts the outcomes of one sealer and cohort that were not told.
type untold struct {
	// Through is up to which number they were told.
	Through uint64 `json:"through"`
	// Count counts the others; First and Last are the numbers of the first and the last of these.
	Count uint64 `json:"count"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (u *untold) observe(number, through uint64) {
	if u.Count == 0 {
		u.Through = through // more may be told while a tally is made: it is stale then
	}
	if u.Count == 0 || number < u.First {
		u.First = number
	}
	u.Count++
	u.Last = max(u.Last, number)
}

// missing returns a lower limit of the receipts that were issued and did not arrive: the numbers between
// them. Some may be of other policies, or need no review.
func (u *untold) missing() uint64 {
	return u.Last - min(u.First+u.Count, u.Last+1) + 1
}

// stale reports whether more was told since the tally was made.
func (t *tally) stale(told *told) bool {
	for sealer, u := range t.Sealers {
		if told.last(sealer) != u.Through {
			return true
		}
	}
	return false
}
