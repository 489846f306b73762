package inference

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// passesName is the name of the one input tensor.
const passesName = "passes"

// inputShape is its shape in the default layout.
func inputShape(m *ckdv1.Model) []int64 {
	passes := int64(-1)
	if m.GetKind() == ckdv1.Kind_KIND_DIRICHLET {
		passes = 1
	}
	return []int64{-1, passes, int64(len(m.GetClasses()))}
}

// request is what a ModelInferRequest asks.
type request struct {
	call    server.Call
	outputs []*output
	raw     bool // the tensors, and so those of the answer, are bytes
}

// read reads a request as far as no policy is needed for it. After a fault, the
// request has what was understood of it.
func read(r *pb.ModelInferRequest) (*request, *server.Fault) {
	q := &request{raw: len(r.GetRawInputContents()) > 0}
	q.call.Model, q.call.Version = r.GetModelName(), r.GetModelVersion()
	if got := len(r.GetInputs()); got != 1 {
		return q, wrong("inputs", fmt.Sprintf("%d tensors", got), "one, named "+passesName)
	}
	tensor := r.GetInputs()[0]
	if got := tensor.GetName(); got != passesName {
		return q, wrong("inputs[0].name", strconv.Quote(got), passesName)
	}
	for _, step := range []func(*pb.ModelInferRequest, *pb.ModelInferRequest_InferInputTensor) *server.Fault{
		q.readParameters, q.readShape, q.readValues, q.readOutputs,
	} {
		if fault := step(r, tensor); fault != nil {
			return q, fault
		}
	}
	return q, nil
}

func wrong(field, got, expected string) *server.Fault {
	return &server.Fault{Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_TENSOR, Field: field, Got: got, Expected: expected}
}

// parameter is one that ckd knows. Every other is ignored: what travels with a
// request on its way through a graph of models may be meant for others.
type parameter struct {
	name   string
	reason ckdv1.ErrorReason // of a value that it cannot have
	values string            // that it can have
	set    func(c *server.Call, value string) bool
}

var parameters = []parameter{
	{"layout", ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, "NSK or SNK", func(c *server.Call, value string) bool {
		layout, ok := enum(ckdv1.Layout_value, "LAYOUT_", value)
		if c.Tensor.Layout = decomp.NSK; layout == int32(ckdv1.Layout_LAYOUT_SNK) {
			c.Tensor.Layout = decomp.SNK
		}
		return ok
	}},
	{"kind", ckdv1.ErrorReason_ERROR_REASON_WRONG_KIND, "probabilities, logits or dirichlet", func(c *server.Call, value string) bool {
		kind, ok := enum(ckdv1.Kind_value, "KIND_", value)
		c.Kind = ckdv1.Kind(kind)
		return ok
	}},
	{"posterior", ckdv1.ErrorReason_ERROR_REASON_WRONG_POSTERIOR, "a name", func(c *server.Call, value string) bool {
		c.Posterior = value
		return true
	}},
}

// refusedParameters ask for what is not done here, and would be missed.
var refusedParameters = []string{
	"classification", "sequence_end", "sequence_id", "sequence_start",
	"shared_memory_byte_size", "shared_memory_offset", "shared_memory_region",
}

// enum is the number of a word of ours: LAYOUT_NSK of nsk.
func enum(values map[string]int32, prefix, word string) (int32, bool) {
	number := values[prefix+strings.TrimPrefix(strings.ToUpper(word), prefix)]
	return number, number != 0
}

