package oip

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/oip/internal/contents"
	"github.com/ckd-project/ckd/policy"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// output describes a tensor that a request can ask for.
type output struct {
	name     string
	datatype *datatype
	perClass bool // whether the shape is [N,K], not [N]
	byName   bool // only for requests that name it
	put      func(to *column, of *said)

	// tensor is a tensor of the request that the answer returns unread; nil for outputs of ckd. raw
	// holds its elements if the request has them raw.
	tensor *pb.ModelInferRequest_InferInputTensor
	raw    []byte
}

// datatype is a type of the elements of outputs.
type datatype struct {
	name   string
	triton pb.DataType
	bytes  int // approximate bytes of an element
}

var (
	numbers  = &datatype{"FP64", pb.DataType_TYPE_FP64, 8}
	truths   = &datatype{"BOOL", pb.DataType_TYPE_BOOL, 1}
	integers = &datatype{"INT64", pb.DataType_TYPE_INT64, 8}
	texts    = &datatype{"BYTES", pb.DataType_TYPE_STRING, 24}
	errors   = &datatype{"BYTES", pb.DataType_TYPE_STRING, 256}
	receipts = &datatype{"BYTES", pb.DataType_TYPE_STRING, 4 + receipt.Size}
	names    = &datatype{"BYTES", pb.DataType_TYPE_STRING, 4} // the longest name of a class is added
)

// errorName names the output that says what is wrong with single inputs.
const errorName = "error"

// predictedClass is the output of class names.
var predictedClass = &output{
	name: "predicted_class", datatype: names, put: func(to *column, of *said) { to.text(of.class) },
}

// The outputs for clients that take receipts. A request that asks for receipts must have both; for
// others, such as those that ask for whatever the metadata lists, they are false and empty.
var (
	review = &output{name: "review", datatype: truths, byName: true, put: func(to *column, of *said) { to.truth(of.Review) }}
	sealed = &output{name: "receipt", datatype: receipts, byName: true, put: func(to *column, of *said) { to.text(string(of.Receipt)) }}
)

// outputs lists all outputs of a model, in the order of the metadata. The comment on ModelInferResponse
// in inference.proto explains them.
var outputs = []*output{
	{name: "c", datatype: numbers, perClass: true, put: func(to *column, of *said) { to.numbers(of.C) }},
	{name: "skewness", datatype: numbers, perClass: true, put: func(to *column, of *said) { to.numbers(of.Skewness) }},
	{name: "mean", datatype: numbers, perClass: true, put: func(to *column, of *said) { to.numbers(of.Mean) }},
	{name: "variance", datatype: numbers, perClass: true, put: func(to *column, of *said) { to.numbers(of.Variance) }},
	{name: "m", datatype: numbers, perClass: true, put: func(to *column, of *said) { to.numbers(of.M) }},
	{name: "mi", datatype: numbers, put: func(to *column, of *said) { to.number(of.MI) }},
	{name: "entropy", datatype: numbers, put: func(to *column, of *said) { to.number(of.Entropy) }},
	{name: "sum_c", datatype: numbers, put: func(to *column, of *said) { to.number(of.SumC) }},
	{name: "score", datatype: numbers, put: func(to *column, of *said) { to.number(of.Decision.Value) }},
	{name: "threshold", datatype: numbers, put: func(to *column, of *said) {
		if !of.Decision.HasThreshold {
			to.number(math.NaN())
			return
		}
		to.number(of.Decision.Threshold)
	}},
	{name: "defer", datatype: truths, put: func(to *column, of *said) { to.truth(of.Decision.Action == policy.Defer) }},
	{name: "deciding_class", datatype: integers, put: func(to *column, of *said) { to.integer(int64(of.Decision.Class)) }},
	{name: "reason", datatype: texts, put: func(to *column, of *said) { to.text(of.reason) }},
	{name: "degenerate", datatype: truths, put: func(to *column, of *said) { to.truth(of.Degenerate) }},
	{name: "decision", datatype: texts, put: func(to *column, of *said) { to.text(of.Decision.Action.String()) }},
	{name: "predicted", datatype: integers, put: func(to *column, of *said) { to.integer(int64(of.Predicted)) }},
	predictedClass,
	{name: "risk", datatype: numbers, byName: true, put: func(to *column, of *said) { to.number(of.Risk) }},
	{name: "priority", datatype: numbers, byName: true, put: func(to *column, of *said) { to.number(of.Priority) }},
	{name: "priority_percentile", datatype: numbers, byName: true, put: func(to *column, of *said) { to.number(of.Percentile) }},
	review, sealed,
	{name: errorName, datatype: errors, byName: true, put: func(to *column, of *said) { to.text(of.error) }},
}

// defaults lists the outputs for a request that names none: those with one element for each input,
// except the errors and what only some policies give.
var defaults = slices.DeleteFunc(slices.Clone(outputs), func(o *output) bool { return o.perClass || o.byName })

