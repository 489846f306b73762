package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ckd-project/ckd/internal/httperror"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// The parameters of Triton's extension for binary tensor data. They are for HTTP alone: the server does not
// get them.
const (
	binarySize   = "binary_data_size"   // of an input, or an output of the answer: how many bytes it has after the JSON
	binaryOutput = "binary_data"        // of an output: whether the answer holds it as binary data
	binaryAll    = "binary_data_output" // of a request: the same for all outputs
)

// maxItems bounds the inputs, outputs or parameters.
const maxItems = 256

// inferRequest holds the content of a request's body.
type inferRequest struct {
	message *inferencepb.ModelInferRequest
	binary  map[string]bool // by the outputs that say it for themselves
	all     bool            // for all other outputs
}

// The marks before the datatype of a tensor that neither this package nor the server reads. It
// goes back as it came. No server knows such a datatype, and no REST client can send one, because
// it would be marked in turn.
const (
	asJSON   = "json:"   // the bytes are the JSON text of the data
	asBinary = "binary:" // the bytes are binary data
)

// isBinary reports whether the answer holds an output as binary data.
func (r *inferRequest) isBinary(output string) bool {
	if binary, said := r.binary[output]; said {
		return binary
	}
	return r.all
}

// requestText is a request as it is written, or the answer of another model in its place.
type requestText struct {
	ID           string          `json:"id"`
	Parameters   parameters      `json:"parameters"`
	Inputs       []tensorText    `json:"inputs"`
	Outputs      []tensorText    `json:"outputs"`
	ModelName    json.RawMessage `json:"model_name"` // some clients repeat it; the path counts
	ModelVersion json.RawMessage `json:"model_version"`
}

// tensorText is an input, an output that a request asks for, or an output of an answer.
type tensorText struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Parameters parameters      `json:"parameters"`
	Data       json.RawMessage `json:"data"`
}

// answered reports whether a tensor has what only an output of an answer has.
func (t *tensorText) answered() bool { return t.Datatype != "" || t.Shape != nil || t.Data != nil }

// parseInfer reads a body: JSON, followed by the bytes of the inputs that come as binary data. It
// stores bytes for every input; an input in JSON may have at most so many. passes names the only
// tensor to read; empty reads all of them.
//
// parseInfer accepts the answer of another model as a request, with its outputs as inputs: a graph
// of KServe hands the answer of one step to the next as it is.
func parseInfer(text, after []byte, most int, passes string) (*inferRequest, error) {
	in, err := decode(text)
	if err != nil {
		return nil, err
	}
	if in.Inputs == nil && slices.ContainsFunc(in.Outputs, func(t tensorText) bool { return t.answered() }) {
		in.Inputs, in.Outputs = in.Outputs, nil
	}
	switch {
	case in.Inputs == nil:
		return nil, httperror.Invalid("the request has no inputs, expected an array of tensors")
	case len(in.Inputs) > maxItems || len(in.Outputs) > maxItems:
		return nil, httperror.Invalid(fmt.Sprintf("%d inputs and %d outputs, expected at most %d", len(in.Inputs), len(in.Outputs), maxItems))
	}
	r := &inferRequest{message: &inferencepb.ModelInferRequest{Id: in.ID}, binary: map[string]bool{}}
	if r.all, _, err = in.Parameters.takeBool(binaryAll); err != nil {
		return nil, err
	}
	r.message.Parameters = in.Parameters
	for i := range in.Inputs {
		raw, err := in.Inputs[i].input(&after, most, passes)
		if err != nil {
			return nil, err
		}
		t := &in.Inputs[i]
		r.message.Inputs = append(r.message.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{
			Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Parameters: t.Parameters,
		})
		r.message.RawInputContents = append(r.message.RawInputContents, raw)
	}
	if len(after) > 0 {
		return nil, httperror.Invalid(fmt.Sprintf("%d bytes of binary data are left over after those of all inputs", len(after)))
	}
	for _, t := range in.Outputs {
		if t.Name == "" || t.answered() {
			return nil, httperror.Invalid("an output needs a name, and may have parameters, nothing else")
		}
		binary, said, err := t.Parameters.takeBool(binaryOutput)
		if err != nil {
			return nil, err
		}
		if said {
			r.binary[t.Name] = binary
		}
		r.message.Outputs = append(r.message.Outputs, &inferencepb.ModelInferRequest_InferRequestedOutputTensor{
			Name: t.Name, Parameters: t.Parameters,
		})
	}
	return r, nil
}

