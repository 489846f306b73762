package store

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A Key is the place of a decision. Its receipt states it.
type Key struct {
	Promise, Time int64
	ID            receipt.ID
}

// The columns of a decision that readDecision reads.
const (
	decisionColumns = "promise, period, sealer, number, time, draw, grp, duplicate, body, readings, sum"
	whereDecision   = " FROM decision WHERE promise = ? AND period = ? AND sealer = ? AND number = ?"
	selectDecision  = "SELECT " + decisionColumns + whereDecision
)

// A place is the key of a decision's row. Decisions lie beside those of their period, by sealer and
// number. New receipts of a sealer lie at the end of its others, so that a batch changes few pages.
type place struct {
	promise                *Promise
	period, sealer, number int64
}

func (p *place) key() []driver.Value {
	return []driver.Value{p.promise.Number, p.period, p.sealer, p.number}
}

// place returns the place of a decision. The sealer is 0, which no row has, where it is not stored.
func (tx *Tx) place(k *Key) (p place, err error) {
	if p.promise, err = tx.promise(k.Promise); err != nil {
		return p, err
	}
	p.period, p.number = p.promise.periodOf(k.Time), int64(k.ID.Number())
	p.sealer, err = tx.sealer(k.ID.Sealer())
	return p, err
}

// sum returns the checksum of a decision's row. The sealed receipt is in it by its own checksum.
func (p *place) sum(d *truth.Decision, body, readings []byte) int64 {
	b := append(make([]byte, 0, 512), byte(tableDecision), byte(number(d.Duplicate)))
	c := &d.Receipt
	for _, x := range [...]uint64{uint64(p.promise.Number), uint64(p.period), uint64(p.sealer), uint64(p.number), uint64(c.Time), c.Draw, c.Group, uint64(len(body))} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	b = append(append(b, body...), readings...)
	return int64(crc32.Checksum(b, castagnoli))
}

// readDecision reads a row into d, and returns its place and the checksum of its sealed receipt.
func (tx *Tx) readDecision(r *row, d *truth.Decision) (p place, sealed uint32, err error) {
	if p.promise, err = tx.promise(r.int()); err != nil {
		return p, 0, err
	}
	p.period, p.sealer, p.number = r.int(), r.int(), r.int()
	sealer, err := tx.sealerName(p.sealer)
	if err != nil {
		return p, 0, err
	}
	copy(d.ID[:], sealer[:])
	binary.BigEndian.PutUint64(d.ID[len(sealer):], uint64(p.number))
	c := &d.Receipt
	c.Policy, c.Version = p.promise.Policy, p.promise.Version
	c.Time, c.Draw, c.Group, d.Duplicate = r.int(), r.uint(), r.uint(), r.bool()
	body, readings := r.bytes(), r.bytes()
	if r.check(p.sum(d, body, readings)); r.damaged {
		return p, 0, errRow
	}
	sealed, ok := decodeBody(body, d)
	if ok {
		d.Readings, ok = tx.texts.readings(readings, d.Readings[:0])
	}
	if !ok {
		return p, 0, errRow
	}
	return p, sealed, nil
}

// keyOf returns the key of a decision that was read.
func (p *place) keyOf(d *truth.Decision) Key { return Key{p.promise.Number, d.Receipt.Time, d.ID} }

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

// periodOf returns the number of the period that a time lies in.
func (p *Promise) periodOf(time int64) int64 {
	length := p.Period
	if length <= 0 {
		length = day
	}
	n := time / length
	if time%length < 0 {
		n--
	}
	return n
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

// A stored decision is one with what its row says besides.
type stored struct {
	place
	sealed uint32 // checksum of the sealed receipt
}

// decision returns the decision that is stored under a key; nil for none.
func (tx *Tx) decision(k *Key) (d *truth.Decision, s stored, err error) {
	if s.place, err = tx.place(k); err != nil || s.sealer == 0 {
		return nil, s, err
	}
	err = tx.query(func(r *row) (err error) {
		d = &truth.Decision{}
		s.place, s.sealed, err = tx.readDecision(r, d)
		return err
	}, selectDecision, s.key()...)
	if err != nil || d == nil || d.Receipt.Time != k.Time {
		return nil, s, err
	}
	return d, s, nil
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
			p, _, err := tx.readDecision(r, d)
			if err == nil && truth.Reviewed(&d.Receipt) { // others never count
				found[draw] = p.keyOf(d)
			}
			return err
		}, "SELECT "+decisionColumns+" FROM decision WHERE draw = ? AND draw <> 0 AND promise = ? AND duplicate = 0", int64(draw), promise)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Insert stores a decision that is not there, with its readings and its sealed receipt.
