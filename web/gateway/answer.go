package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// appendAnswer appends an answer of ckd.v1 as JSON. protojson omits zero fields; appendAnswer adds
// those zeros that were computed, such as predicted class 0.
func appendAnswer(b []byte, m protoreflect.Message) ([]byte, error) {
	if m.Descriptor().ParentFile() != ckdv1.File_ckd_v1_uncertainty_proto {
		data, err := marshal(m.Interface())
		return append(b, data...), err
	}
	computed := zeros(m.Interface())
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	for i, first := 0, true; i < fields.Len(); i++ {
		field := fields.Get(i)
		if !m.Has(field) && !slices.Contains(computed, field.Name()) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), field.Name()...), '"', ':')
		var err error
		if !field.IsList() {
			if b, err = appendValue(b, field, m.Get(field)); err != nil {
				return nil, err
			}
			continue
		}
		b = append(b, '[')
		list := m.Get(field).List()
		for i := range list.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, field, list.Get(i)); err != nil {
				return nil, err
			}
		}
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

// zeros returns the fields of a message that are present even if they are zero. The vectors of a
// decomposition are never empty if the client asked for them, so they show which detail it asked
// for.
func zeros(m any) []protoreflect.Name {
	switch m := m.(type) {
	case *ckdv1.Result:
		return []protoreflect.Name{"row"}
	case *ckdv1.Decomposition:
		names := []protoreflect.Name{"predicted", "degenerate", "saturated", "settled"}
		if len(m.GetC()) > 0 {
			names = append(names, "mi", "entropy", "sum_c")
		}
		if len(m.GetVariance()) > 0 {
			names = append(names, "expected_entropy", "sum_c_top", "sum_c_weighted")
		}
		if len(m.GetReceipt()) > 0 {
			names = append(names, "review")
		}
		return names
	case *ckdv1.Decision:
		return []protoreflect.Name{"value"}
	case *ckdv1.PairTerm:
		return []protoreflect.Name{"class_a", "class_b", "confusion", "correlation"}
	}
	return nil
}

func appendValue(b []byte, field protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return appendAnswer(b, v.Message())
	case protoreflect.EnumKind:
		if name := field.Enum().Values().ByNumber(v.Enum()); name != nil {
			return append(append(append(b, '"'), name.Name()...), '"'), nil
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.Uint32Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case protoreflect.Uint64Kind:
		return append(strconv.AppendUint(append(b, '"'), v.Uint(), 10), '"'), nil
	case protoreflect.DoubleKind:
		return appendDouble(b, v.Float()), nil
	case protoreflect.StringKind:
		text, err := json.Marshal(v.String())
		return append(b, text...), err
	case protoreflect.BytesKind:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
	}
	return nil, fmt.Errorf("%s is of kind %v, which answers do not have", field.FullName(), field.Kind())
}

func appendDouble(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, v, format, -1, 64)
}
