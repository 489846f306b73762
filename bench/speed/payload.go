package main

import (
	"fmt"

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

// payload holds messages made in advance, for as many groups as are in flight.
type payload struct {
	shape  shape
	mode   mode
	groups []payloadGroup
}

// payloadGroup holds the messages of a group: one, or one for each pass.
type payloadGroup struct {
	values   []float32
	messages [][]byte
}

func newPayload(s shape, m mode, groups int) (*payload, error) {
	p := &payload{shape: s, mode: m, groups: make([]payloadGroup, groups)}
	for i := range p.groups {
		g := &p.groups[i]
		g.values = s.values(uint64(i))
		ids := make([]string, s.inputs)
		for row := range ids {
			ids[row] = fmt.Sprintf("%04x%04x", i, row)
		}
		var messages []proto.Message
		block := func(passes int, ids []string, values []float32) {
			b := &ckdv1.Block{Group: uint64(i), Passes: uint32(passes), InputIds: ids, Values: values}
			messages = append(messages, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
		}
		switch m {
		case unary:
			messages = append(messages, &ckdv1.DecomposeRequest{
				Model: modelName(s.classes), Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(s.passes), Inputs: uint32(s.inputs),
				InputIds: ids, Values: g.values,
			})
		case batched:
			block(s.passes, ids, g.values)
		default:
			row := s.inputs * s.classes
			for pass := range s.passes {
				block(1, ids, g.values[pass*row:(pass+1)*row])
				ids = nil // opened by the first
			}
		}
		for _, message := range messages {
			b, err := proto.Marshal(message)
			if err != nil {
				return nil, err
			}
			g.messages = append(g.messages, b)
		}
	}
	return p, nil
}

// streamHeader returns the stream's first message.
func streamHeader(s shape) ([]byte, error) {
	h := &ckdv1.StreamHeader{Model: modelName(s.classes), Passes: uint32(s.passes)}
	return proto.Marshal(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: h}})
}
