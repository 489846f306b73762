package rest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/ckd-project/ckd/oip/internal/contents"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// responseText is an answer as it is written.
type responseText struct {
	ModelName    string         `json:"model_name"`
	ModelVersion string         `json:"model_version,omitempty"`
	ID           string         `json:"id,omitempty"`
	Parameters   map[string]any `json:"parameters,omitempty"`
	Outputs      []outputText   `json:"outputs"`
}

type outputText struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Parameters map[string]any  `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// formatInfer formats an answer as its request asks: a line of JSON, and the bytes of the outputs
// that come as binary data.
func formatInfer(m *inferencepb.ModelInferResponse, r *inferRequest) (text []byte, after [][]byte, err error) {
	out := responseText{
		ModelName: m.GetModelName(), ModelVersion: m.GetModelVersion(), ID: m.GetId(), Parameters: values(m.GetParameters()), Outputs: []outputText{},
	}
	for i, t := range m.GetOutputs() {
		raw, err := rawOutput(m, i)
		if err != nil {
			return nil, nil, err
		}
		o := outputText{Name: t.GetName(), Shape: append([]int64{}, t.GetShape()...), Parameters: values(t.GetParameters())}
		datatype, isText := strings.CutPrefix(t.GetDatatype(), asJSON)
		isBinary := false
		if !isText {
			datatype, isBinary = strings.CutPrefix(datatype, asBinary)
		}
		o.Datatype = datatype
		switch {
		case isText:
			o.Data = raw
		case isBinary || r.isBinary(o.Name):
			o.Parameters[binarySize] = len(raw)
			after = append(after, raw)
		default:
			if o.Name == receiptOutput {
				raw = inBase64(raw)
			}
			if o.Data, err = appendElements(nil, datatype, raw); err != nil {
				return nil, nil, fmt.Errorf("output %q: %w", o.Name, err)
			}
		}
		out.Outputs = append(out.Outputs, o)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(out)
	text = b.Bytes()
	if len(after) > 0 {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	return text, after, err
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
		raw, _ := contents.Raw(t.GetContents(), t.GetDatatype())
		return raw, nil
	}
	if len(all) != len(m.GetOutputs()) {
		return nil, fmt.Errorf("%d outputs have %d raw contents", len(m.GetOutputs()), len(all))
	}
	return all[i], nil
}

// values returns the values of parameters; nil for a number that JSON lacks.
func values(all map[string]*inferencepb.InferParameter) map[string]any {
	out := map[string]any{}
	for key, p := range all {
		out[key] = nil
		m := p.ProtoReflect()
		if choice := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); choice != nil {
			out[key] = m.Get(choice).Interface()
		}
		if v, ok := out[key].(float64); ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			out[key] = nil
		}
	}
	return out
}
