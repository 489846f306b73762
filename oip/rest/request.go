package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

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

	answered bool   // the outputs are tensors of an answer
	passes   string // the only tensor to read; empty for all
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
	if is, said := r.binary[output]; said {
		return is
	}
	return r.all
}

// parseInfer reads a body: JSON, followed by the bytes of the inputs that come as binary data. It
// stores bytes for every input; an input in JSON may have at most so many. passes names the only
// tensor to read; empty reads all of them.
//
// parseInfer accepts the answer of another model as a request, with its outputs as inputs: a graph
// of KServe hands the answer of one step to the next as it is.
func parseInfer(text, after []byte, most int, passes string) (*inferRequest, error) {
	s := &scanner{data: text}
	r := &inferRequest{message: &inferencepb.ModelInferRequest{}, binary: map[string]bool{}, passes: passes}
	hasInputs, outputs, outputsEnd := false, -1, 0
	err := s.object("the request", func(key string) (err error) {
		if key != "inputs" && s.null() {
			return nil
		}
		switch key {
		case "id":
			r.message.Id, err = s.string("id")
		case "parameters":
			r.message.Parameters, err = s.parameters("parameters")
			if err == nil {
				r.all, err = s.takeBool(r.message.Parameters, binaryAll)
			}
		case "inputs":
			hasInputs = true
			err = s.array("inputs", func() error { return r.input(s, &after, most) })
		case "outputs":
			outputs, err = s.skip() // read later: they may be tensors of an answer
			outputsEnd = s.at
		case "model_name", "model_version": // some clients repeat them; the path counts
			_, err = s.skip()
		default:
			err = s.fail("the request has the unknown key %q, expected id, parameters, inputs or outputs", httperror.Clip(key))
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && outputs >= 0 {
		var areInputs bool
		areInputs, err = r.outputsAt(text, outputs, outputsEnd, !hasInputs, &after, most)
		hasInputs = hasInputs || areInputs
	}
	switch {
	case err != nil:
		return nil, err
	case !hasInputs:
		return nil, httperror.Invalid("the request has no inputs, expected an array of tensors")
	case len(after) > 0:
		return nil, httperror.Invalid(fmt.Sprintf("%d bytes of binary data are left over after those of all inputs", len(after)))
	}
	return r, nil
}

// outputsAt reads the outputs, whose text lies between two places. If mayBeInputs and they are the
// tensors of an answer, it reads them as inputs and reports that.
func (r *inferRequest) outputsAt(text []byte, begin, end int, mayBeInputs bool, after *[]byte, most int) (areInputs bool, err error) {
	s := &scanner{data: text, at: begin}
	err = s.array("outputs", func() error { return r.output(s) })
	if mayBeInputs && r.answered {
		*s, r.message.Outputs, areInputs = scanner{data: text, at: begin}, nil, true
		err = s.array("outputs", func() error { return r.input(s, after, most) })
	}
	if err == nil && s.at != end {
		err = s.fail("the brackets of outputs do not match")
	}
	return areInputs, err
}

// input reads a tensor of the request.
func (r *inferRequest) input(s *scanner, after *[]byte, most int) error {
	in, err := s.inputFields()
	if err != nil {
		return err
	}
	raw, err := r.elementsOf(in, s, after, most)
	if err != nil {
		return err
	}
	if r.message.Inputs = append(r.message.Inputs, in.tensor); len(r.message.Inputs) > maxItems {
		return s.fail("more than %d inputs", maxItems)
	}
	r.message.RawInputContents = append(r.message.RawInputContents, raw)
	return nil
}

// inputText holds an input with the place of its text.
type inputText struct {
	tensor             *inferencepb.ModelInferRequest_InferInputTensor
	begin              int // where the input begins
	dataBegin, dataEnd int // where its data begins and ends; -1 and 0 without data
}

// inputFields reads the fields of an input. It skips the data, since datatype and shape may come
// after it.
func (s *scanner) inputFields() (*inputText, error) {
	t := &inferencepb.ModelInferRequest_InferInputTensor{}
	in := &inputText{tensor: t, begin: s.at, dataBegin: -1}
	hasShape := false
	err := s.object("an input", func(key string) (err error) {
		if key == "parameters" && s.null() {
			return nil
		}
		switch key {
		case "name":
			t.Name, err = s.string("name")
		case "datatype":
			t.Datatype, err = s.string("datatype")
		case "shape":
			hasShape = true
			t.Shape, err = s.shape()
		case "parameters":
			t.Parameters, err = s.parameters("parameters")
		case "data":
			in.dataBegin, err = s.skip()
			in.dataEnd = s.at
		default:
			err = s.fail("an input has the unknown key %q, expected name, datatype, shape, parameters or data", httperror.Clip(key))
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case t.GetName() == "":
		return nil, s.failAt(in.begin, "an input has no name, expected a string")
	case t.GetDatatype() == "":
		return nil, s.failAt(in.begin, "the input %q has no datatype, expected a string", httperror.Clip(t.GetName()))
	case !hasShape:
		return nil, s.failAt(in.begin, "the input %q has no shape, expected an array of dimensions", httperror.Clip(t.GetName()))
	}
	return in, nil
}

// shape reads the dimensions of a tensor.
func (s *scanner) shape() (shape []int64, err error) {
	err = s.array("shape", func() error {
		n, err := parseNumber(s, "a dimension", func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
		if shape = append(shape, n); err == nil && len(shape) > maxRank {
			err = s.fail("shape has more than %d dimensions", maxRank)
		}
		return err
	})
	return shape, err
}

// elementsOf returns the bytes of an input, which come as binary data or as JSON. It marks the
// datatype of a tensor that goes to the server unread.
func (r *inferRequest) elementsOf(in *inputText, s *scanner, after *[]byte, most int) ([]byte, error) {
	t, name := in.tensor, httperror.Clip(in.tensor.GetName())
	size, isBinary := t.GetParameters()[binarySize]
	delete(t.GetParameters(), binarySize)
	unread := r.passes != "" && t.GetName() != r.passes
	switch {
	case isBinary && in.dataBegin >= 0:
		return nil, s.failAt(in.dataBegin, "the input %q has both data and binary data", name)
	case isBinary:
		_, ok := size.GetParameterChoice().(*inferencepb.InferParameter_Int64Param)
		n := size.GetInt64Param()
		if !ok || n < 0 || n > int64(len(*after)) {
			return nil, s.failAt(in.begin, "the input %q states %s of %d bytes, and %d are left after the JSON, which ends where %s says",
				name, binarySize, n, len(*after), headerLength)
		}
		raw := (*after)[:n:n]
		if *after = (*after)[n:]; unread {
			t.Datatype = asBinary + t.Datatype
		}
		return raw, nil
	case in.dataBegin >= 0 && unread:
		raw := bytes.TrimSpace(s.data[in.dataBegin:in.dataEnd])
		if !bytes.HasPrefix(raw, []byte("[")) || !json.Valid(raw) {
			inner := &scanner{data: s.data, at: in.dataBegin}
			return nil, inner.fail("the data of the input %q is no array of JSON: got %s, expected [ and the elements", name, inner.found())
		}
		t.Datatype = asJSON + t.Datatype
		return raw, nil
	case in.dataBegin >= 0:
		inner := &scanner{data: s.data, at: in.dataBegin}
		raw, err := inner.elements(t, most)
		if err == nil && inner.at != in.dataEnd { // skip only looks at brackets
			err = inner.fail("the brackets of data do not match")
		}
		return raw, err
	case t.GetParameters()["shared_memory_region"].GetStringParam() != "": // the server refuses it
		return nil, nil
	}
	return nil, s.failAt(in.begin, "the input %q has no data, expected data or the parameter %s", name, binarySize)
}

// output reads a tensor that the request asks for.
func (r *inferRequest) output(s *scanner) error {
	t := &inferencepb.ModelInferRequest_InferRequestedOutputTensor{}
	began := s.at
	err := s.object("an output", func(key string) (err error) {
		switch key {
		case "name":
			t.Name, err = s.string("name")
		case "parameters":
			t.Parameters, err = s.parameters("parameters")
		case "datatype", "shape", "data":
			r.answered = true
			fallthrough
		default:
			err = s.fail("an output has the unknown key %q, expected name or parameters", httperror.Clip(key))
		}
		return err
	})
	if err != nil {
		return err
	}
	if t.GetName() == "" {
		return s.failAt(began, "an output has no name")
	}
	if _, said := t.GetParameters()[binaryOutput]; said {
		if r.binary[t.GetName()], err = s.takeBool(t.Parameters, binaryOutput); err != nil {
			return err
		}
	}
	if r.message.Outputs = append(r.message.Outputs, t); len(r.message.Outputs) > maxItems {
		return s.fail("more than %d outputs", maxItems)
	}
	return nil
}

// parameters reads an object of strings, numbers and booleans.
func (s *scanner) parameters(what string) (map[string]*inferencepb.InferParameter, error) {
	all := map[string]*inferencepb.InferParameter{}
	err := s.object(what, func(key string) error {
		p := &inferencepb.InferParameter{}
		if all[key] = p; len(all) > maxItems {
			return s.fail("more than %d parameters", maxItems)
		}
		s.peek()
		start := s.at
		switch c := s.peek(); {
		case c == '"':
			text, err := s.string(what)
			p.ParameterChoice = &inferencepb.InferParameter_StringParam{StringParam: text}
			return err
		case c == '-' || c >= '0' && c <= '9':
			text, err := s.number("a number")
			if err != nil {
				return err
			}
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				p.ParameterChoice = &inferencepb.InferParameter_Int64Param{Int64Param: n}
				return nil
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return s.failAt(start, "the parameter %q is out of range", httperror.Clip(key))
			}
			p.ParameterChoice = &inferencepb.InferParameter_DoubleParam{DoubleParam: v}
			return nil
		}
		switch s.word() {
		case "true":
			p.ParameterChoice = &inferencepb.InferParameter_BoolParam{BoolParam: true}
		case "false":
			p.ParameterChoice = &inferencepb.InferParameter_BoolParam{}
		default:
			return s.failAt(start, "the parameter %q is neither a string nor a number nor a boolean", httperror.Clip(key))
		}
		return nil
	})
	return all, err
}

// takeBool removes a boolean from the parameters and returns it. It returns false if the boolean is
// absent.
func (s *scanner) takeBool(from map[string]*inferencepb.InferParameter, key string) (bool, error) {
	p, ok := from[key]
	if !ok {
		return false, nil
	}
	delete(from, key)
	choice, ok := p.GetParameterChoice().(*inferencepb.InferParameter_BoolParam)
	if !ok {
		return false, s.fail("the parameter %s is no boolean", key)
	}
	return choice.BoolParam, nil
}
