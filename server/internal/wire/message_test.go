package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// TestMessage checks that a message with as many parts as allowed decodes as with the generated
// decoder, and that one more part of any kind is refused.
func TestMessage(t *testing.T) {
	input := func(b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), b)
	}
	repeat := func(b []byte, n int) []byte { return []byte(strings.Repeat(string(b), n)) }
	field := func(number protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	}
	shape := func(n int) []byte { return input(field(3, repeat([]byte{1}, n))) }
	for name, c := range map[string]struct {
		data []byte
		good bool
	}{
		"inputs":          {repeat(input(nil), mostParts), true},
		"inputs too many": {repeat(input(nil), mostParts+1), false},
		"shape":           {shape(mostParts - 1), true},
		"shape too long":  {shape(mostParts), false},
		"unpacked":        {input(repeat([]byte{3 << 3, 1}, mostParts)), false},
		"raw contents":    {repeat(field(7, nil), mostParts+1), false},
		"floats":          {input(field(5, field(6, make([]byte, 8*mostParts)))), true},
		"bytes of texts":  {input(field(5, repeat(field(8, nil), mostParts))), false},
		"unknown":         {repeat(field(99, nil), 2*mostParts), true},
		"one long":        {field(7, make([]byte, 10*mostParts)), true},
	} {
		var got, want inferencepb.ModelInferRequest
		err := received(c.data, 0).Message(&got)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if unmarshalErr := proto.Unmarshal(c.data, &want); err == nil && (unmarshalErr != nil || !proto.Equal(&got, &want)) {
			t.Errorf("%s: not as the generated decoder has it", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "data")
		var got, want inferencepb.ModelInferRequest
		if a, b := received(data, 0).Message(&got), proto.Unmarshal(data, &want); (a == nil) != (b == nil) || a == nil && !proto.Equal(&got, &want) {
			t.Errorf("%v, the generated decoder %v", a, b)
		}
	})
}
