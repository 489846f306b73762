package ledger

import (
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A store is what the parts of a ledger share. It needs no lock: its fields stay as they are, and what
// they hold guards itself.
type store struct {
	options  Options
	main     *bolt.DB // records, promises, trail
	policies policies
	changed  changes
	told     told
}

func newStore(o Options, main *bolt.DB) *store {
	return &store{options: o, main: main, policies: policies{byHash: make(map[[32]byte]*terms)},
		changed: changes{cohorts: make(map[promiseKey]map[int64]bool)},
		told:    told{through: make(map[receipt.SealerID]uint64)}}
}

func (st *store) now() time.Time { return st.options.Now() }
