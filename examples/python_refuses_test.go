package examples_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// untouched fakes a daemon of three classes, and counts the inputs that it receives.
type untouched struct {
	ckdv1.UnimplementedUncertaintyServiceServer
	streams, sent atomic.Int64
}

func (u *untouched) GetModel(context.Context, *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	model := &ckdv1.Model{Policy: &ckdv1.PolicyRef{Model: "m", Hash: "1"}, Classes: []string{"x", "y", "z"}}
	return &ckdv1.GetModelResponse{Model: model}, nil
}

func (u *untouched) Decompose(context.Context, *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	u.sent.Add(1)
	return &ckdv1.DecomposeResponse{}, nil
}

func (u *untouched) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	u.streams.Add(1)
	info := &ckdv1.StreamInfo{Classes: []string{"x", "y", "z"}, ExpectedPasses: 2}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: info}); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if request.GetBlock() != nil {
			u.sent.Add(1)
		}
	}
}

// refusals calls the Python client wrongly in many ways and checks each message.
const refusals = `
class Tensor:
    """What a tensor on an accelerator does."""
    dtype, device, shape, ndim = "float32", "cuda:0", (2, 2, 3), 3
    def detach(self): return self
    def numpy(self): raise TypeError("can't convert cuda:0 device type tensor to numpy")
    def __array__(self, *args, **kwargs): return self.numpy()

class Opaque:
    def numpy(self): raise TypeError("no")

ones = numpy.full((2, 2, 3), 1 / 3)
every = [  # of decompose; the last words are in the sentence
    (ones[0], None, "values have the shape (2, 3), expected three axes: [passes, inputs, classes]"),
    (ones[:, :, :2], None, "values have 2 classes, expected the 3 classes x, y, z of model 'm'"),
    (ones, ["a"], "found 1 ids for 2 passes of 2 inputs ([passes, inputs, classes]), expected one for each input"),
    (ones[:, :1], "ab", "expected one for each input (are the axes [inputs, passes, classes]? Then say layout='nsk')"),
    (ones, numpy.arange(2), "(int64 (dtype int64)), expected a str"),
    (ones, ["a", b"b"], "id 1 is b'b' (bytes), expected a str"),
    (ones, ["a", "a"], "ids 0 and 1 are both 'a', expected each id once"),
    (Tensor(), None, "values: found Tensor (dtype float32, device cuda:0): can't convert cuda:0 device type tensor to numpy; expected an array of float16, float32 or float64 in the memory of the CPU (.detach()"),
    (Opaque(), None, "values: found Opaque, of which NumPy makes object; expected an array"),
    (None, None, "values: found NoneType"),
    (ones > 0, None, "values: found ndarray (dtype bool)"),
    ([[[0.5, 0.5], [1.0]]], None, "values: found list"),
]
streamed = [  # of decide
    ("ab", ones[0], "passes have the shape (2, 3), expected three axes: [passes, inputs, classes]"),
    ("abc", ones, "found 3 ids for 2 passes of 2 inputs"),
    ("a", ones[:1], "expected one for each input (are the axes [inputs, passes, classes]? Then say layout='nsk')"),
    ([7, 8], ones, "id 0 is 7 (int), expected a str"),
    (["a", "b", "a"], ones, "ids 0 and 2 are both 'a'"),
    ("ab", Tensor(), "passes: found Tensor (dtype float32, device cuda:0)"),
    ("ab", 3, "found int, expected a function of rows, or an array [passes, inputs, classes]"),
    ("ab", [ones[0], ones[0, :1]], "pass 1 has the shape (1, 3), expected (2, classes)"),
    ("ab", ones[:, :, :2], "pass 0 has the shape (2, 2), expected (2, 3): 2 inputs and the 3 classes x, y, z"),
    ("ab", iter([ones[0, 0]]), "pass 0 has the shape (3,), expected (2, 3)"),
    ("ab", lambda rows: ones[0, :1], "pass 0 has the shape (1, 3), expected (2, 3)"),
    ("ab", lambda rows: Tensor(), "pass 0: found Tensor (dtype float32, device cuda:0)"),
]
def refused(call, words):
    try:
        result = call()
    except (TypeError, ValueError) as error:
        assert words in str(error), f"{error}\nexpected {words}"
    else:
        raise AssertionError(f"{result}\nexpected {words}")

with ckd.Client(sys.argv[1]) as client, client.session("m") as session:
    for values, ids, words in every:
        refused(lambda: client.decompose("m", values, ids), words)
    for ids, forward, words in streamed:
        refused(lambda: session.decide(ids, forward), words)
    refused(lambda: session.decide("ab", ones, contexts=[None]), "found 1 contexts, expected 2")
    refused(lambda: session.decide("ab", ones, contexts=[{"patient": "x"}, None]), "context 0 is {'patient': 'x'}, expected None or a dict")
    refused(lambda: client.decompose("m", ones, "ab", contexts=[{"slices": {"site": 1}}, None]), "context 0 is {'slices'")
    refused(lambda: client.decompose("m", ones, receipts=ckd.ALL), "receipts without ids")
    refused(lambda: session.decide("ab", ones, 3), "found 2 passes, expected 3")
    refused(lambda: session.decide("ab", list(ones), 3), "found 2 passes, expected 3")
`

// TestPythonRefuses checks that invalid arguments are refused before anything is sent. The message
// says what was found and what was expected.
func TestPythonRefuses(t *testing.T) {
	t.Parallel()
	u := &untouched{}
	r := script(t, refusals, serveFake(t, u))
	if r.Code != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}
	if streams, sent := u.streams.Load(), u.sent.Load(); streams == 0 || sent != 0 {
		t.Errorf("%d streams and %d inputs or calls were sent, expected some and none", streams, sent)
	}
}

// TestPythonAccepts sends everything that NumPy reads: half precision, integers, views, lists.
func TestPythonAccepts(t *testing.T) {
	t.Parallel()
	d := serve(t)
	r := script(t, `
one = numpy.zeros((12, 3, 3))
one[:, :, 0] = 1
with ckd.Client(sys.argv[1]) as client, client.session("fetal-health", passes=12) as session:
    for values in one.astype("f2"), one.astype("f4"), one, one.astype("i8"), one.astype("u1"), numpy.asfortranarray(one), one[::-1], one.tolist():
        for results in (
            client.decompose("fetal-health", values, ["a", "", ""]),
            session.decide(["a", "", ""], numpy.asarray(values)),
            session.decide(numpy.array(["a", "b", "c"]), list(numpy.asarray(values))),
        ):
            assert [r.action for r in results] == ["defer"] * 3, results  # it is saturated
            assert [r.predicted for r in results] == ["normal"] * 3, results
    forward, calls = (lambda rows: calls.append(rows) or one[0][rows]), []
    assert [r.decomposition.passes for r in session.decide("abc", forward)] == [12] * 3 and len(calls) == 12, calls
    assert session.decide([], one[:, :0]) == client.decompose("fetal-health", one[:, :0]) == []  # and sends nothing
    spoilt = one.copy()
    spoilt[0, 1, 0] = numpy.nan  # is the fault of its input alone
    for results in client.decompose("fetal-health", spoilt), session.decide("abc", spoilt):
        assert [r.action for r in results] == ["defer", "error", "defer"], results
        assert results[1].reason == "NOT_FINITE" and results[1].predicted == "", results
`, d.GRPC[0])
	if r.Code != 0 {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}
}
