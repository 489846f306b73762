package oip

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/oip/internal/contents"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// passesName names the tensor with the passes by default: see policy.Policy.Tensor.
const passesName = policy.DefaultTensor

// inputShape returns the shape of the tensor with the passes, in the default layout.
func inputShape(p *policy.Policy) []int64 {
	passes := int64(-1)
	if p.Kind == policy.Dirichlet {
		passes = 1
	}
	return []int64{-1, passes, int64(len(p.Classes))}
}

// request holds a ModelInferRequest in terms of package server.
type request struct {
	message   *pb.ModelInferRequest
	call      server.Call
	violation *server.Violation
	classes   []string // classes of the policy that decides
	tensor    int      // index of the tensor with the passes
	outputs   []*output
	raw       bool // whether the tensors are raw bytes
	typed     bool // whether the tensors of the answer have typed contents
}

// read reads what needs no policy of a request. It expects the tensor with the passes under its
// default name. After a violation, the request holds what was understood of it.
func read(r *pb.ModelInferRequest) (*request, *server.Violation) {
	q := &request{message: r}
	q.read(passesName)
	return q, q.violation
}

// complete completes the request by the policy that decides: see server.Call.
func (q *request) complete(p *policy.Policy) *server.Violation {
	if p.Tensor != passesName {
		q.read(p.Tensor)
	}
	q.classes = p.Classes
	if slices.Contains(q.outputs, predictedClass) {
		longest := 0
		for _, class := range p.Classes {
			longest = max(longest, len(class))
		}
		q.call.ReplyBytes += longest
	}
	return q.violation
}

// read reads the request, whose passes are in the tensor of a name.
func (q *request) read(name string) {
	r := q.message
	*q = request{message: r, raw: len(r.GetRawInputContents()) > 0}
	q.call.Model, q.call.Version, q.call.Complete = r.GetModelName(), r.GetModelVersion(), q.complete
	if q.violation = q.find(r.GetInputs(), name); q.violation != nil {
		return
	}
	for _, step := range []func(*pb.ModelInferRequest, *pb.ModelInferRequest_InferInputTensor) *server.Violation{
		q.readParameters, q.readShape, q.readValues, q.readOutputs,
	} {
		if q.violation = step(r, r.GetInputs()[q.tensor]); q.violation != nil {
			return
		}
	}
}

// find finds the tensor of a name.
func (q *request) find(tensors []*pb.ModelInferRequest_InferInputTensor, name string) *server.Violation {
	var names []string
	found := 0
	for i, t := range tensors {
		if names = append(names, strconv.Quote(t.GetName())); t.GetName() == name {
			q.tensor = i
			found++
		}
	}
	switch {
	case found == 1:
		return nil
	case len(tensors) == 0:
		return wrong("inputs", "0 tensors", "one, named "+name)
	case len(tensors) == 1:
		return wrong("inputs[0].name", names[0], name)
	}
	return wrong("inputs", fmt.Sprintf("%d tensors, %s", len(tensors), strings.Join(names, " ")), "one of them, and no more, named "+name)
}

// field returns the path of a field of the tensor with the passes.
func (q *request) field(name string) string { return fmt.Sprintf("inputs[%d].%s", q.tensor, name) }

// wrong returns the violation of a wrong tensor.
func wrong(field, got, expected string) *server.Violation {
	return &server.Violation{Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_TENSOR, Field: field, Got: got, Expected: expected}
}

// parameter is a parameter that ckd reads. It ignores all others: on its way through a graph of
// models a request may carry parameters for other models.
type parameter struct {
	name   string
	reason ckdv1.ErrorReason // reason for a wrong value
	values string            // the values that it takes, in words
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
	{"receipts", ckdv1.ErrorReason_ERROR_REASON_WRONG_PARAMETER, "reviewed or all", func(c *server.Call, value string) bool {
		which, ok := enum(ckdv1.Receipts_value, "RECEIPTS_", value)
		c.Receipts = ckdv1.Receipts(which)
		return ok
	}},
	{"model_version", ckdv1.ErrorReason_ERROR_REASON_WRONG_CONTEXT, "a text", func(c *server.Call, value string) bool {
		c.ModelVersion = value
		return true
	}},
}

// refusedParameters lists parameters that ask for features ckd does not have. They are refused
// because a client that sets one would wait for its effect in vain.
var refusedParameters = []string{
	"classification", "sequence_end", "sequence_id", "sequence_start",
	"shared_memory_byte_size", "shared_memory_offset", "shared_memory_region",
}

// enum returns the number of an enum value by its short name: LAYOUT_NSK by nsk.
func enum(values map[string]int32, prefix, word string) (int32, bool) {
	number := values[prefix+strings.TrimPrefix(strings.ToUpper(word), prefix)]
	return number, number != 0
}