// decode decodes the JSON of a request. It refuses unknown keys: a misspelt parameters would change
// what the passes mean.
func decode(text []byte) (*requestText, error) {
	if !utf8.Valid(text) {
		return nil, httperror.Invalid("the request is not UTF-8")
	}
	in := &requestText{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		place := d.InputOffset()
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			place = syntax.Offset
		}
		before := text[:min(place, int64(len(text)))]
		return nil, httperror.Invalid(httperror.Clip(fmt.Sprintf("line %d, column %d: %v",
			bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'), err)))
	}
	if left := bytes.TrimSpace(text[d.InputOffset():]); len(left) > 0 {
		return nil, httperror.Invalid(fmt.Sprintf("the request is followed by %s", strconv.Quote(httperror.Clip(string(left)))))
	}
	return in, nil
}

// input returns the bytes of an input, which come as binary data or as JSON. It marks the datatype
// of a tensor that goes to the server unread.
func (t *tensorText) input(after *[]byte, most int, passes string) ([]byte, error) {
	name := httperror.Clip(t.Name)
	switch {
	case name == "":
		return nil, httperror.Invalid("an input has no name, expected a string")
	case t.Datatype == "":
		return nil, invalidInput(name, "no datatype, expected a string")
	case t.Shape == nil || len(t.Shape) > maxRank:
		return nil, invalidInput(name, "%d dimensions, expected a shape of 1 to %d", len(t.Shape), maxRank)
	}
	size, isBinary := t.Parameters[binarySize]
	delete(t.Parameters, binarySize)
	unread := passes != "" && t.Name != passes
	switch {
	case isBinary && t.Data != nil:
		return nil, invalidInput(name, "both data and binary data")
	case isBinary:
		_, ok := size.GetParameterChoice().(*inferencepb.InferParameter_Int64Param)
		n := size.GetInt64Param()
		if !ok || n < 0 || n > int64(len(*after)) {
			return nil, invalidInput(name, "%s of %d bytes, and %d are left after the JSON, which ends where %s says",
				binarySize, n, len(*after), headerLength)
		}
		raw := (*after)[:n:n]
		if *after = (*after)[n:]; unread {
			t.Datatype = asBinary + t.Datatype
		}
		return raw, nil
	case t.Data != nil && !bytes.HasPrefix(t.Data, []byte("[")):
		return nil, invalidInput(name, "data that is no array")
	case t.Data != nil && unread:
		t.Datatype = asJSON + t.Datatype
		return t.Data, nil
	case t.Data != nil:
		return elements(t, most)
	case t.Parameters["shared_memory_region"].GetStringParam() != "": // the server refuses it
		return nil, nil
	}
	return nil, invalidInput(name, "no data, expected data or the parameter %s", binarySize)
}

// invalidInput returns an error that says what an input has.
func invalidInput(name, format string, values ...any) error {
	return httperror.Invalid(fmt.Sprintf("the input %q has ", name) + fmt.Sprintf(format, values...))
}

// parameters are strings, numbers and booleans by name.
type parameters map[string]*inferencepb.InferParameter

// UnmarshalJSON implements json.Unmarshaler.
func (p *parameters) UnmarshalJSON(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	if len(all) > maxItems {
		return fmt.Errorf("%d parameters, expected at most %d", len(all), maxItems)
	}
	*p = parameters{}
	for key, value := range all {
		var err error
		if (*p)[key], err = parameterOf(value); err != nil {
			return fmt.Errorf("the parameter %q %w", httperror.Clip(key), err)
		}
	}
	return nil
}

// parameterOf returns the parameter that a JSON text stands for.
func parameterOf(text []byte) (*inferencepb.InferParameter, error) {
	switch c := text[0]; {
	case c == '"':
		var value string
		err := json.Unmarshal(text, &value)
		return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: value}}, err
	case c == 't' || c == 'f':
		return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: c == 't'}}, nil
	case c == '[' || c == '{' || c == 'n':
		return nil, errors.New("is neither a string nor a number nor a boolean")
	}
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: n}}, nil
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, errors.New("is out of range")
	}
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_DoubleParam{DoubleParam: v}}, nil
}

// takeBool removes a boolean from the parameters and returns it, and whether it was there.
func (p parameters) takeBool(key string) (value, said bool, err error) {
	one, said := p[key]
	if !said {
		return false, false, nil
	}
	delete(p, key)
	choice, ok := one.GetParameterChoice().(*inferencepb.InferParameter_BoolParam)
	if !ok {
		return false, true, httperror.Invalid(fmt.Sprintf("the parameter %s is no boolean", key))
	}
	return choice.BoolParam, true, nil
}
