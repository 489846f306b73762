package inference

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	pb "github.com/ckd-project/ckd/proto/inference"
)

// output is a tensor that can be asked for.
type output struct {
	name     string
	datatype *datatype
	perClass bool // [N,K], or else [N]
	put      func(to *column, of *said)
}

// datatype is a type of the elements of outputs.
type datatype struct {
	name   string
	triton pb.DataType
	bytes  int // of an element, about
}

var (
	numbers  = &datatype{"FP64", pb.DataType_TYPE_FP64, 8}
	truths   = &datatype{"BOOL", pb.DataType_TYPE_BOOL, 1}
	integers = &datatype{"INT64", pb.DataType_TYPE_INT64, 8}
	texts    = &datatype{"BYTES", pb.DataType_TYPE_STRING, 24}
	errors   = &datatype{"BYTES", pb.DataType_TYPE_STRING, 256}
)

// errorName is the output that asks for what is wrong with single inputs.
const errorName = "error"

// outputs are all tensors that can be asked for, in the order in which clients
// are told of them. docs/inference.md explains them.
var outputs = []*output{
	{"c", numbers, true, func(to *column, of *said) { to.numbers(of.C) }},
	{"skewness", numbers, true, func(to *column, of *said) { to.numbers(of.Skewness) }},
	{"mean", numbers, true, func(to *column, of *said) { to.numbers(of.Mean) }},
	{"variance", numbers, true, func(to *column, of *said) { to.numbers(of.Variance) }},
	{"m", numbers, true, func(to *column, of *said) { to.numbers(of.M) }},
	{"mi", numbers, false, func(to *column, of *said) { to.number(of.MI) }},
	{"entropy", numbers, false, func(to *column, of *said) { to.number(of.Entropy) }},
	{"sum_c", numbers, false, func(to *column, of *said) { to.number(of.SumC) }},
	{"score", numbers, false, func(to *column, of *said) { to.number(of.Decision.Value) }},
	{"threshold", numbers, false, func(to *column, of *said) {
		if !of.Decision.HasThreshold {
			to.number(math.NaN())
			return
		}
		to.number(of.Decision.Threshold)
	}},
	{"defer", truths, false, func(to *column, of *said) { to.truth(of.Decision.Action == policy.Defer) }},
	{"deciding_class", integers, false, func(to *column, of *said) { to.integer(int64(of.Decision.Class)) }},
	{"reason", texts, false, func(to *column, of *said) { to.text(of.reason) }},
	{"degenerate", truths, false, func(to *column, of *said) { to.truth(of.Degenerate) }},
	{"decision", texts, false, func(to *column, of *said) { to.text(of.Decision.Action.String()) }},
	{errorName, errors, false, func(to *column, of *said) { to.text(of.error) }},
}

// defaults are the outputs of a request that names none: those with one element
// for each input, but for the errors.
var defaults = slices.DeleteFunc(slices.Clone(outputs), func(o *output) bool { return o.perClass || o.name == errorName })

// outputNames is the names of all, for people.
func outputNames() string {
	var names []string
	for _, o := range outputs {
		names = append(names, o.name)
	}
	return strings.Join(names, " ")
}

// shape of the output for so many inputs.
func (o *output) shape(inputs int64, classes int) []int64 {
	if o.perClass {
		return []int64{inputs, int64(classes)}
	}
	return []int64{inputs}
}

// bytes is about what the output takes for one input.
func (o *output) bytes(classes int) int {
	if o.perClass {
		return o.datatype.bytes * classes
	}
	return o.datatype.bytes
}

// said is what outputs say of one input.
type said struct {
	*engine.Outcome
	reason, error string
}

// answer is the outputs of a request, as its inputs are decided.
type answer struct {
	request *request
	columns []*column
	none    *engine.Outcome // of an input that was refused
}

func newAnswer(q *request) *answer {
	a := &answer{request: q}
	for range q.outputs {
		a.columns = append(a.columns, &column{raw: q.raw, contents: &pb.InferTensorContents{}})
	}
	return a
}

// decided adds an outcome.
func (a *answer) decided(o *engine.Outcome) { a.add(&said{o, o.Decision.Reason.String(), ""}) }

// refused adds an input that was refused: it is to be deferred, and what is not
// known of it is no number.
func (a *answer) refused(err error) {
	if a.none == nil {
		nan := math.NaN()
		nans := slices.Repeat([]float64{nan}, a.request.call.Classes)
		a.none = &engine.Outcome{
			Result: &decomp.Result{
				C: nans, Skewness: nans, Mean: nans, Variance: nans, M: nans, MI: nan, Entropy: nan, SumC: nan,
			},
			Decision: policy.Decision{Action: policy.Defer, Class: -1, Value: nan},
		}
	}
	a.add(&said{a.none, reasonOf(err), status.Convert(err).Message()})
}

// reasonOf is the reason of an error, as the label of the metric that counts it.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return strings.ToLower(info.GetReason())
		}
	}
	return ""
}

func (a *answer) add(s *said) {
	for i, o := range a.request.outputs {
		o.put(a.columns[i], s)
	}
}

// addTo completes the response.
func (a *answer) addTo(r *pb.ModelInferResponse) {
	for i, o := range a.request.outputs {
		tensor := &pb.ModelInferResponse_InferOutputTensor{
			Name: o.name, Datatype: o.datatype.name, Shape: o.shape(int64(a.request.call.Tensor.Inputs), a.request.call.Classes),
		}
		if a.request.raw {
			r.RawOutputContents = append(r.RawOutputContents, a.columns[i].bytes)
		} else {
			tensor.Contents = a.columns[i].contents
		}
		r.Outputs = append(r.Outputs, tensor)
	}
}

// column is the elements of one output, raw or typed.
type column struct {
	raw      bool
	bytes    []byte
	contents *pb.InferTensorContents
}

func (c *column) number(v float64) {
	if c.raw {
		c.bytes = binary.LittleEndian.AppendUint64(c.bytes, math.Float64bits(v))
	} else {
		c.contents.Fp64Contents = append(c.contents.Fp64Contents, v)
	}
}

func (c *column) numbers(vs []float64) {
	for _, v := range vs {
		c.number(v)
	}
}

func (c *column) integer(v int64) {
	if c.raw {
		c.bytes = binary.LittleEndian.AppendUint64(c.bytes, uint64(v))
	} else {
		c.contents.Int64Contents = append(c.contents.Int64Contents, v)
	}
}

func (c *column) truth(v bool) {
	switch {
	case !c.raw:
		c.contents.BoolContents = append(c.contents.BoolContents, v)
	case v:
		c.bytes = append(c.bytes, 1)
	default:
		c.bytes = append(c.bytes, 0)
	}
}

// text has its length before it where it is raw.
func (c *column) text(v string) {
	if c.raw {
		c.bytes = append(binary.LittleEndian.AppendUint32(c.bytes, uint32(len(v))), v...)
	} else {
		c.contents.BytesContents = append(c.contents.BytesContents, []byte(v))
	}
}