// binaryAll names the parameter of a request that asks for raw tensors in the answer, or for typed ones.
const binaryAll = "binary_data_output"

// readParameters reads the parameters of the request and of its tensor. Those of the tensor win.
func (q *request) readParameters(r *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Violation {
	q.call.Tensor.Layout = decomp.NSK
	for _, of := range []struct {
		field string
		sent  map[string]*pb.InferParameter
	}{{"", r.GetParameters()}, {q.field(""), t.GetParameters()}} {
		for _, p := range parameters {
			value, there := of.sent[p.name]
			if !there {
				continue
			}
			text, ok := value.GetParameterChoice().(*pb.InferParameter_StringParam)
			if !ok || !p.set(&q.call, text.StringParam) {
				return &server.Violation{
					Reason: p.reason, Field: of.field + "parameters." + p.name, Got: show(value), Expected: p.values,
				}
			}
		}
	}
	if violation := checkRefused("", r.GetParameters()); violation != nil {
		return violation
	}
	for i, other := range r.GetInputs() { // some of which have no values in the request
		if violation := checkRefused(fmt.Sprintf("inputs[%d].", i), other.GetParameters()); violation != nil {
			return violation
		}
	}
	for i, asked := range r.GetOutputs() {
		if violation := checkRefused(fmt.Sprintf("outputs[%d].", i), asked.GetParameters()); violation != nil {
			return violation
		}
	}
	return nil
}

// checkRefused refuses a parameter that asks for what ckd does not do. false and 0 ask for nothing.
func checkRefused(field string, sent map[string]*pb.InferParameter) *server.Violation {
	for _, name := range refusedParameters {
		p, there := sent[name]
		if !there || slices.Contains([]string{"no value", "0", "false", `""`}, show(p)) {
			continue
		}
		return &server.Violation{
			Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_PARAMETER, Field: field + "parameters." + name, Got: show(p),
			Expected: "no such parameter, for ckd does not do what it asks for",
		}
	}
	return nil
}

// show returns the value of a parameter as text.
func show(p *pb.InferParameter) string {
	m := p.ProtoReflect()
	choice := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	if choice == nil {
		return "no value"
	}
	if text, ok := m.Get(choice).Interface().(string); ok {
		return strconv.Quote(text)
	}
	return m.Get(choice).String()
}

// readShape reads the shape [N,S,K], or [S,N,K] in the layout SNK.
func (q *request) readShape(_ *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Violation {
	shape := t.GetShape()
	if len(shape) != 3 || slices.ContainsFunc(shape, func(n int64) bool { return n < 0 || n > math.MaxInt32 }) {
		expected := "[inputs passes classes]"
		if q.call.Tensor.Layout == decomp.SNK {
			expected = "[passes inputs classes]"
		}
		return wrong(q.field("shape"), fmt.Sprint(shape), expected)
	}
	q.call.Tensor.Inputs, q.call.Tensor.Passes, q.call.Classes = int(shape[0]), int(shape[1]), int(shape[2])
	if q.call.Tensor.Layout == decomp.SNK {
		q.call.Tensor.Inputs, q.call.Tensor.Passes = q.call.Tensor.Passes, q.call.Tensor.Inputs
	}
	return nil
}

// readValues finds the values and checks that they are as many as the shape says. Decide reads them
// later.
func (q *request) readValues(r *pb.ModelInferRequest, t *pb.ModelInferRequest_InferInputTensor) *server.Violation {
	element, known := elements[t.GetDatatype()]
	if !known {
		return wrong(q.field("datatype"), strconv.Quote(t.GetDatatype()), "FP32, FP64, FP16 or BF16")
	}
	q.call.Tensor.SumRounding = element.rounding
	if !q.raw {
		return q.readContents(t, element)
	}
	for i, one := range r.GetInputs() {
		if n := contents.Count(one.GetContents()); n > 0 {
			return &server.Violation{
				Reason: ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS, Field: fmt.Sprintf("inputs[%d].contents", i),
				Got: fmt.Sprintf("%d values beside raw_input_contents", n), Expected: "one of the two",
			}
		}
	}
	if got := len(r.GetRawInputContents()); got != len(r.GetInputs()) {
		return wrongLength("raw_input_contents", fmt.Sprintf("%d tensors", got), "one for each of inputs")
	}
	raw := r.GetRawInputContents()[q.tensor]
	if len(raw)%element.size != 0 || !isProduct(len(raw)/element.size, t.GetShape()) {
		return wrongLength(fmt.Sprintf("raw_input_contents[%d]", q.tensor), fmt.Sprintf("%d bytes", len(raw)),
			fmt.Sprintf("%d for each value of shape %v", element.size, t.GetShape()))
	}
	q.setValues(len(raw)/element.size, element.double, func(to *decomp.Tensor) { element.read(to, raw) })
	return nil
}

// readContents finds the values of a tensor whose values are typed.
func (q *request) readContents(t *pb.ModelInferRequest_InferInputTensor, e element) *server.Violation {
	if e.contents == "" {
		return wrong(q.field("datatype"), strconv.Quote(t.GetDatatype()), "FP32 or FP64, but for raw_input_contents")
	}
	single, double := t.GetContents().GetFp32Contents(), t.GetContents().GetFp64Contents()
	got := len(single)
	if e.double {
		got = len(double)
	}
	if all := contents.Count(t.GetContents()); all != got || !isProduct(got, t.GetShape()) {
		return wrongLength(q.field("contents"), fmt.Sprintf("%d values, %d of them in %s", all, got, e.contents),
			fmt.Sprintf("those of shape %v in %s", t.GetShape(), e.contents))
	}
	q.setValues(got, e.double, func(to *decomp.Tensor) { to.Float32, to.Float64 = single, double })
	return nil
}

// setValues sets how n values are read when there is room for them.
func (q *request) setValues(n int, double bool, read func(*decomp.Tensor)) {
	q.call.Bytes, q.call.Read = 4*n, read
	if double {
		q.call.Bytes = 8 * n
	}
}

// readOutputs finds the outputs that the request names: outputs of ckd, and other tensors of the
// request. A request that names none gets the defaults and all its other tensors, except those with
// the name of an output of ckd.
func (q *request) readOutputs(r *pb.ModelInferRequest, _ *pb.ModelInferRequest_InferInputTensor) *server.Violation {
	if p, there := r.GetParameters()[binaryAll]; there {
		choice, ok := p.GetParameterChoice().(*pb.InferParameter_BoolParam)
		if !ok {
			return &server.Violation{
				Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_PARAMETER, Field: "parameters." + binaryAll, Got: show(p),
				Expected: "true or false",
			}
		}
		q.typed = !choice.BoolParam
	}
	others := q.others(r)
	for i, asked := range r.GetOutputs() {
		field := fmt.Sprintf("outputs[%d].", i)
		named := func(o *output) bool { return o.name == asked.GetName() }
		from := outputs
		at := slices.IndexFunc(from, named)
		if at < 0 {
			from, at = others, slices.IndexFunc(others, named)
		}
		if at < 0 {
			return wrong(field+"name", strconv.Quote(asked.GetName()), "one of "+outputNames()+", or of the request's other tensors")
		}
		if slices.Contains(q.outputs, from[at]) {
			return wrong(field+"name", strconv.Quote(asked.GetName())+" again", "every output once")
		}
		q.outputs = append(q.outputs, from[at])
	}
	asks := q.call.Receipts != ckdv1.Receipts_RECEIPTS_UNSPECIFIED
	if len(q.outputs) == 0 {
		q.outputs = slices.Concat(defaults, others)
		if asks {
			q.outputs = append(q.outputs, review, sealed)
		}
	}
	if violation := q.checkReceipts(asks); violation != nil {
		return violation
	}
	q.call.AllOrNone = true
	for _, o := range q.outputs {
		if o.tensor != nil {
			q.call.Handed += proto.Size(o.tensor) + len(o.raw)
			continue
		}
		q.call.ReplyBytes += o.bytes(q.call.Classes)
		if o.name == errorName {
			q.call.AllOrNone = false
		}
	}
	return nil
}

// checkReceipts refuses a request that would have audits drawn without hearing of them.
func (q *request) checkReceipts(asks bool) *server.Violation {
	if !asks || slices.Contains(q.outputs, review) && slices.Contains(q.outputs, sealed) {
		return nil
	}
	return &server.Violation{
		Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_PARAMETER, Field: "parameters.receipts", Got: "a value",
		Expected: "the outputs review and receipt too, or no value",
	}
}

// others returns the tensors of the request that can be handed through.
func (q *request) others(r *pb.ModelInferRequest) []*output {
	var others []*output
	for i, t := range r.GetInputs() {
		if i == q.tensor || slices.ContainsFunc(outputs, func(o *output) bool { return o.name == t.GetName() }) {
			continue
		}
		o := &output{name: t.GetName(), tensor: t}
		if q.raw {
			o.raw = r.GetRawInputContents()[i]
		}
		others = append(others, o)
	}
	return others
}

// wrongLength returns the violation of a wrong number of values.
func wrongLength(field, got, expected string) *server.Violation {
	return &server.Violation{Reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, Field: field, Got: got, Expected: expected}
}

// isProduct reports whether n is the product of three numbers below 2^31.
func isProduct(n int, of []int64) bool {
	first, last := of[0]*of[1], of[2]
	if last == 0 {
		return n == 0
	}
	return int64(n)%last == 0 && int64(n)/last == first
}