// outputNames returns the names of all outputs, for messages.
func outputNames() string {
	var names []string
	for _, o := range outputs {
		names = append(names, o.name)
	}
	return strings.Join(names, " ")
}

// shape returns the shape of the output for the given numbers of inputs and classes.
func (o *output) shape(inputs int64, classes int) []int64 {
	if o.perClass {
		return []int64{inputs, int64(classes)}
	}
	return []int64{inputs}
}

// bytes returns about how many bytes the output takes for one input.
func (o *output) bytes(classes int) int {
	if o.perClass {
		return o.datatype.bytes * classes
	}
	return o.datatype.bytes
}

// said holds what the outputs say of one input.
type said struct {
	*server.Decided
	class, reason, error string
}

// answer collects the outputs of a request while its inputs are decided.
type answer struct {
	request *request
	columns []column
	none    *server.Decided // for inputs that were refused
}

// decided adds the outcome of an input.
func (a *answer) decided(d *server.Decided) {
	a.add(&said{d, a.request.classes[d.Predicted], d.Decision.Reason.String(), ""})
}

// refused adds an input that was refused: its decision is to defer, and its numbers are NaN.
func (a *answer) refused(err error) {
	if a.none == nil {
		nan := math.NaN()
		nans := slices.Repeat([]float64{nan}, a.request.call.Classes)
		a.none = &server.Decided{Outcome: &engine.Outcome{
			Result: &decomp.Result{
				C: nans, Skewness: nans, Mean: nans, Variance: nans, M: nans, MI: nan, Entropy: nan, SumC: nan, Predicted: -1,
			},
			Decision:   policy.Decision{Action: policy.Defer, Class: -1, Value: nan},
			Assessment: engine.Unassessed(),
		}}
	}
	a.add(&said{a.none, "", reasonOf(err), status.Convert(err).Message()})
}

// reasonOf returns the reason of an error, as in the label of the metric that counts it.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return strings.ToLower(info.GetReason())
		}
	}
	return ""
}

// add appends what each output says of an input.
func (a *answer) add(s *said) {
	if a.columns == nil {
		a.columns = make([]column, len(a.request.outputs))
	}
	for i, o := range a.request.outputs {
		if o.put != nil {
			o.put(&a.columns[i], s)
		}
	}
}

// addTo adds the tensors to the response. A tensor that is handed through always has the form that
// it has in the request, and for most datatypes the other form too. If one of them lacks the form
// that the request asks for, all tensors come in the other form.
func (a *answer) addTo(r *pb.ModelInferResponse) {
	if !a.format(r, a.request.typed) {
		a.format(r, !a.request.typed)
	}
}

// format adds the tensors to the response in one form, and reports whether all of them have it.
func (a *answer) format(r *pb.ModelInferResponse, typed bool) (ok bool) {
	r.Outputs, r.RawOutputContents = nil, nil
	for i, o := range a.request.outputs {
		tensor := &pb.ModelInferResponse_InferOutputTensor{Name: o.name}
		var raw []byte
		isTyped := false
		switch {
		case o.tensor == nil:
			tensor.Datatype, tensor.Shape = o.datatype.name, o.shape(int64(a.request.call.Tensor.Inputs), a.request.call.Classes)
			if a.columns != nil {
				raw = a.columns[i]
			}
		default:
			tensor.Datatype, tensor.Shape, tensor.Parameters = o.tensor.GetDatatype(), o.tensor.GetShape(), o.tensor.GetParameters()
			raw, isTyped = o.raw, !a.request.raw
		}
		switch {
		case typed && isTyped:
			tensor.Contents, ok = o.tensor.GetContents(), true
		case typed:
			tensor.Contents, ok = contents.Typed(raw, tensor.GetDatatype())
		case isTyped:
			raw, ok = contents.Raw(o.tensor.GetContents(), tensor.GetDatatype())
		default:
			ok = true
		}
		if !ok {
			return false
		}
		if r.Outputs = append(r.Outputs, tensor); !typed {
			r.RawOutputContents = append(r.RawOutputContents, raw)
		}
	}
	return true
}

// column holds the elements of one output, as little-endian bytes.
type column []byte

func (c *column) number(v float64) { *c = binary.LittleEndian.AppendUint64(*c, math.Float64bits(v)) }

func (c *column) numbers(vs []float64) {
	for _, v := range vs {
		c.number(v)
	}
}

func (c *column) integer(v int64) { *c = binary.LittleEndian.AppendUint64(*c, uint64(v)) }

func (c *column) truth(v bool) {
	if v {
		*c = append(*c, 1)
	} else {
		*c = append(*c, 0)
	}
}

// text appends a text with its length before it.
func (c *column) text(v string) {
	*c = append(binary.LittleEndian.AppendUint32(*c, uint32(len(v))), v...)
}
