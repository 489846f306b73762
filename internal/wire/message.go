package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mostParts is how many parts a message may have that take more memory than bytes:
// messages in it, and elements of lists, but for those of floats.
const mostParts = 1 << 16

// Message decodes any message but the hot ones, by the generated decoder. One with
// more than 65536 parts, which could take fifty times its bytes, is an error.
func (in *Incoming) Message(m proto.Message) error {
	data, left := in.joined(), mostParts
	if err := countParts(data, m.ProtoReflect().Descriptor(), &left, 0); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// countParts takes the parts of a message from those that are left. What is no
// message is left to the decoder.
func countParts(data []byte, of protoreflect.MessageDescriptor, left *int, depth int) error {
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
			*left--
			inner, _ := protowire.ConsumeBytes(data)
			if err := countParts(inner, field.Message(), left, depth+1); err != nil {
				return err
			}
		case kind == protowire.BytesType && isVarint(field.Kind()): // packed
			packed, _ := protowire.ConsumeBytes(data)
			*left -= elements(packed)
		case field.IsList() && !isFloat(field.Kind()):
			*left--
		}
		if *left < 0 {
			return fmt.Errorf("more than %d messages and elements of lists in one", mostParts)
		}
		data = data[size:]
	}
	return nil
}

// elements of a list of varints: bytes without a bit that says there are more.
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
