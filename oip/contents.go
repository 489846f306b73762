package oip

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ckd-project/ckd/proto/inference"
)

// typedForms holds the field of typed values and the bytes of a raw element, by datatype. An element
// of BYTES has its length before it.
var typedForms = map[string]struct {
	field protoreflect.Name
	bytes int
}{
	"BOOL": {"bool_contents", 1}, "INT8": {"int_contents", 1}, "INT16": {"int_contents", 2}, "INT32": {"int_contents", 4},
	"INT64": {"int64_contents", 8}, "UINT8": {"uint_contents", 1}, "UINT16": {"uint_contents", 2}, "UINT32": {"uint_contents", 4},
	"UINT64": {"uint64_contents", 8}, "FP32": {"fp32_contents", 4}, "FP64": {"fp64_contents", 8}, "BYTES": {"bytes_contents", 0},
}

// countValues returns the number of typed values in all fields.
func countValues(c *pb.InferTensorContents) int {
	return len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
}

// rawContents returns typed elements as bytes. It returns false if the datatype has no typed form, or
// if values are in the field of another datatype.
func rawContents(c *pb.InferTensorContents, datatype string) (raw []byte, ok bool) {
	form, known := typedForms[datatype]
	if !known {
		return nil, countValues(c) == 0
	}
	m := c.ProtoReflect()
	list := m.Get(m.Descriptor().Fields().ByName(form.field)).List()
	for i := range list.Len() {
		bits := uint64(0)
		switch v := list.Get(i).Interface().(type) {
		case bool:
			if v {
				bits = 1
			}
		case int32:
			bits = uint64(v)
		case int64:
			bits = uint64(v)
		case uint32:
			bits = uint64(v)
		case uint64:
			bits = v
		case float32:
			bits = uint64(math.Float32bits(v))
		case float64:
			bits = math.Float64bits(v)
		case []byte:
			raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(v))), v...)
			continue
		}
		raw = binary.LittleEndian.AppendUint64(raw, bits)[:len(raw)+form.bytes]
	}
	return raw, list.Len() == countValues(c)
}