func (tx *Tx) Insert(promise int64, d *truth.Decision, sealed []byte) error {
	c := &d.Receipt
	p, err := tx.place(&Key{promise, c.Time, d.ID})
	if err != nil {
		return err
	}
	if p.sealer == 0 {
		if p.sealer, err = tx.addSealer(d.ID.Sealer()); err != nil {
			return err
		}
	}
	body, readings := appendBody(nil, d, sealed), appendReadings(nil, d.Readings)
	_, err = tx.exec("INSERT INTO decision ("+decisionColumns+", sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		promise, p.period, p.sealer, p.number, c.Time, int64(c.Draw), int64(c.Group), number(d.Duplicate), body, readings, p.sum(d, body, readings), sealed)
	return err
}

// number returns a bool as databases store it.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
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
	_, err = tx.exec("UPDATE decision SET duplicate = ?, readings = ?, sum = ? WHERE promise = ? AND period = ? AND sealer = ? AND number = ?",
		append([]driver.Value{number(d.Duplicate), readings, s.sum(d, body, readings)}, s.key()...)...)
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
// and ID. The decision is valid until each returns. It holds those of one period in memory.
func (tx *Tx) Scan(promise, from, before int64, each func(d *truth.Decision) error) error {
	p, err := tx.promise(promise)
	if err != nil || from >= before {
		return err
	}
	var (
		held   inOrder
		period int64
	)
	err = tx.query(func(r *row) error {
		d := held.next()
		at, _, err := tx.readDecision(r, d)
		if err != nil {
			return err
		}
		if at.period != period {
			period = at.period
			if err := held.flush(each); err != nil {
				return err
			}
		}
		if d.Receipt.Time >= from && d.Receipt.Time < before {
			held.keep(d)
		}
		return nil
	}, "SELECT "+decisionColumns+" FROM decision WHERE promise = ? AND period >= ? AND period <= ? ORDER BY period, sealer, number",
		promise, p.periodOf(from), p.periodOf(before-1))
	if err != nil {
		return err
	}
	return held.flush(each)
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
	p, err := tx.place(&k)
	if err != nil {
		return nil, err
	}
	err = tx.query(func(r *row) error {
		sealed = r.bytes()
		if body := r.bytes(); len(body) < 4 || binary.BigEndian.Uint32(body[len(body)-4:]) != sealedSum(sealed) {
			return errRow
		}
		return nil
	}, "SELECT sealed, body"+whereDecision, p.key()...)
	return sealed, err
}

// A Choice says which decisions are meant: those that match each of its fields that is not 0.
type Choice struct {
	Promise     int64
	Before      int64 // decision time
	Group, Draw uint64
}

// Chosen calls each with the decisions of a choice, by promise and period. The decision is
// valid until each returns.
func (tx *Tx) Chosen(c Choice, each func(k Key, d *truth.Decision) error) error {
	where, args := "1 = 1", []driver.Value(nil)
	and := func(condition string, arg int64) {
		where += " AND " + condition
		args = append(args, arg)
	}
	if c.Promise != 0 {
		and("promise = ?", c.Promise)
	}
	if c.Before != 0 {
		and("time < ?", c.Before)
	}
	if c.Group != 0 {
		and("grp <> 0 AND grp = ?", int64(c.Group))
	}
	if c.Draw != 0 {
		and("draw <> 0 AND draw = ?", int64(c.Draw))
	}
	var d truth.Decision
	return tx.query(func(r *row) error {
		p, _, err := tx.readDecision(r, &d)
		if err != nil {
			return err
		}
		return each(p.keyOf(&d), &d)
	}, "SELECT "+decisionColumns+" FROM decision WHERE "+where+" ORDER BY promise, period, sealer, number", args...)
}

// Delete deletes decisions with their readings. Purge has nothing remain of them.
func (tx *Tx) Delete(keys []Key) error {
	for i := range keys {
		p, err := tx.place(&keys[i])
		if err != nil {
			return err
		}
		if _, err := tx.exec("DELETE"+whereDecision, p.key()...); err != nil {
			return err
		}
	}
	return nil
}
