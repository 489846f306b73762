package rest

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// response holds an answer as it is written: JSON, followed by the bytes of the outputs that come
// as binary data.
type response struct {
	text  []byte
	after [][]byte
}

// formatInfer formats an answer as its request asks.
func formatInfer(m *inferencepb.ModelInferResponse, r *inferRequest) (*response, error) {
	out := &response{}
	b := appendString([]byte(`{"model_name":`), m.GetModelName())
	if v := m.GetModelVersion(); v != "" {
		b = appendString(append(b, `,"model_version":`...), v)
	}
	if id := m.GetId(); id != "" {
		b = appendString(append(b, `,"id":`...), id)
	}
	if p := m.GetParameters(); len(p) > 0 {
		b = appendParameters(append(b, `,"parameters":`...), p, -1)
	}
	b = append(b, `,"outputs":[`...)
	for i, t := range m.GetOutputs() {
		if i > 0 {
			b = append(b, ',')
		}
		raw, err := rawOutput(m, i)
		if err != nil {
			return nil, err
		}
		b = appendString(append(b, `{"name":`...), t.GetName())
		datatype, isText := strings.CutPrefix(t.GetDatatype(), asJSON)
		isBinary := false
		if !isText {
			datatype, isBinary = strings.CutPrefix(datatype, asBinary)
		}
		b = appendString(append(b, `,"datatype":`...), datatype)
		b = appendShape(append(b, `,"shape":`...), t.GetShape())
		size := -1
		if isBinary || !isText && r.isBinary(t.GetName()) {
			size = len(raw)
			out.after = append(out.after, raw)
		}
		if p := t.GetParameters(); len(p) > 0 || size >= 0 {
			b = appendParameters(append(b, `,"parameters":`...), p, size)
		}
		switch {
		case isText:
			b = append(append(b, `,"data":`...), raw...)
		case size < 0:
			if t.GetName() == receiptOutput {
				raw = inBase64(raw)
			}
			if b, err = appendElements(append(b, `,"data":`...), t.GetDatatype(), raw); err != nil {
				return nil, fmt.Errorf("output %q: %w", t.GetName(), err)
			}
		}
		b = append(b, '}')
	}
	b = append(b, ']', '}')
	out.text = b
	return out, nil
}

// receiptOutput names the one output of ckd whose elements are no text. JSON has them in base64url
// without padding.
const receiptOutput = "receipt"

// inBase64 returns elements of BYTES, each with its length before it, in base64url.
func inBase64(raw []byte) []byte {
	var out []byte
	for len(raw) >= 4 {
		n := min(int(binary.LittleEndian.Uint32(raw)), len(raw)-4)
		text := base64.RawURLEncoding.EncodeToString(raw[4 : 4+n])
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(text))), text...)
		raw = raw[4+n:]
	}
	return out
}

// rawOutput returns the bytes of an output, in whichever form the message has it.
func rawOutput(m *inferencepb.ModelInferResponse, i int) ([]byte, error) {
	all := m.GetRawOutputContents()
	if len(all) == 0 {
		t := m.GetOutputs()[i]
		return rawOf(t.GetContents(), t.GetDatatype()), nil
	}
	if len(all) != len(m.GetOutputs()) {
		return nil, fmt.Errorf("%d outputs have %d raw contents", len(m.GetOutputs()), len(all))
	}
	return all[i], nil
}

func appendShape(to []byte, shape []int64) []byte {
	to = append(to, '[')
	for i, d := range shape {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(to, d, 10)
	}
	return append(to, ']')
}

// appendParameters appends parameters, and the size of binary data unless it is negative.
func appendParameters(to []byte, p map[string]*inferencepb.InferParameter, size int) []byte {
	to = append(to, '{')
	if size >= 0 {
		to = strconv.AppendInt(append(to, `"`+binarySize+`":`...), int64(size), 10)
	}
	for i, key := range slices.Sorted(maps.Keys(p)) {
		if i > 0 || size >= 0 {
			to = append(to, ',')
		}
		to = append(appendString(to, key), ':')
		switch v := p[key].GetParameterChoice().(type) {
		case *inferencepb.InferParameter_BoolParam:
			to = strconv.AppendBool(to, v.BoolParam)
		case *inferencepb.InferParameter_Int64Param:
			to = strconv.AppendInt(to, v.Int64Param, 10)
		case *inferencepb.InferParameter_Uint64Param:
			to = strconv.AppendUint(to, v.Uint64Param, 10)
		case *inferencepb.InferParameter_StringParam:
			to = appendString(to, v.StringParam)
		case *inferencepb.InferParameter_DoubleParam:
			to = appendFloat(to, v.DoubleParam, 64)
		default:
			to = append(to, "null"...)
		}
	}
	return append(to, '}')
}
