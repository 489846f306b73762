package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A Key names a decision. Its receipt states it.
type Key struct {
	Promise, Time int64
	ID            receipt.ID
	Draw          uint64
}

// KeyOf returns the key of a decision under a promise.
func KeyOf(promise int64, r *receipt.Receipt, id receipt.ID) Key {
	return Key{promise, r.Time, id, r.Draw}
}

// Compare orders keys by promise, time and ID.
func (k *Key) Compare(o *Key) int {
	return cmp.Or(cmp.Compare(k.Promise, o.Promise), cmp.Compare(k.Time, o.Time), bytes.Compare(k.ID[:], o.ID[:]))
}

// The columns of a decision that readDecision reads, and where its row is.
const (
	decisionColumns = "decision, promise, time, sealer, number, draw, rank, grp, duplicate, body, readings, sum"
	selectDecisions = "SELECT " + decisionColumns + " FROM decision WHERE "
	whereIs         = "draw = ? AND promise = ? AND rank IN (0, ?) AND sealer = ? AND number = ? AND time = ?"
)

// A slot is what the row of a decision says besides: its number, and what the file knows the promise and
// the receipt by.
//
// Of the decisions with a draw, which are of equal inputs, one has rank 0: the one that counts, if one
// does. Each other has the rank that its receipt's number gives it, as those without a draw have. So one
// index says whether a draw is new, which of its decisions counts, and where a receipt is.
type slot struct {
	decision       int64 // its cohort's number, and its position in the cohort in the order of arrival
	promise        *Promise
	sealer, number int64
	sealed         uint32 // checksum of the sealed receipt
}

// positionBits is how many bits of a row's number say the position in its cohort.
const positionBits = 32

// numberBits is how many bits of a rank say the number of a receipt; those above say its sealer.
const numberBits = 40

// rank is the rank that the receipt's number gives.
func (s *slot) rank() int64 { return s.sealer<<numberBits | s.number }

// slot returns what the file knows a decision by. The sealer is 0, which no row has, where it is not
// stored.
func (tx *Tx) slot(k *Key) (s slot, err error) {
	if s.promise, err = tx.promise(k.Promise); err != nil {
		return s, err
	}
	if k.ID.Number() >= 1<<numberBits {
		return s, fmt.Errorf("receipt %x has number %d, expected less than %d", k.ID, k.ID.Number(), int64(1)<<numberBits)
	}
	s.number = int64(k.ID.Number())
	s.sealer, err = tx.sealer(k.ID.Sealer())
	return s, err
}

// row calls each with the row of a decision, if it is stored. begin names what is done with it.
func (tx *Tx) row(k *Key, begin string, each func(r *row) error) error {
	s, err := tx.slot(k)
	if err != nil || s.sealer == 0 {
		return err
	}
	return tx.query(each, begin+whereIs, int64(k.Draw), k.Promise, s.rank(), s.sealer, s.number, k.Time)
}

// sum returns the checksum of a decision's row. The sealed receipt is in it by its own checksum.
func (s *slot) sum(d *truth.Decision, body, readings []byte) int64 {
	b := append(make([]byte, 0, 512), byte(tableDecision), byte(number(d.Duplicate)))
	c := &d.Receipt
	for _, x := range [...]uint64{uint64(s.decision), uint64(s.promise.Number), uint64(c.Time), uint64(s.sealer), uint64(s.number), c.Draw, c.Group,
		uint64(len(body))} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	b = append(append(b, body...), readings...)
	return int64(crc32.Checksum(b, castagnoli))
}

// readDecision reads a row into d.
func (tx *Tx) readDecision(r *row, d *truth.Decision) (s slot, err error) {
	s.decision = r.int()
	if s.promise, err = tx.promise(r.int()); err != nil {
		return s, err
	}
	c := &d.Receipt
	c.Policy, c.Version, c.Time = s.promise.Policy, s.promise.Version, r.int()
	s.sealer, s.number = r.int(), r.int()
	sealer, err := tx.sealerName(s.sealer)
	if err != nil {
		return s, err
	}
	copy(d.ID[:], sealer[:])
	binary.BigEndian.PutUint64(d.ID[len(sealer):], uint64(s.number))
	c.Draw = r.uint()
	if rank := r.int(); rank != s.rank() && (rank != 0 || c.Draw == 0) {
		return s, errRow
	}
	c.Group, d.Duplicate = r.uint(), r.bool()
	body, readings := r.bytes(), r.bytes()
	if r.check(s.sum(d, body, readings)); r.damaged {
		return s, errRow
	}
	var ok bool
	if s.sealed, ok = decodeBody(body, d); !ok {
		return s, errRow
	}
	if d.Readings, ok = tx.texts.readings(readings, d.Readings[:0]); !ok {
		return s, errRow
	}
	return s, nil
}

