package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/ckd-project/ckd/internal/httperror"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// The parameters of Triton's extension for binary tensor data. They belong to HTTP, and are not passed on.
const (
	binarySize   = "binary_data_size"   // of an input, or an output of the answer: it has so many bytes after the JSON
	binaryOutput = "binary_data"        // of an output asked for: whether it is to come so
	binaryAll    = "binary_data_output" // of a request: whether all are
)

// maxItems is how many inputs, outputs or parameters there may be.
const maxItems = 256

// inferRequest is what the body of a request says.
type inferRequest struct {
	message *inferencepb.ModelInferRequest
	binary  map[string]bool // outputs asked for, that say how they are to come
	all     bool            // the others come as binary data

	answered bool   // outputs were found to be tensors
	passes   string // the only tensor that is read; empty: all are
}

// The marks before the datatype of a tensor that the server hands through, and that is
// not read here either: it goes back as it came. A server knows no such datatype, and a
// client of REST cannot send one, for it is marked in its turn.
const (
	asJSON   = "json:"   // the bytes are the text of data
	asBinary = "binary:" // they are binary data
)

// isBinary reports how an output is to come.
func (r *inferRequest) isBinary(output string) bool {
	if is, said := r.binary[output]; said {
		return is
	}
	return r.all
}

// parseInfer reads a body: JSON, and after it the bytes of the inputs that say so. Every input is given its bytes; a
// tensor of JSON may have at most so many. passes is the name of the only tensor that is read, empty for all of them.
//
// The answer of another model is taken for a request, its outputs for the inputs: a graph of KServe passes the answer
// of one step on to the next as it is.
func parseInfer(text, after []byte, most int, passes string) (*inferRequest, error) {
	s := &scanner{data: text}
	r := &inferRequest{message: &inferencepb.ModelInferRequest{}, binary: map[string]bool{}, passes: passes}
	hasInputs, outputs, outputsEnd := false, -1, 0
	err := s.object("the request", func(key string) (err error) {
		m := r.message
		if key != "inputs" && s.null() {
			return nil
		}
		switch key {
		case "id":
			m.Id, err = s.string("id")
		case "parameters":
			m.Parameters, err = s.parameters("parameters")
			if err == nil {
				r.all, err = s.takeBool(m.Parameters, binaryAll)
			}
		case "inputs":
			hasInputs = true
			err = s.array("inputs", func() error { return r.input(s, &after, most) })
		case "outputs":
			outputs, err = s.skip() // they may be tensors of an answer
			outputsEnd = s.at
		case "model_name", "model_version": // some clients say them again; the path counts
			_, err = s.skip()
		default:
			err = s.fail("the request has the unknown key %q, expected id, parameters, inputs or outputs", httperror.Clip(key))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	if outputs >= 0 {
		inner := &scanner{data: text, at: outputs}
		err := inner.array("outputs", func() error { return r.output(inner) })
		if !hasInputs && r.answered {
			*inner, r.message.Outputs, hasInputs = scanner{data: text, at: outputs}, nil, true
			err = inner.array("outputs", func() error { return r.input(inner, &after, most) })
		}
		if err != nil {
			return nil, err
		}
		if inner.at != outputsEnd {
			return nil, inner.fail("the brackets of outputs do not match")
		}
	}
	if !hasInputs {
		return nil, httperror.Invalid("the request has no inputs")
	}
	if len(after) > 0 {
		return nil, httperror.Invalid(fmt.Sprintf("%d bytes of binary data are left over after those of all inputs", len(after)))
	}
	return r, nil
}

// input reads a tensor of the request.
func (r *inferRequest) input(s *scanner, after *[]byte, most int) error {
	t := &inferencepb.ModelInferRequest_InferInputTensor{}
	data, dataEnd, hasShape, began := -1, 0, false, s.at
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
			err = s.array("shape", func() error {
				n, err := s.integer("a dimension")
				if t.Shape = append(t.Shape, n); err == nil && len(t.Shape) > maxRank {
					err = s.fail("shape has more than %d dimensions", maxRank)
				}
				return err
			})
		case "parameters":
			t.Parameters, err = s.parameters("parameters")
		case "data":
			data, err = s.skip() // datatype and shape may come after it
			dataEnd = s.at
		default:
			err = s.fail("an input has the unknown key %q, expected name, datatype, shape, parameters or data", httperror.Clip(key))
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case t.GetName() == "":
		return s.failAt(began, "an input has no name")
	case t.GetDatatype() == "":
		return s.failAt(began, "the input %q has no datatype", httperror.Clip(t.GetName()))
	case !hasShape:
		return s.failAt(began, "the input %q has no shape", httperror.Clip(t.GetName()))
	}
	size, isBinary := t.GetParameters()[binarySize]
	delete(t.GetParameters(), binarySize)
	var raw []byte
	unread := r.passes != "" && t.GetName() != r.passes
	switch {
	case isBinary && data >= 0:
		return s.failAt(data, "the input %q has both data and binary data", httperror.Clip(t.GetName()))
	case isBinary:
		_, ok := size.GetParameterChoice().(*inferencepb.InferParameter_Int64Param)
		n := size.GetInt64Param()
		if !ok || n < 0 || n > int64(len(*after)) {
			return s.failAt(began, "the input %q states %s of %d bytes, and %d are left after the JSON, which ends where %s says",
				httperror.Clip(t.GetName()), binarySize, n, len(*after), headerLength)
		}
		if raw, *after = (*after)[:n:n], (*after)[n:]; unread {
			t.Datatype = asBinary + t.Datatype
		}
	case data >= 0 && unread:
		raw = bytes.TrimSpace(s.data[data:dataEnd])
		if !bytes.HasPrefix(raw, []byte("[")) || !json.Valid(raw) {
			return s.failAt(data, "the data of the input %q is no array of JSON", httperror.Clip(t.GetName()))
		}
		t.Datatype = asJSON + t.Datatype
	case data >= 0:
		inner := &scanner{data: s.data, at: data}
		if raw, err = inner.elements(t, most); err != nil {
			return err
		}
		if inner.at != dataEnd { // skip, which looks at brackets alone, took something else for it
			return inner.fail("the brackets of data do not match")
		}
	case t.GetParameters()["shared_memory_region"].GetStringParam() != "": // the server says what it makes of that
	default:
		return s.failAt(began, "the input %q has no data", httperror.Clip(t.GetName()))
	}
	if r.message.Inputs = append(r.message.Inputs, t); len(r.message.Inputs) > maxItems {
		return s.fail("more than %d inputs", maxItems)
	}
	r.message.RawInputContents = append(r.message.RawInputContents, raw)
	return nil
}

// output reads a tensor that is asked for.
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

// takeBool takes a boolean out of parameters; false where it is not.
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
