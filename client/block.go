package client

import (
	"encoding/binary"
	"iter"
	"math"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	valueBytes = 4
	// blockOverhead is more than the tags, lengths and numbers of one message add
	// to its values, rows and ids.
	blockOverhead = 128
	// rowBytes is the most that a row's number takes.
	rowBytes = 5
	// idOverhead is the most that a tag and a length add to an id.
	idOverhead = 6
)

// appendValues appends values as little-endian float32.
func appendValues(to []byte, values []float32) []byte {
	for _, v := range values {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
	}
	return to
}

func encode(values []float32) []byte {
	return appendValues(make([]byte, 0, valueBytes*len(values)), values)
}

// fits tells whether one row of so many classes can be sent in a message at all.
func fits(classes, messageBytes int) bool {
	return valueBytes*classes+rowBytes <= messageBytes-blockOverhead
}

// blocks lays values [passes][rows][classes] out in as few blocks as their size
// allows. It splits between passes, and within a pass only where it must. No rows
// stand for all of the group's.
func blocks(passes, inputs, classes int, rows []uint32, values []float32, messageBytes int) iter.Seq[*ckdv1.Block] {
	most := (messageBytes - blockOverhead) / (valueBytes*classes + rowBytes) // rows, of all passes
	stride := inputs * classes
	return func(yield func(*ckdv1.Block) bool) {
		if inputs <= most {
			step := most / inputs
			for p := 0; p < passes; p += step {
				n := min(step, passes-p)
				b := &ckdv1.Block{Passes: uint32(n), Rows: rows, ValuesLe: encode(values[p*stride : (p+n)*stride])}
				if !yield(b) {
					return
				}
			}
			return
		}
		if len(rows) == 0 {
			rows = make([]uint32, inputs)
			for i := range rows {
				rows[i] = uint32(i)
			}
		}
		for p := range passes {
			pass := values[p*stride : (p+1)*stride]
			for r := 0; r < inputs; r += most {
				end := min(r+most, inputs)
				b := &ckdv1.Block{Passes: 1, Rows: rows[r:end], ValuesLe: encode(pass[r*classes : end*classes])}
				if !yield(b) {
					return
				}
			}
		}
	}
}

// idsBytes is the most that ids take in a message.
func idsBytes(ids []string) int {
	n := 0
	for _, id := range ids {
		n += len(id) + idOverhead
	}
	return n
}
