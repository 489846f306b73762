package client

import (
	"encoding/binary"
	"iter"
	"math"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	valueBytes = 4
	// blockOverhead bounds what the tags, lengths and numbers of one message add to its values,
	// rows and ids.
	blockOverhead = 128
	// rowBytes bounds the size of one row number.
	rowBytes = 5
	// idOverhead bounds what a tag and a length add to an id.
	idOverhead = 6
)

// appendValues appends values as little-endian float32.
func appendValues(to []byte, values []float32) []byte {
	for _, v := range values {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
	}
	return to
}

// idsBytes returns an upper bound on the size of ids in a message.
func idsBytes(ids []string) int {
	n := 0
	for _, id := range ids {
		n += len(id) + idOverhead
	}
	return n
}

// payload holds what one call adds to a group: passes of some rows, or the mark that these rows are
// final. It never changes, so that it can be sent again.
type payload struct {
	passes int
	rows   []uint32 // all rows are listed; an empty list means no row
	values []byte   // encoded, [passes][rows][classes]
	final  bool
}

// pick returns the payload of the rows for which number returns true, under the numbers that it
// returns.
func (p payload) pick(number func(row uint32) (uint32, bool)) payload {
	picked := payload{passes: p.passes, final: p.final}
	var from []int
	for i, row := range p.rows {
		if n, ok := number(row); ok {
			from = append(from, i)
			picked.rows = append(picked.rows, n)
		}
	}
	if len(p.values) == 0 || len(from) == 0 {
		return picked
	}
	width := len(p.values) / p.passes / len(p.rows) // bytes of a row
	picked.values = make([]byte, 0, p.passes*len(from)*width)
	for pass := range p.passes {
		for _, i := range from {
			at := (pass*len(p.rows) + i) * width
			picked.values = append(picked.values, p.values[at:at+width]...)
		}
	}
	return picked
}

// blocks yields the payload in as few blocks as messages of messageBytes allow. The group has
// groupRows rows on the wire. blocks splits between passes, and within a pass only where a pass
// exceeds a message. Blocks share the payload's memory.
func (p payload) blocks(groupRows, classes, messageBytes int) iter.Seq[*ckdv1.Block] {
	inputs := len(p.rows)
	rows := p.rows
	if isAll(rows, groupRows) {
		rows = nil // means all rows, and is shorter
	}
	width := valueBytes * classes
	most := (messageBytes - blockOverhead) / (width + rowBytes) // row-passes in one block
	return func(yield func(*ckdv1.Block) bool) {
		if inputs == 0 {
			return
		}
		if p.final {
			yield(&ckdv1.Block{Final: true, Rows: rows})
			return
		}
		passes, some := max(1, most/inputs), min(inputs, most) // of one block
		for from := 0; from < p.passes; from += passes {
			n := min(passes, p.passes-from)
			for first := 0; first < inputs; first += some {
				last := min(first+some, inputs)
				at := (from*inputs + first) * width
				b := &ckdv1.Block{Passes: uint32(n), Rows: rows, ValuesLe: p.values[at : at+n*(last-first)*width]}
				if last-first < inputs {
					b.Rows = p.rows[first:last]
				}
				if !yield(b) {
					return
				}
			}
		}
	}
}

// isAll reports whether rows are 0, 1, ... n-1.
func isAll(rows []uint32, n int) bool {
	if len(rows) != n {
		return false
	}
	for i, row := range rows {
		if row != uint32(i) {
			return false
		}
	}
	return true
}
