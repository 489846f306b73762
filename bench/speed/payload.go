package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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
func newPayload(s shape, m mode, groups int, littleEndian bool) (*payload, error) {
	p := &payload{shape: s, mode: m, groups: make([]payloadGroup, groups)}
	for i := range p.groups {
		g := &p.groups[i]
		g.values = s.values(uint64(i))
		ids := make([]string, s.inputs)
		for row := range ids {
			ids[row] = fmt.Sprintf("%04x%04x", i, row)
		}
		var err error
		switch m {
		case unary:
			r := &ckdv1.DecomposeRequest{
				Model: modelName(s.classes), Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(s.passes), Inputs: uint32(s.inputs), InputIds: ids,
			}
			if r.Values, r.ValuesLe, err = values(g.values, littleEndian); err == nil {
				err = g.add(r)
			}
		case batched:
			err = g.addBlock(s.passes, ids, g.values, littleEndian)
		default:
			row := s.inputs * s.classes
			for pass := 0; pass < s.passes && err == nil; pass++ {
				err = g.addBlock(1, ids, g.values[pass*row:(pass+1)*row], littleEndian)
				ids = nil // opened by the first
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addBlock adds a message with some passes, and notes where its group's number is.
func (g *payloadGroup) addBlock(passes int, ids []string, block []float32, littleEndian bool) (err error) {
	b := &ckdv1.Block{Group: firstGroup, Passes: uint32(passes), InputIds: ids}
	if b.Values, b.ValuesLe, err = values(block, littleEndian); err != nil {
		return err
	}
	if err := g.add(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}); err != nil {
		return err
	}
	g.numberAt = append(g.numberAt, bytes.Index(g.messages[len(g.messages)-1], protowire.AppendVarint(nil, firstGroup)))
	return nil
}

func (g *payloadGroup) add(m proto.Message) error {
	message, err := proto.Marshal(m)
	g.messages = append(g.messages, message)
	return err
}

// values returns values for the repeated field or for the bytes field.
func values(all []float32, littleEndian bool) (repeated []float32, encoded []byte, err error) {
	if !littleEndian {
		return all, nil, nil
	}
	encoded, err = binary.Append(nil, binary.LittleEndian, all)
	return nil, encoded, err
}

// number writes a group's number into its messages.
func (g *payloadGroup) number(n uint64) {
	for i, at := range g.numberAt {
		protowire.AppendVarint(g.messages[i][:at], n)
	}
}

// header returns the stream's first message.
func header(s shape) ([]byte, error) {
	h := &ckdv1.StreamHeader{Model: modelName(s.classes), Passes: uint32(s.passes)}
	return proto.Marshal(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: h}})
}