// readParameters reads those of the request, and of the tensor, which win.
func (q *request) readParameters(r *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Fault {
	q.call.Tensor.Layout = decomp.NSK
	for _, of := range []struct {
		field string
		sent  map[string]*pb.InferParameter
	}{{"", r.GetParameters()}, {"inputs[0].", t.GetParameters()}} {
		if fault := checkRefused(of.field, of.sent); fault != nil {
			return fault
		}
		for _, p := range parameters {
			value, there := of.sent[p.name]
			if !there {
				continue
			}
			text, ok := value.GetParameterChoice().(*pb.InferParameter_StringParam)
			if !ok || !p.set(&q.call, text.StringParam) {
				return &server.Fault{
					Reason: p.reason, Field: of.field + "parameters." + p.name, Got: show(value), Expected: p.values,
				}
			}
		}
	}
	return nil
}

// checkRefused refuses a parameter that asks for something. What clients send
// when they mean no, false or 0, asks for nothing.
func checkRefused(field string, sent map[string]*pb.InferParameter) *server.Fault {
	for _, name := range refusedParameters {
		p, there := sent[name]
		if !there || slices.Contains([]string{"no value", "0", "false", `""`}, show(p)) {
			continue
		}
		return &server.Fault{
			Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_PARAMETER, Field: field + "parameters." + name, Got: show(p),
			Expected: "no such parameter, for ckd does not do what it asks for",
		}
	}
	return nil
}

// show is the value of a parameter.
func show(p *pb.InferParameter) string {
	switch v := p.GetParameterChoice().(type) {
	case *pb.InferParameter_BoolParam:
		return strconv.FormatBool(v.BoolParam)
	case *pb.InferParameter_Int64Param:
		return strconv.FormatInt(v.Int64Param, 10)
	case *pb.InferParameter_Uint64Param:
		return strconv.FormatUint(v.Uint64Param, 10)
	case *pb.InferParameter_DoubleParam:
		return strconv.FormatFloat(v.DoubleParam, 'g', -1, 64)
	case *pb.InferParameter_StringParam:
		return strconv.Quote(v.StringParam)
	}
	return "no value"
}

// readShape reads [N,S,K], or [S,N,K] if that is the layout.
func (q *request) readShape(_ *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Fault {
	shape := t.GetShape()
	if len(shape) != 3 || slices.ContainsFunc(shape, func(n int64) bool { return n < 0 || n > math.MaxInt32 }) {
		expected := "[inputs passes classes]"
		if q.call.Tensor.Layout == decomp.SNK {
			expected = "[passes inputs classes]"
		}
		return wrong("inputs[0].shape", fmt.Sprint(shape), expected)
	}
	q.call.Tensor.Inputs, q.call.Tensor.Passes, q.call.Classes = int(shape[0]), int(shape[1]), int(shape[2])
	if q.call.Tensor.Layout == decomp.SNK {
		q.call.Tensor.Inputs, q.call.Tensor.Passes = q.call.Tensor.Passes, q.call.Tensor.Inputs
	}
	return nil
}

// readValues finds the values, and sees to it that they are as many as the shape
// has. They are read later.
func (q *request) readValues(r *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Fault {
	element, known := elements[t.GetDatatype()]
	if !known {
		return wrong("inputs[0].datatype", strconv.Quote(t.GetDatatype()), "FP32, FP64, FP16 or BF16")
	}
	q.call.Tensor.SumRounding = element.rounding
	if !q.raw {
		return q.readContents(t, element)
	}
	if n := countContents(t.GetContents()); n > 0 {
		return &server.Fault{
			Reason: ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS, Field: "inputs[0].contents",
			Got: fmt.Sprintf("%d values beside raw_input_contents", n), Expected: "one of the two",
		}
	}
	if got := len(r.GetRawInputContents()); got != 1 {
		return wrongLength("raw_input_contents", fmt.Sprintf("%d tensors", got), "one for each of inputs")
	}
	raw := r.GetRawInputContents()[0]
	if len(raw)%element.size != 0 || !isProduct(len(raw)/element.size, t.GetShape()) {
		return wrongLength("raw_input_contents[0]", fmt.Sprintf("%d bytes", len(raw)),
			fmt.Sprintf("%d for each value of shape %v", element.size, t.GetShape()))
	}
	q.setValues(len(raw)/element.size, element.double, func(to *decomp.Tensor) { element.read(to, raw) })
	return nil
}

// readContents is readValues of a tensor that has its values with it.
func (q *request) readContents(t *pb.ModelInferRequest_InferInputTensor, e element) *server.Fault {
	if e.contents == "" {
		return wrong("inputs[0].datatype", strconv.Quote(t.GetDatatype()), "FP32 or FP64, but for raw_input_contents")
	}
	single, double := t.GetContents().GetFp32Contents(), t.GetContents().GetFp64Contents()
	got := len(single)
	if e.double {
		got = len(double)
	}
	if all := countContents(t.GetContents()); all != got || !isProduct(got, t.GetShape()) {
		return wrongLength("inputs[0].contents", fmt.Sprintf("%d values, %d of them in %s", all, got, e.contents),
			fmt.Sprintf("those of shape %v in %s", t.GetShape(), e.contents))
	}
	q.setValues(got, e.double, func(to *decomp.Tensor) { to.Float32, to.Float64 = single, double })
	return nil
}

// setValues says how n values are read, when there is room.
func (q *request) setValues(n int, double bool, read func(*decomp.Tensor)) {
	q.call.Bytes, q.call.Read = 4*n, read
	if double {
		q.call.Bytes = 8 * n
	}
}

// readOutputs finds the outputs that are asked for.
func (q *request) readOutputs(r *pb.ModelInferRequest, _ *pb.ModelInferRequest_InferInputTensor) *server.Fault {
	for i, asked := range r.GetOutputs() {
		field := fmt.Sprintf("outputs[%d]", i)
		at := slices.IndexFunc(outputs, func(o *output) bool { return o.name == asked.GetName() })
		if at < 0 {
			return wrong(field+".name", strconv.Quote(asked.GetName()), "one of "+outputNames())
		}
		if slices.Contains(q.outputs, outputs[at]) {
			return wrong(field+".name", strconv.Quote(asked.GetName())+" again", "every output once")
		}
		if fault := checkRefused(field+".", asked.GetParameters()); fault != nil {
			return fault
		}
		q.outputs = append(q.outputs, outputs[at])
	}
	if len(q.outputs) == 0 {
		q.outputs = defaults
	}
	q.call.AllOrNone = true
	for _, o := range q.outputs {
		q.call.ReplyBytes += o.bytes(q.call.Classes)
		if o.name == errorName {
			q.call.AllOrNone = false
		}
	}
	return nil
}

func wrongLength(field, got, expected string) *server.Fault {
	return &server.Fault{Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, Field: field, Got: got, Expected: expected}
}

// isProduct reports whether n is the product of three numbers below 2^31.
func isProduct(n int, of []int64) bool {
	first, last := of[0]*of[1], of[2]
	if last == 0 {
		return n == 0
	}
	return int64(n)%last == 0 && int64(n)/last == first
}

// countContents is the number of values in all fields.
func countContents(c *pb.InferTensorContents) int {
	return len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
}