// promise returns a promise by its number, which rows of decisions state.
func (tx *Tx) promise(number int64) (*Promise, error) {
	if p, ok := tx.promises[number]; ok {
		return p, nil
	}
	var p Promise
	found, err := tx.one(func(r *row) { p = readPromise(r) }, "SELECT "+promiseColumns+" FROM promise WHERE promise = ?", number)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("promise %d is not stored", number)
	}
	if tx.promises == nil {
		tx.promises = make(map[int64]*Promise)
	}
	tx.promises[number] = &p
	return &p, nil
}

// day is the period of a promise that has none, in microseconds.
const day = 86400e6

// startOf returns when the cohort of a decision begins.
func (p *Promise) startOf(time int64) int64 {
	into := time % p.period()
	if into < 0 {
		into += p.period()
	}
	return time - into
}

func (p *Promise) period() int64 {
	if p.Period <= 0 {
		return day
	}
	return p.Period
}

// Decisions returns the decisions that are stored under some keys, with all their readings.
func (tx *Tx) Decisions(keys []Key) (map[Key]*truth.Decision, error) {
	found := make(map[Key]*truth.Decision)
	for i := range keys {
		d, _, err := tx.decision(&keys[i])
		if err != nil {
			return nil, err
		}
		if d != nil {
			found[keys[i]] = d
		}
	}
	return found, nil
}

// decision returns the decision that is stored under a key; nil for none.
func (tx *Tx) decision(k *Key) (d *truth.Decision, s slot, err error) {
	err = tx.row(k, selectDecisions, func(r *row) (err error) {
		d = &truth.Decision{}
		s, err = tx.readDecision(r, d)
		return err
	})
	return d, s, err
}

