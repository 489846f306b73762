package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mostParts bounds the parts of a message that take more memory than their bytes: messages in it,
// and elements of lists other than floats.
const mostParts = 1 << 16

// Message decodes a message with the generated decoder. It fails for more than 65536 parts, which
// could take fifty times the memory of their bytes.
func (in *Incoming) Message(m proto.Message) error {
	data, count := in.joined(), partCount{left: mostParts}
	if err := count.add(data, m.ProtoReflect().Descriptor(), 0); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// partCount counts the parts of a message before it is decoded.
type partCount struct {
	left          int
	messagesAlone bool // elements of lists do not count
}

// add subtracts the parts of a message from those left. It accepts bytes that are no message,
// since the decoder refuses them.
func (p *partCount) add(data []byte, of protoreflect.MessageDescriptor, depth int) error {
	const deepest = 100 // where the decoder itself would go 10000 deep
	if depth > deepest {
		return fmt.Errorf("messages within messages, expected at most %d deep", deepest)
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil //nolint:nilerr // as above
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return nil //nolint:nilerr // as above
		}
		field := of.Fields().ByNumber(number)
		if field == nil { // kept as it is
			data = data[size:]
			continue
		}
		switch {
		case kind == protowire.BytesType && field.Message() != nil:
			p.left--
			inner, _ := protowire.ConsumeBytes(data)
			if err := p.add(inner, field.Message(), depth+1); err != nil {
				return err
			}
		case p.messagesAlone:
		case kind == protowire.BytesType && isVarint(field.Kind()): // packed
			packed, _ := protowire.ConsumeBytes(data)
			p.left -= elements(packed)
		case field.IsList() && !isFloat(field.Kind()):
			p.left--
		}
		if p.left < 0 {
			return fmt.Errorf("more than %d messages and elements of lists in one", mostParts)
		}
		data = data[size:]
	}
	return nil
}

// elements returns the number of varints in a list, by their last bytes.
func elements(data []byte) (n int) {
	for _, b := range data {
		if b < 0x80 {
			n++
		}
	}
	return n
}

func isVarint(k protoreflect.Kind) bool {
	switch k {
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind:
		return true
	}
	return false
}

func isFloat(k protoreflect.Kind) bool {
	return k == protoreflect.FloatKind || k == protoreflect.DoubleKind
}
