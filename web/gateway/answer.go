package gateway

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// object returns an answer of ckd.v1 as it is written as JSON. protojson omits zero fields; object adds
// those zeros that were computed, such as predicted class 0.
func object(m protoreflect.Message) (any, error) {
	if m.Descriptor().ParentFile() != ckdv1.File_ckd_v1_uncertainty_proto {
		data, err := marshal(m.Interface())
		return json.RawMessage(data), err
	}
	out := map[string]any{}
	computed := zeros(m.Interface())
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name, v := string(field.Name()), m.Get(field)
		if !m.Has(field) && !slices.Contains(computed, field.Name()) {
			continue
		}
		var err error
		if !field.IsList() {
			out[name], err = jsonValue(field, v)
		} else {
			list := make([]any, v.List().Len())
			for i := 0; i < len(list) && err == nil; i++ {
				list[i], err = jsonValue(field, v.List().Get(i))
			}
			out[name] = list
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
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

// jsonValue returns a value that package json writes as protojson does.
func jsonValue(field protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return object(v.Message())
	case protoreflect.EnumKind:
		if name := field.Enum().Values().ByNumber(v.Enum()); name != nil {
			return name.Name(), nil
		}
	case protoreflect.Uint64Kind:
		return strconv.FormatUint(v.Uint(), 10), nil
	case protoreflect.DoubleKind:
		switch f := v.Float(); {
		case math.IsNaN(f):
			return "NaN", nil
		case math.IsInf(f, 1):
			return "Infinity", nil
		case math.IsInf(f, -1):
			return "-Infinity", nil
		}
	}
	return v.Interface(), nil
}
