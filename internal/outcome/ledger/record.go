package ledger

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A Record is a decision with all that was reported of it.
type Record struct {
	ID      receipt.ID
	Receipt receipt.Receipt
	// Duplicate says that an equal input was decided before, which counts in its place.
	Duplicate bool
	// Sampled says that a second reading is wanted whatever the first says.
	Sampled bool
	// Readings holds every reading ever reported, replaced ones included, ordered by source, kind
	// and time.
	Readings []Said
}

// Said is one reading of a decision.
type Said struct {
	Source   string
	Kind     Kind
	Truth    int // position of the class
	SawModel bool
	At       time.Time // of the reading
	By       string    // who reported it
	Reported time.Time // when it was first reported
}

// compare orders readings by source and kind; of one source and kind the last one stands.
func (s *Said) compare(o *Said) int {
	return cmp.Or(cmp.Compare(s.Source, o.Source), cmp.Compare(s.Kind, o.Kind), s.At.Compare(o.At), cmp.Compare(s.Truth, o.Truth),
		compareBool(s.SawModel, o.SawModel))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// mostReadings bounds the readings of one decision, corrections included.
const mostReadings = 64

// add adds a reading, and returns whether that changed the record. Of equal readings the one that
// was reported first stays. Adding is commutative: the readings are a set.
func (r *Record) add(s Said) bool {
	place, found := slices.BinarySearchFunc(r.Readings, s, func(a, b Said) int { return a.compare(&b) })
	if !found {
		r.Readings = slices.Insert(slices.Clip(r.Readings), place, s)
		return true
	}
	have := r.Readings[place]
	if c := s.Reported.Compare(have.Reported); c > 0 || c == 0 && s.By >= have.By {
		return false
	}
	r.Readings = slices.Clone(r.Readings)
	r.Readings[place] = s
	return true
}

// has reports whether the record holds a reading, whenever it was reported.
func (r *Record) has(s *Said) bool {
	return slices.ContainsFunc(r.Readings, func(have Said) bool { return have.compare(s) == 0 })
}

// A recordKey is the place of a record in its promise: decision time and ID, in the order in which
// evidence takes them.
type recordKey [8 + len(receipt.ID{})]byte

func keyOf(at int64, id receipt.ID) (k recordKey) {
	copy(k[copy(k[:], appendTime(nil, at)):], id[:])
	return k
}

func (k *recordKey) time() int64 { return timeOf(k[:]) }

func (k *recordKey) compare(o *recordKey) int { return bytes.Compare(k[:], o[:]) }

func (r *Record) key() recordKey { return keyOf(r.Receipt.Time, r.ID) }

// The flags of a stored record.
const (
	flagSettled = 1 << iota
	flagDegenerate
	flagReview
	flagDuplicate
	flagSampled
)

const flagSawModel = 0x80 // in the byte of a reading's kind

var errRecord = errors.New("a record of the ledger is damaged")

// append appends the record without what its key and its promise say.
func (r *Record) append(b []byte) []byte {
	c := &r.Receipt
	flags := byte(0)
	for i, set := range [...]bool{c.Settled, c.Degenerate, c.Review, r.Duplicate, r.Sampled} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, format, flags, byte(c.Stratum), c.Action, c.Reason, c.Gate)
	b = binary.AppendUvarint(b, uint64(c.Predicted))
	b = binary.AppendUvarint(b, uint64(c.Passes))
	for _, x := range c.Scores {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(x))
	}
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(c.Risk))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(c.Propensity))
	b = binary.BigEndian.AppendUint64(b, c.Draw)
	b = binary.BigEndian.AppendUint64(b, c.Group)
	for _, s := range c.Slices {
		b = binary.BigEndian.AppendUint16(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Readings)))
	for i := range r.Readings {
		b = r.Readings[i].append(b)
	}
	return b
}

func (s *Said) append(b []byte) []byte {
	kind := byte(s.Kind)
	if s.SawModel {
		kind |= flagSawModel
	}
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(s.Truth))
	b = binary.AppendVarint(b, s.At.UnixMicro())
	b = binary.AppendVarint(b, s.Reported.UnixMicro())
	b = appendText(b, s.Source)
	return appendText(b, s.By)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeRecord returns the record that stands at a key of a promise.
func decodeRecord(p promiseKey, key, value []byte) (*Record, error) {
	r := &Record{}
	if len(key) != len(recordKey{}) {
		return nil, errRecord
	}
	d := reader{b: value}
	if d.byte() != format {
		return nil, errRecord
	}
	c := &r.Receipt
	c.Policy, c.Version, c.Time = p.policy, p.version, timeOf(key)
	copy(r.ID[:], key[8:])
	flags := d.byte()
	c.Settled, c.Degenerate, c.Review = flags&flagSettled != 0, flags&flagDegenerate != 0, flags&flagReview != 0
	r.Duplicate, r.Sampled = flags&flagDuplicate != 0, flags&flagSampled != 0
	c.Stratum, c.Action, c.Reason, c.Gate = receipt.Stratum(d.byte()), d.byte(), d.byte(), d.byte()
	c.Predicted, c.Passes = uint32(d.uvarint()), uint32(d.uvarint())
	for i := range c.Scores {
		c.Scores[i] = math.Float32frombits(d.uint32())
	}
	c.Risk, c.Propensity = math.Float32frombits(d.uint32()), math.Float32frombits(d.uint32())
	c.Draw, c.Group = d.uint64(), d.uint64()
	for i := range c.Slices {
		c.Slices[i] = d.uint16()
	}
	n := d.uvarint()
	if n > mostReadings {
		return nil, errRecord
	}
	r.Readings = make([]Said, n)
	for i := range r.Readings {
		r.Readings[i] = d.said()
	}
	if d.fault || len(d.b) > 0 {
		return nil, errRecord
	}
	return r, nil
}

// A reader reads fields one after the other. After a fault it reads zeros.
type reader struct {
	b     []byte
	fault bool
}

func (d *reader) next(n int) []byte {
	if n < 0 || len(d.b) < n {
		d.fault, d.b = true, nil
		return make([]byte, max(0, min(n, 8)))
	}
	next := d.b[:n]
	d.b = d.b[n:]
	return next
}

func (d *reader) byte() byte     { return d.next(1)[0] }
func (d *reader) uint16() uint16 { return binary.BigEndian.Uint16(d.next(2)) }
func (d *reader) uint32() uint32 { return binary.BigEndian.Uint32(d.next(4)) }
func (d *reader) uint64() uint64 { return binary.BigEndian.Uint64(d.next(8)) }

func (d *reader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fault, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fault, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) text() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fault, d.b = true, nil
		return ""
	}
	return string(d.next(int(n)))
}

func (d *reader) said() (s Said) {
	kind := d.byte()
	s.Kind, s.SawModel = Kind(kind&^flagSawModel), kind&flagSawModel != 0
	s.Truth = int(min(d.uvarint(), math.MaxUint16))
	s.At, s.Reported = time.UnixMicro(d.varint()).UTC(), time.UnixMicro(d.varint()).UTC()
	s.Source, s.By = d.text(), d.text()
	return s
}
