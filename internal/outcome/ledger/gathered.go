package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

var bucketBatches = []byte("batches") // in inbox.db, sequence and piece: part of a batch

const (
	// mergeAt is how many decisions gather before a merge begins by itself: as many as make the
	// pages of ledger.db that a merge rewrites worth it.
	mergeAt = 50_000
	// mostGathered is how many may wait for a merge: Report waits then.
	mostGathered = 4 * mergeAt
	// pieceSize is the size of the parts in which a batch is stored, in bytes. Several fill a page of
	// inbox.db, so that a commit writes little more than its own batch.
	pieceSize = 960
)

// gathered holds what batches said since the last merge.
type gathered struct {
	promises map[promiseKey]*gatheredPromise
	records  int
	last     uint64 // sequence of the last batch
}

type gatheredPromise struct {
	records map[recordKey]*Record
	draws   map[uint64]int64 // the time of the earliest decision
}

func newGathered() *gathered { return &gathered{promises: make(map[promiseKey]*gatheredPromise)} }

func (g *gathered) promise(k promiseKey) *gatheredPromise {
	p := g.promises[k]
	if p == nil {
		p = &gatheredPromise{records: make(map[recordKey]*Record), draws: make(map[uint64]int64)}
		g.promises[k] = p
	}
	return p
}

// set replaces the gathered form of a record.
func (g *gathered) set(p promiseKey, key recordKey, r *Record) {
	pending := g.promise(p)
	if _, had := pending.records[key]; !had {
		g.records++
	}
	pending.records[key] = r
	if d := r.Receipt.Draw; d != 0 && reviewed(&r.Receipt) {
		if first, known := pending.draws[d]; !known || r.Receipt.Time < first {
			pending.draws[d] = r.Receipt.Time
		}
	}
}

// A batch is stored as its records, each with its promise, time, ID and length.
func appendBatched(b []byte, r *Record) []byte {
	b = append(b, r.Receipt.Policy[:]...)
	b = binary.BigEndian.AppendUint64(b, r.Receipt.Version)
	key := r.key()
	b = append(b, key[:]...)
	body := r.append(nil)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

func (g *gathered) load(batch []byte) error {
	d := reader{b: batch}
	for len(d.b) > 0 {
		head := d.next(32 + 8)
		if d.fault {
			return errRecord
		}
		p := promiseKeyOf(head)
		key := d.next(len(recordKey{}))
		body := d.next(int(d.uint32()))
		if d.fault {
			return errRecord
		}
		r, err := decodeRecord(p, key, body)
		if err != nil {
			return err
		}
		g.set(p, r.key(), r)
	}
	return nil
}

// An inbox holds the outcomes that ledger.db does not have yet. Every acknowledged outcome that was not
// deleted is in ledger.db, in open or in merging, and until it is in ledger.db its batch is in inbox.db.
// What open says of a decision is newer than what merging says, and that than what ledger.db says.
//
// Nobody who holds mu waits for mergeMu or writes to ledger.db: Report goes on during a merge.
type inbox struct {
	*store
	file *bolt.DB // inbox.db: batches since the last merge

	mergeMu sync.Mutex // one merge at a time; taken before mu

	mu         sync.Mutex // guards what follows
	open       *gathered  // acknowledged, not yet being merged
	merging    *gathered  // being merged; nil between merges
	deleted    int64      // decisions before this time, in microseconds, were deleted; it only grows
	merged     *sync.Cond // on mu: a merge has ended
	mergeAsked bool       // a merge in the background has begun, or is about to
}

func newInbox(st *store, file *bolt.DB) *inbox {
	box := &inbox{store: st, file: file, open: newGathered()}
	box.merged = sync.NewCond(&box.mu)
	return box
}

// refuseBefore refuses outcomes of decisions before a time from now on, and returns the time before
// which they are refused: what was refused stays so.
func (box *inbox) refuseBefore(limit int64) int64 {
	box.mu.Lock()
	defer box.mu.Unlock()
	box.deleted = max(limit, box.deleted)
	return box.deleted
}

// refusedBefore returns the time before which outcomes were deleted.
func (box *inbox) refusedBefore() int64 {
	box.mu.Lock()
	defer box.mu.Unlock()
	return box.deleted
}

// load reads the batches that no merge has taken.
func (box *inbox) load() error {
	read := func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketBatches)
		if b == nil {
			return nil
		}
		box.open.last = b.Sequence()
		var batch []byte
		err := b.ForEach(func(key, piece []byte) error {
			if binary.BigEndian.Uint32(key[8:]) == 0 {
				if err := box.open.load(batch); err != nil {
					return err
				}
				batch = batch[:0]
			}
			batch = append(batch, piece...)
			return nil
		})
		if err != nil {
			return err
		}
		return box.open.load(batch)
	}
	err := box.file.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketBatches)
		return err
	})
	if err != nil {
		return err
	}
	return box.file.View(read)
}

