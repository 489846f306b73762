package store

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// The flags of a stored decision.
const (
	flagSettled = 1 << iota
	flagDegenerate
	flagReview
	flagSampled
)

const flagSawModel = 0x80 // in the byte of a reading's kind

// appendBody appends what a decision's columns do not say of its receipt, and the checksum of its
// sealed one, which reading a cohort leaves aside.
func appendBody(b []byte, d *truth.Decision, sealed []byte) []byte {
	c := &d.Receipt
	flags := byte(0)
	for i, set := range [...]bool{c.Settled, c.Degenerate, c.Review, d.Sampled} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags, byte(c.Stratum), c.Action, c.Reason, c.Gate)
	b = binary.AppendUvarint(b, uint64(c.Predicted))
	b = binary.AppendUvarint(b, uint64(c.Passes))
	for _, x := range c.Scores {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(x))
	}
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(c.Risk))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(c.Propensity))
	said := c.Slices[:]
	for len(said) > 0 && said[len(said)-1] == 0 {
		said = said[:len(said)-1]
	}
	b = append(b, byte(len(said)))
	for _, s := range said {
		b = binary.BigEndian.AppendUint16(b, s)
	}
	return binary.BigEndian.AppendUint32(b, sealedSum(sealed))
}

func sealedSum(sealed []byte) uint32 { return crc32.Checksum(sealed, castagnoli) }

// decodeBody reads what appendBody wrote, and returns the checksum of the sealed receipt.
func decodeBody(b []byte, d *truth.Decision) (sealed uint32, ok bool) {
	r := reader{b: b}
	c := &d.Receipt
	flags := r.byte()
	c.Settled, c.Degenerate, c.Review, d.Sampled = flags&flagSettled != 0, flags&flagDegenerate != 0, flags&flagReview != 0, flags&flagSampled != 0
	c.Stratum, c.Action, c.Reason, c.Gate = receipt.Stratum(r.byte()), r.byte(), r.byte(), r.byte()
	c.Predicted, c.Passes = uint32(r.uvarint()), uint32(r.uvarint())
	for i := range c.Scores {
		c.Scores[i] = math.Float32frombits(r.uint32())
	}
	c.Risk, c.Propensity = math.Float32frombits(r.uint32()), math.Float32frombits(r.uint32())
	n := int(r.byte())
	if n > len(c.Slices) {
		return 0, false
	}
	c.Slices = [len(c.Slices)]uint16{}
	for i := range n {
		c.Slices[i] = r.uint16()
	}
	sealed = r.uint32()
	return sealed, !r.fault && len(r.b) == 0 && c.Stratum < receipt.Strata
}

// appendReadings appends the readings of a decision.
func appendReadings(b []byte, rs []truth.Reading) []byte {
	b = binary.AppendUvarint(b, uint64(len(rs)))
	for i := range rs {
		r := &rs[i]
		kind := byte(r.Kind)
		if r.SawModel {
			kind |= flagSawModel
		}
		b = append(b, kind)
		b = binary.AppendVarint(b, int64(r.Truth))
		b = binary.AppendVarint(b, r.At.UnixMicro())
		b = binary.AppendVarint(b, r.Reported.UnixMicro())
		b = append(binary.AppendUvarint(b, uint64(len(r.Source))), r.Source...)
		b = append(binary.AppendUvarint(b, uint64(len(r.By))), r.By...)
	}
	return b
}

// texts holds each of the few names that readings repeat once.
type texts map[string]string

func (t *texts) text(b []byte) string {
	if s, ok := (*t)[string(b)]; ok {
		return s
	}
	if *t == nil || len(*t) == 1<<12 {
		*t = make(texts)
	}
	s := string(b)
	(*t)[s] = s
	return s
}

// readings appends the readings that appendReadings wrote to rs.
func (t *texts) readings(b []byte, rs []truth.Reading) (_ []truth.Reading, ok bool) {
	r := reader{b: b}
	n := r.uvarint()
	if n > uint64(len(b)) {
		return nil, false
	}
	rs = slices.Grow(rs, int(n))
	for range n {
		kind := r.byte()
		rs = append(rs, truth.Reading{Kind: truth.Kind(kind &^ flagSawModel), SawModel: kind&flagSawModel != 0, Truth: int(r.varint()),
			At: time.UnixMicro(r.varint()).UTC(), Reported: time.UnixMicro(r.varint()).UTC(), Source: t.text(r.bytes()), By: t.text(r.bytes())})
	}
	return rs, !r.fault && len(r.b) == 0
}

// A reader reads fields one after the other. After a fault it reads zeros.
type reader struct {
	b     []byte
	fault bool
}

func (r *reader) next(n int) []byte {
	if len(r.b) < n {
		r.fault, r.b = true, nil
		return make([]byte, n)
	}
	next := r.b[:n]
	r.b = r.b[n:]
	return next
}

func (r *reader) byte() byte     { return r.next(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.next(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.next(4)) }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.fault, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

// bytes returns bytes that follow their number.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fault, r.b = true, nil
		return nil
	}
	return r.next(int(n))
}
