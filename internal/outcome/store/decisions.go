package store

import (
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

// decisionSum returns the checksum of a decision's row. The sealed receipt is in it by its own checksum.
func decisionSum(k *Key, draw, group uint64, duplicate bool, body, readings []byte) int64 {
	b := append(make([]byte, 0, 512), byte(tableDecision))
	for _, x := range [...]uint64{uint64(k.Promise), uint64(k.Time), draw, group, uint64(len(body))} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	b = append(b, k.ID[:]...)
	if duplicate {
		b = append(b, 1)
	}
	b = append(append(b, body...), readings...)
	return int64(crc32.Checksum(b, castagnoli))
}

// The columns of a decision that scanDecision reads.
const decisionColumns = "promise, time, id, draw, grp, duplicate, body, readings, sum"

// readDecision reads a decision into d, and returns its key and the checksum of its sealed receipt.
func readDecision(r *row, d *truth.Decision) (k Key, sealed uint32) {
	k.Promise, k.Time = r.int(), r.int()
	id := r.bytes()
	if len(id) != len(k.ID) {
		r.damaged = true
		return k, 0
	}
	copy(k.ID[:], id)
	d.ID, d.Receipt.Time = k.ID, k.Time
	d.Receipt.Draw, d.Receipt.Group, d.Duplicate = r.uint(), r.uint(), r.bool()
	body, readings := r.bytes(), r.bytes()
	r.check(decisionSum(&k, d.Receipt.Draw, d.Receipt.Group, d.Duplicate, body, readings))
	sealed, whole := decodeBody(body, d)
	d.Readings, r.damaged = readingsOf(readings, d.Readings[:0], r.damaged || !whole)
	return k, sealed
}

func readingsOf(b []byte, rs []truth.Reading, damaged bool) ([]truth.Reading, bool) {
	if damaged {
		return nil, true
	}
	rs, whole := decodeReadings(b, rs)
	return rs, !whole
}

// promiseOf gives decisions the policy and the version of their promise.
type promiseOf map[int64]*Promise

func (tx *Tx) promiseOf() (promiseOf, error) {
	if tx.promises != nil {
		return tx.promises, nil
	}
	all, err := tx.Promises()
	if err != nil {
		return nil, err
	}
	of := make(promiseOf, len(all))
	for i := range all {
		of[all[i].Number] = &all[i]
	}
	tx.promises = of
	return of, nil
}

func (of promiseOf) complete(k *Key, d *truth.Decision) error {
	p, ok := of[k.Promise]
	if !ok {
		return fmt.Errorf("%w: a decision has no promise: put a backup back: ckd outcomes restore", ErrDamaged)
	}
	d.Receipt.Policy, d.Receipt.Version = p.Policy, p.Version
	return nil
}

// Decisions returns the decisions that are stored under some keys, with all their readings.
func (tx *Tx) Decisions(keys []Key) (map[Key]*truth.Decision, error) {
	of, err := tx.promiseOf()
	if err != nil {
		return nil, err
	}
	found := make(map[Key]*truth.Decision, len(keys))
	for i := range keys {
		k := &keys[i]
		err := tx.query(func(r *row) error {
			d := &truth.Decision{}
			if readDecision(r, d); r.damaged {
				return errRow
			}
			found[*k] = d
			return of.complete(k, d)
		}, "SELECT "+decisionColumns+" FROM decision WHERE promise = ? AND time = ? AND id = ?", k.Promise, k.Time, k.ID[:])
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Earliest returns of each draw of a promise the decision that counts; draws that none has are absent.
func (tx *Tx) Earliest(promise int64, draws []uint64) (map[uint64]Key, error) {
	found := make(map[uint64]Key)
	for _, draw := range draws {
		if draw == 0 {
			continue
		}
		err := tx.query(func(r *row) error {
			d := &truth.Decision{}
			k, _ := readDecision(r, d)
			if r.damaged {
				return errRow
			}
			if truth.Reviewed(&d.Receipt) { // others never count
				found[draw] = k
			}
			return nil
		}, "SELECT "+decisionColumns+" FROM decision WHERE draw = ? AND draw <> 0 AND promise = ? AND duplicate = 0", int64(draw), promise)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Insert stores a decision that is not there, with its readings and its sealed receipt. Batches go in
// faster in the order of their keys.
func (tx *Tx) Insert(promise int64, d *truth.Decision, sealed []byte) error {
	c := &d.Receipt
	k := Key{promise, c.Time, d.ID}
	body, readings := appendBody(nil, d, sealed), appendReadings(nil, d.Readings)
	duplicate := int64(0)
	if d.Duplicate {
		duplicate = 1
	}
	_, err := tx.exec("INSERT INTO decision ("+decisionColumns+", sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		promise, c.Time, k.ID[:], int64(c.Draw), int64(c.Group), duplicate, body, readings,
		decisionSum(&k, c.Draw, c.Group, d.Duplicate, body, readings), sealed)
	return err
}

// change reads a decision, has f change it, and stores its flags and readings.
func (tx *Tx) change(k Key, f func(d *truth.Decision)) error {
	d := &truth.Decision{}
	var sealed uint32
	found, err := tx.one(func(r *row) { _, sealed = readDecision(r, d) },
		"SELECT "+decisionColumns+" FROM decision WHERE promise = ? AND time = ? AND id = ?", k.Promise, k.Time, k.ID[:])
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("decision %x of promise %d is not stored", k.ID, k.Promise)
	}
	f(d)
	body := appendBody(nil, d, nil)
	binary.BigEndian.PutUint32(body[len(body)-4:], sealed)
	readings := appendReadings(nil, d.Readings)
	duplicate := int64(0)
	if d.Duplicate {
		duplicate = 1
	}
	_, err = tx.exec("UPDATE decision SET duplicate = ?, readings = ?, sum = ? WHERE promise = ? AND time = ? AND id = ?",
		duplicate, readings, decisionSum(&k, d.Receipt.Draw, d.Receipt.Group, d.Duplicate, body, readings), k.Promise, k.Time, k.ID[:])
	return err
}

// PutReadings adds readings to a stored decision. Each replaces the one that truth.Reading.Compare says
// is equal.
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

// SetDuplicate marks a stored decision: an equal input was decided before, which counts in its place.
func (tx *Tx) SetDuplicate(k Key) error {
	return tx.change(k, func(d *truth.Decision) { d.Duplicate = true })
}

// Scan calls each with the decisions of a promise with from <= time < before, in the order of time and
// ID. The decision is valid until each returns.
func (tx *Tx) Scan(promise, from, before int64, each func(d *truth.Decision) error) error {
	of, err := tx.promiseOf()
	if err != nil {
		return err
	}
	var d truth.Decision
	return tx.query(func(r *row) error {
		k, _ := readDecision(r, &d)
		if r.damaged {
			return errRow
		}
		if err := of.complete(&k, &d); err != nil {
			return err
		}
		return each(&d)
	}, "SELECT "+decisionColumns+" FROM decision WHERE promise = ? AND time >= ? AND time < ? ORDER BY time, id", promise, from, before)
}

// Sealed returns the sealed receipt of a decision; nil for none.
func (tx *Tx) Sealed(k Key) (sealed []byte, err error) {
	_, err = tx.one(func(r *row) {
		sealed = r.bytes()
		body := r.bytes()
		r.damaged = r.damaged || len(body) < 4 || binary.BigEndian.Uint32(body[len(body)-4:]) != sealedSum(sealed)
	}, "SELECT sealed, body FROM decision WHERE promise = ? AND time = ? AND id = ?", k.Promise, k.Time, k.ID[:])
	return sealed, err
}

// A Choice says which decisions are meant: those that match each of its fields that is not 0.
type Choice struct {
	Promise     int64
	Before      int64 // decision time
	Group, Draw uint64
}

// Chosen calls each with the decisions of a choice, in the order of promise, time and ID. The decision is
// valid until each returns.
func (tx *Tx) Chosen(c Choice, each func(k Key, d *truth.Decision) error) error {
	of, err := tx.promiseOf()
	if err != nil {
		return err
	}
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
		k, _ := readDecision(r, &d)
		if r.damaged {
			return errRow
		}
		if err := of.complete(&k, &d); err != nil {
			return err
		}
		return each(k, &d)
	}, "SELECT "+decisionColumns+" FROM decision WHERE "+where+" ORDER BY promise, time, id", args...)
}

// Delete deletes decisions with their readings. Purge has nothing remain of them.
func (tx *Tx) Delete(keys []Key) error {
	for i := range keys {
		k := &keys[i]
		if _, err := tx.exec("DELETE FROM decision WHERE promise = ? AND time = ? AND id = ?", k.Promise, k.Time, k.ID[:]); err != nil {
			return err
		}
	}
	return nil
}