// accept stores a batch durably, and then counts it among what has gathered. The caller holds mu.
func (box *inbox) accept(batch []byte, records []*Record) error {
	var last uint64
	err := box.file.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketBatches)
		b.FillPercent = 1 // sequences only grow
		var err error
		if last, err = b.NextSequence(); err != nil {
			return err
		}
		for piece := uint32(0); len(batch) > 0; piece++ {
			n := min(pieceSize, len(batch))
			key := binary.BigEndian.AppendUint32(uint64Key(last), piece)
			if err := b.Put(key, batch[:n]); err != nil {
				return err
			}
			batch = batch[n:]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the outcomes are not stored: %w", err)
	}
	box.open.last = last
	for _, r := range records {
		box.open.set(promiseKey{r.Receipt.Policy, r.Receipt.Version}, r.key(), r)
	}
	return nil
}

// merge sorts what has gathered into the records, and then forgets the batches. A crash in between
// merges them again, which changes nothing.
func (box *inbox) merge() error {
	box.mergeMu.Lock()
	defer box.mergeMu.Unlock()
	box.mu.Lock()
	if box.open.records == 0 {
		box.mu.Unlock()
		return nil
	}
	g := box.open
	box.merging, box.open = g, newGathered()
	box.open.last = g.last
	deleted := box.deleted
	box.mu.Unlock()

	changed, err := box.mergeInto(g, deleted)

	box.mu.Lock()
	defer box.mu.Unlock()
	defer box.merged.Broadcast()
	box.merging = nil
	box.changed.mark(changed)
	if err != nil { // keep what could not be merged; what came since holds it already where it is of the same decision
		for p, in := range box.open.promises {
			for key, r := range in.records {
				g.set(p, key, r)
			}
		}
		g.last = box.open.last
		box.open = g
		return fmt.Errorf("outcomes are kept, but not yet merged: %w", err)
	}
	return nil
}

