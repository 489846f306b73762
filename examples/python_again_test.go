package examples_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// fickle fakes a daemon that answers some inputs, refuses others for lack of room, and breaks its
// streams.
type fickle struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	mu     sync.Mutex
	groups []string // of each stream: the ids, then the first value of each row of each pass
}

func (f *fickle) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{Classes: []string{"x", "y"}}}); err != nil {
		return err
	}
	var ids []string
	seen, number := "", uint64(0)
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		b := request.GetBlock()
		if len(b.GetInputIds()) > 0 {
			ids, number = b.GetInputIds(), b.GetGroup()
			seen = fmt.Sprint(ids)
		}
		for at := 0; at < len(b.GetValuesLe()); at += 2 * 4 {
			seen += fmt.Sprint(" ", math.Float32frombits(binary.LittleEndian.Uint32(b.GetValuesLe()[at:])))
		}
		if b.GetFinal() {
			break
		}
	}
	f.mu.Lock()
	f.groups = append(f.groups, seen)
	n := len(f.groups)
	f.mu.Unlock()
	var results []*ckdv1.Result
	add := func(row int, outcome *ckdv1.Result) {
		outcome.InputId, outcome.Group, outcome.Row = ids[row], number, uint32(row)
		results = append(results, outcome)
	}
	switch n {
	case 1: // answer b, and refuse d for good; then break the stream
		add(1, decided(ckdv1.Action_ACTION_RETAIN))
		add(3, &ckdv1.Result{Outcome: &ckdv1.Result_Error{Error: noRoom(false).Proto()}})
	case 2: // of a and c, answer c, and refuse a for now
		add(1, decided(ckdv1.Action_ACTION_DEFER))
		add(0, &ckdv1.Result{Outcome: &ckdv1.Result_Error{Error: noRoom(true).Proto()}})
	default:
		add(0, decided(ckdv1.Action_ACTION_RETAIN))
	}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{}}, Results: results}); err != nil {
		return err
	}
	if n == 1 {
		return status.Error(codes.Unavailable, "gone")
	}
	_, err := stream.Recv() // wait until the client ends the stream
	return err
}

func decided(action ckdv1.Action) *ckdv1.Result {
	return &ckdv1.Result{Outcome: &ckdv1.Result_Decomposition{Decomposition: &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{Action: action, Score: ckdv1.Score_SCORE_MI, Reason: ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD},
	}}}
}

// noRoom returns a refusal for lack of room: a retryable one, or one of an input that exceeds the
// budget by itself.
func noRoom(passes bool) *status.Status {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: "ckd.v1", Reason: "OUT_OF_MEMORY_BUDGET"}}
	if passes {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	}
	st, err := status.New(codes.ResourceExhausted, "no room").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return st
}

// serveFake serves until the end of the test and returns the address.
func serveFake(t *testing.T, fake ckdv1.UncertaintyServiceServer) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	ckdv1.RegisterUncertaintyServiceServer(server, fake)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return listener.Addr().String()
}

// TestPythonSendsAgain checks that after a break only inputs without an answer are sent again, each
// with its own passes.
func TestPythonSendsAgain(t *testing.T) {
	t.Parallel()
	f := &fickle{}
	r := script(t, `
passes = [numpy.array([[10 * s + i, 0] for i in range(4)]) for s in range(2)]
with ckd.Client(sys.argv[1]) as client, client.session("m") as session:
    print(*(f"{r.id} {r.action}" for r in session.decide("abcd", passes)), sep=", ")
`, serveFake(t, f))
	if want := "a retain, b retain, c defer, d error\n"; r.Code != 0 || r.Stdout != want {
		t.Errorf("exit %d, %q, expected %q\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	want := []string{"[a b c d] 0 1 2 3 10 11 12 13", "[a c] 0 2 10 12", "[a] 0 10"}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.groups; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the daemon got %q, expected %q", got, want)
	}
}

// TestPythonLooksForDaemon checks that the client looks for a lost daemon often, with calls that wait
// for a connection, because grpc reconnects quickly only while such a call waits. It must ask an
// overloaded daemon less often.
func TestPythonLooksForDaemon(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	r := script(t, `
import time
from ckd import _client, _connection, _engine
settings = dict(_connection.CONNECTING)
assert settings["grpc.initial_reconnect_backoff_ms"] <= settings["grpc.max_reconnect_backoff_ms"], settings
assert 1.2 * settings["grpc.max_reconnect_backoff_ms"] <= 800, f"{settings}: grpc adds up to a fifth, and 1 s is promised"

slept = []
class recorder:
    monotonic, sleep = time.monotonic, slept.append
_client.time = recorder
def attempts(fault):
    waited = []
    async def attempt(limit, wait):
        waited.append(wait)
        if len(waited) <= 12:
            raise fault
    slept.clear()
    with ckd.Client("unix:/nowhere") as client:
        assert _client._run(client._engine.retry(attempt, _engine.Limit(1000))) is None
    assert waited == [False] + 12 * [True], waited
    return max(slept)

assert attempts(ckd.UnavailableError("away", code=14)) <= 0.5
assert 1 < attempts(ckd.OverloadedError("crowded", reason="OVERLOADED")) <= 3
assert 7 == attempts(ckd.OverloadedError("crowded", reason="OVERLOADED", retry_delay=7))
_client.time = time

# What stands in the way of a connection is told when patience ends.
with ckd.Client("unix:/nowhere/ckd.sock", patience=3) as client, client.session("m") as session:
    for result in session.decide(["a"], [[[1, 0]]]) + client.decompose("m", [[[1, 0]]]):
        assert "within 3 s; before that: " in str(result.error) and "/nowhere" in str(result.error), result
`)
	if r.Code != 0 {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}
}