// Earliest returns of each draw of a promise the decision that counts; draws that none has are
// absent.
func (tx *Tx) Earliest(promise int64, draws []uint64) (map[uint64]Key, error) {
	found := make(map[uint64]Key)
	for _, draw := range draws {
		if draw == 0 {
			continue
		}
		err := tx.query(func(r *row) error {
			d := &truth.Decision{}
			_, err := tx.readDecision(r, d)
			if err == nil && truth.Reviewed(&d.Receipt) { // others never count
				found[draw] = KeyOf(promise, &d.Receipt, d.ID)
			}
			return err
		}, selectDecisions+"draw = ? AND promise = ? AND rank = 0 AND duplicate = 0", int64(draw), promise)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

const (
	insertDecision = "INSERT INTO decision (" + decisionColumns + ", sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	insertFirst    = insertDecision + " ON CONFLICT DO NOTHING"
)

// InsertFirst stores a decision with its readings and its sealed receipt if nothing is stored of it, nor of
// any other with its draw, and reports whether it did. It makes the decision's cohort if that is new.
func (tx *Tx) InsertFirst(promise int64, d *truth.Decision, sealed []byte) (inserted bool, err error) {
	s, err := tx.free(promise, d)
	if err != nil {
		return false, err
	}
	rank := s.rank()
	if d.Receipt.Draw != 0 {
		rank = 0
	}
	return tx.insert(insertFirst, s, rank, d, sealed)
}

// Insert stores a decision that is not there, of which nothing is to be stored or something with its draw
// is.
func (tx *Tx) Insert(promise int64, d *truth.Decision, sealed []byte) error {
	inserted, err := tx.InsertFirst(promise, d, sealed)
	if inserted || err != nil {
		return err
	}
	s, err := tx.free(promise, d)
	if err != nil {
		return err
	}
	rank, c := s.rank(), &d.Receipt
	if c.Draw != 0 && truth.Reviewed(c) && !d.Duplicate {
		rank = 0
		if _, err := tx.exec("UPDATE decision SET rank = (sealer << "+strconv.Itoa(numberBits)+") | number WHERE draw = ? AND promise = ? AND rank = 0",
			int64(c.Draw), promise); err != nil {
			return err
		}
	}
	_, err = tx.insert(insertDecision, s, rank, d, sealed)
	return err
}

// insert stores a decision in a free slot, and reports whether it did.
func (tx *Tx) insert(query string, s slot, rank int64, d *truth.Decision, sealed []byte) (bool, error) {
	c := &d.Receipt
	body, readings := appendBody(nil, d, sealed), appendReadings(nil, d.Readings)
	n, err := tx.exec(query, s.decision, s.promise.Number, c.Time, s.sealer, s.number, int64(c.Draw), rank, int64(c.Group), number(d.Duplicate),
		body, readings, s.sum(d, body, readings), sealed)
	if err != nil || n == 0 {
		return false, err
	}
	tx.lasts[s.decision>>positionBits] = s.decision
	return true, nil
}

// number returns a bool as databases store it.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// free returns a slot for a decision.
func (tx *Tx) free(promise int64, d *truth.Decision) (slot, error) {
	k := KeyOf(promise, &d.Receipt, d.ID)
	s, err := tx.slot(&k)
	if err == nil && s.sealer == 0 {
		s.sealer, err = tx.addSealer(d.ID.Sealer())
	}
	if err != nil {
		return s, err
	}
	last, err := tx.last(promise, s.promise.startOf(k.Time))
	s.decision = last + 1
	return s, err
}

// last returns the number of the last row of a cohort, or that before its first.
func (tx *Tx) last(promise, start int64) (last int64, err error) {
	name := [2]int64{promise, start}
	number, ok := tx.cohorts[name]
	if ok {
		return tx.lasts[number], nil
	}
	c, err := tx.cohort(promise, start)
	if err == nil && c.number == 0 {
		err = tx.putCohort(&c)
	}
	if err != nil {
		return 0, err
	}
	first := c.number << positionBits
	if _, err := tx.one(func(r *row) { last = r.int() }, "SELECT COALESCE(MAX(decision), ?) FROM decision WHERE decision >= ? AND decision < ?",
		first, first, (c.number+1)<<positionBits); err != nil {
		return 0, err
	}
	if tx.cohorts == nil {
		tx.cohorts, tx.lasts = make(map[[2]int64]int64), make(map[int64]int64)
	}
	tx.cohorts[name], tx.lasts[c.number] = c.number, last
	return last, nil
}

// change has f change a stored decision, and stores its flags and readings.
func (tx *Tx) change(k Key, f func(d *truth.Decision)) error {
	d, s, err := tx.decision(&k)
	if err != nil {
		return err
	}
	if d == nil {
		return fmt.Errorf("decision %x of promise %d is not stored", k.ID, k.Promise)
	}
	f(d)
	body := appendBody(nil, d, nil)
	binary.BigEndian.PutUint32(body[len(body)-4:], s.sealed)
	readings := appendReadings(nil, d.Readings)
	_, err = tx.exec("UPDATE decision SET duplicate = ?, readings = ?, sum = ? WHERE decision = ?", number(d.Duplicate), readings, s.sum(d, body, readings), s.decision)
	return err
}

// PutReadings adds readings to a stored decision. Each replaces the one that truth.Reading.Compare
// says is equal.
func (tx *Tx) PutReadings(k Key, rs []truth.Reading) error {
	return tx.change(k, func(d *truth.Decision) {
		for _, r := range rs {
			place, found := slices.BinarySearchFunc(d.Readings, r, func(a, b truth.Reading) int { return a.Compare(&b) })
			if found {
				d.Readings[place] = r
			} else {
				d.Readings = slices.Insert(d.Readings, place, r)
			}
		}
	})
}

// SetDuplicate marks a stored decision: an equal input was decided before, which counts in its
// place.
func (tx *Tx) SetDuplicate(k Key) error {
	return tx.change(k, func(d *truth.Decision) { d.Duplicate = true })
}

// Scan calls each with the decisions of a promise with from <= time < before, in the order of time
// and ID. The decision is valid until each returns. It holds those of one cohort in memory.
func (tx *Tx) Scan(promise, from, before int64, each func(d *truth.Decision) error) error {
	p, err := tx.promise(promise)
	if err != nil || from >= before {
		return err
	}
	var held inOrder
	return tx.eachCohort(func(c *cohort) error {
		err := tx.eachOf(c, func(r *row) error {
			d := held.next()
			if _, err := tx.readDecision(r, d); err != nil {
				return err
			}
			if d.Receipt.Time >= from && d.Receipt.Time < before {
				held.keep(d)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return held.flush(each)
	}, "promise = ? AND start >= ? AND start < ? ORDER BY start", promise, p.startOf(from), before)
}

// eachOf calls each with the rows of a cohort's decisions, in the order of their arrival.
func (tx *Tx) eachOf(c *cohort, each func(r *row) error) error {
	return tx.query(each, selectDecisions+"decision >= ? AND decision < ? ORDER BY decision", c.number<<positionBits, (c.number+1)<<positionBits)
}

// inOrder holds decisions to sort them. Those of one flush are valid until the next.
type inOrder struct {
	chunk   []truth.Decision // room for more
	ordered []*truth.Decision
}

// next returns room for a decision, which is the same until keep keeps it.
func (o *inOrder) next() *truth.Decision {
	if len(o.chunk) == 0 {
		o.chunk = make([]truth.Decision, 256)
	}
	return &o.chunk[0]
}

func (o *inOrder) keep(d *truth.Decision) {
	o.chunk = o.chunk[1:]
	o.ordered = append(o.ordered, d)
}

func (o *inOrder) flush(each func(d *truth.Decision) error) error {
	slices.SortFunc(o.ordered, func(a, b *truth.Decision) int {
		return cmp.Or(cmp.Compare(a.Receipt.Time, b.Receipt.Time), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for _, d := range o.ordered {
		if err := each(d); err != nil {
			return err
		}
	}
	clear(o.ordered)
	o.ordered = o.ordered[:0]
	return nil
}

// Sealed returns the sealed receipt of a decision; nil for none.
func (tx *Tx) Sealed(k Key) (sealed []byte, err error) {
	err = tx.row(&k, "SELECT sealed, body FROM decision WHERE ", func(r *row) error {
		sealed = r.bytes()
		if body := r.bytes(); len(body) < 4 || binary.BigEndian.Uint32(body[len(body)-4:]) != sealedSum(sealed) {
			return errRow
		}
		return nil
	})
	return sealed, err
}

// A Choice says which decisions are meant: those that match each of its fields that is not 0.
type Choice struct {
	Promise     int64
	Before      int64 // decision time
	Group, Draw uint64
}

func (c *Choice) has(k *Key, r *receipt.Receipt) bool {
	return (c.Promise == 0 || c.Promise == k.Promise) && (c.Before == 0 || k.Time < c.Before) && (c.Group == 0 || c.Group == r.Group) &&
		(c.Draw == 0 || c.Draw == k.Draw)
}

// Chosen calls each with the decisions of a choice. The decision is valid until each returns.
func (tx *Tx) Chosen(c Choice, each func(k Key, d *truth.Decision) error) error {
	var d truth.Decision
	read := func(r *row) error {
		s, err := tx.readDecision(r, &d)
		if err != nil {
			return err
		}
		if k := KeyOf(s.promise.Number, &d.Receipt, d.ID); c.has(&k, &d.Receipt) {
			return each(k, &d)
		}
		return nil
	}
	switch {
	case c.Draw != 0:
		return tx.query(read, selectDecisions+"draw = ?", int64(c.Draw))
	case c.Group != 0:
		return tx.query(read, selectDecisions+"grp = ? AND grp <> 0", int64(c.Group))
	case c.Before != 0:
		return tx.eachCohort(func(k *cohort) error { return tx.eachOf(k, read) }, "start < ? ORDER BY cohort", c.Before)
	}
	return tx.query(read, selectDecisions+"1 = 1")
}

// Delete deletes decisions with their readings. Purge has nothing remain of them.
func (tx *Tx) Delete(keys []Key) error {
	for i := range keys {
		k := &keys[i]
		var decision, rank int64
		if err := tx.row(k, "SELECT decision, rank FROM decision WHERE ", func(r *row) error {
			decision, rank = r.int(), r.int()
			return nil
		}); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM decision WHERE decision = ?", decision); err != nil {
			return err
		}
		if decision == 0 || rank != 0 {
			continue
		}
		if _, err := tx.exec("UPDATE decision SET rank = 0 WHERE decision = (SELECT decision FROM decision WHERE draw = ? AND promise = ? ORDER BY rank LIMIT 1)",
			int64(k.Draw), k.Promise); err != nil {
			return err
		}
	}
	return nil
}