// mergeInto writes to ledger.db, and returns the cohorts that changed. These are stored even if
// forgetting the batches fails after that.
func (box *inbox) mergeInto(g *gathered, deleted int64) (map[promiseKey]map[int64]bool, error) {
	changed := make(map[promiseKey]map[int64]bool)
	err := box.main.Update(func(tx *bolt.Tx) error {
		for p, pending := range g.promises {
			m, err := box.newMerger(tx, p, deleted)
			if err != nil {
				return err
			}
			keys := make([]recordKey, 0, len(pending.records))
			for key := range pending.records {
				keys = append(keys, key)
			}
			slices.SortFunc(keys, func(a, b recordKey) int { return a.compare(&b) })
			for i := range keys {
				if err := m.put(&keys[i], pending.records[keys[i]]); err != nil {
					return err
				}
			}
			if err := m.finish(); err != nil {
				return err
			}
			changed[p] = m.touched
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return changed, box.file.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketBatches)
		var merged [][]byte
		c := b.Cursor()
		for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) <= g.last; k, _ = c.Next() {
			merged = append(merged, k)
		}
		for _, k := range slices.Backward(merged) { // the last first: what is left need not move up
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// A merger writes the records of one promise.
type merger struct {
	p       promiseKey
	bucket  *bolt.Bucket
	records *bolt.Bucket
	draws   *bolt.Bucket
	grid    grid
	drawn   map[uint64]int64 // changed draws: the time of the earliest decision
	deleted int64            // decisions before this time are not to come back
	touched map[int64]bool   // begins of cohorts
}

func (box *inbox) newMerger(tx *bolt.Tx, p promiseKey, deleted int64) (*merger, error) {
	b, err := makePromise(tx, p)
	if err != nil {
		return nil, err
	}
	info, err := box.promiseInfo(b, p)
	if err != nil {
		return nil, err
	}
	m := &merger{p: p, bucket: b, records: b.Bucket(bucketRecords), draws: b.Bucket(bucketDraws), grid: info.grid(),
		drawn: make(map[uint64]int64), deleted: deleted, touched: make(map[int64]bool)}
	m.records.FillPercent = 0.9 // decision times grow, on the whole
	return m, nil
}

// put writes a record, unless nothing of it is new.
func (m *merger) put(key *recordKey, r *Record) error {
	if key.time() < m.deleted {
		return nil
	}
	stored := *r
	value := m.records.Get(key[:])
	switch {
	case value != nil:
		have, err := decodeRecord(m.p, key[:], value)
		if err != nil {
			return err
		}
		stored.Duplicate, stored.Sampled = have.Duplicate, have.Sampled
		if slices.Equal(stored.Readings, have.Readings) {
			return nil
		}
	case r.Receipt.Draw != 0 && reviewed(&r.Receipt):
		var err error
		if stored.Duplicate, err = m.draw(key, r.Receipt.Draw); err != nil {
			return err
		}
	}
	m.touch(key.time())
	return m.records.Put(key[:], stored.append(nil))
}

func (m *merger) touch(at int64) { m.touched[m.grid.start(at)] = true }

// draw enters a new record's draw, and returns whether an equal input was decided before. One that
// was decided later no longer counts.
func (m *merger) draw(key *recordKey, draw uint64) (duplicate bool, err error) {
	drawn, known := m.drawn[draw]
	if !known {
		if first := m.draws.Get(uint64Key(draw)); first != nil {
			drawn, known = timeOf(first), true
		}
	}
	if known {
		if drawn < key.time() {
			return true, nil
		}
		other, r, err := m.counting(drawn, draw)
		if err != nil {
			return false, err
		}
		if other != nil { // else its outcome was deleted
			if other.compare(key) < 0 {
				return true, nil
			}
			r.Duplicate = true
			m.touch(drawn)
			if err := m.records.Put(other[:], r.append(nil)); err != nil {
				return false, err
			}
		}
	}
	m.drawn[draw] = key.time()
	return false, nil
}

// counting returns the record with a decision time and a draw that counts.
func (m *merger) counting(since int64, draw uint64) (*recordKey, *Record, error) {
	c := m.records.Cursor()
	from := keyOf(since, receipt.ID{})
	for k, v := c.Seek(from[:]); k != nil && timeOf(k) == since; k, v = c.Next() {
		r, err := decodeRecord(m.p, k, v)
		if err != nil {
			return nil, nil, err
		}
		if r.Receipt.Draw == draw && !r.Duplicate {
			key := recordKey(k)
			return &key, r, nil
		}
	}
	return nil, nil, nil
}

// finish writes the draws, in order, and counts up the cohorts that changed.
func (m *merger) finish() error {
	for _, draw := range sortedKeys(m.drawn) {
		if err := m.draws.Put(uint64Key(draw), appendTime(nil, m.drawn[draw])); err != nil {
			return err
		}
	}
	for _, start := range sortedKeys(m.touched) {
		c, err := readCohort(m.bucket, start)
		if err != nil {
			return err
		}
		c.Changes++
		if err := c.write(m.bucket); err != nil {
			return err
		}
	}
	return nil
}
