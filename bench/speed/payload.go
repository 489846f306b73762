package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// mode says how the passes of a shape go over the wire.
type mode string

// The modes.
const (
	batched    mode = "batched"      // all passes of a group in one message
	passByPass mode = "pass by pass" // a message for each pass of a group
	unary      mode = "unary"        // Decompose
)

// maxMessage is ckd's own limit.
const maxMessage = 16 << 20

// firstGroup is the first group's number. Numbers from here to 2^35 take five bytes on the wire, so
// that they can be patched.
const firstGroup = 1 << 28

// payload holds messages made in advance, for as many groups as may be in flight.
type payload struct {
	shape  shape
	mode   mode
	groups []payloadGroup
}

// payloadGroup holds the messages of a group: one, or one for each pass.
type payloadGroup struct {
	values   []float32
	messages [][]byte
	numberAt []int // where the group's number is in each
}

// newPayload makes messages whose values are in the repeated field or, with littleEndian, in the
// bytes field.
func newPayload(s shape, m mode, groups int, littleEndian bool) *payload {
	p := &payload{shape: s, mode: m, groups: make([]payloadGroup, groups)}
	for i := range p.groups {
		g := &p.groups[i]
		g.values = s.values(uint64(i))
		ids := make([]string, s.inputs)
		for row := range ids {
			ids[row] = fmt.Sprintf("%04x%04x", i, row)
		}
		switch m {
		case unary:
			g.messages = [][]byte{encodeRequest(s, ids, g.values, littleEndian)}
		case batched:
			g.add(encodeBlock(s.passes, ids, g.values, littleEndian))
		default:
			row := s.inputs * s.classes
			for pass := range s.passes {
				g.add(encodeBlock(1, ids, g.values[pass*row:(pass+1)*row], littleEndian))
				ids = nil // opened by the first
			}
		}
	}
	return p
}

func (g *payloadGroup) add(message []byte, numberAt int) {
	g.messages, g.numberAt = append(g.messages, message), append(g.numberAt, numberAt)
}

// number writes a group's number into its messages.
func (g *payloadGroup) number(n uint64) {
	for i, message := range g.messages {
		protowire.AppendVarint(message[:g.numberAt[i]], n)
	}
}

// header returns the stream's first message.
func header(s shape) []byte {
	h := protowire.AppendTag(nil, 1, protowire.BytesType)
	h = protowire.AppendString(h, modelName(s.classes))
	h = protowire.AppendTag(h, 3, protowire.VarintType)
	h = protowire.AppendVarint(h, uint64(s.passes))
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), h)
}

// encodeBlock returns a DecomposeStreamRequest with a Block, and the offset of its group's number.
func encodeBlock(passes int, ids []string, values []float32, littleEndian bool) (message []byte, numberAt int) {
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	inBlock := len(b)
	b = protowire.AppendVarint(b, firstGroup)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(passes))
	for _, id := range ids {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendString(b, id)
	}
	b = appendValues(b, 6, values, littleEndian)
	message = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), b)
	return message, len(message) - len(b) + inBlock
}

// encodeRequest returns an encoded DecomposeRequest.
func encodeRequest(s shape, ids []string, values []float32, littleEndian bool) []byte {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendString(b, modelName(s.classes))
	for field, value := range []int{5: int(ckdv1.Layout_LAYOUT_SNK), 6: s.passes, 7: s.inputs} {
		if value > 0 {
			b = protowire.AppendTag(b, protowire.Number(field), protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(value))
		}
	}
	for _, id := range ids {
		b = protowire.AppendTag(b, 8, protowire.BytesType)
		b = protowire.AppendString(b, id)
	}
	return appendValues(b, 9, values, littleEndian)
}

// appendValues appends the values in the repeated field of that number or, with littleEndian, in
// the bytes field after it. The two differ only in the field number.
func appendValues(b []byte, field protowire.Number, values []float32, littleEndian bool) []byte {
	if littleEndian {
		field++
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(4*len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
