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

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// fickle is a daemon that answers some inputs, refuses others for want of room, and
// breaks its streams.
type fickle struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	mu     sync.Mutex
	groups []string // of each stream: the ids, and the first value of every row of every pass
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
	case 1: // b alone is answered, and d with what does not pass
		add(1, decided(ckdv1.Action_ACTION_RETAIN))
		add(3, &ckdv1.Result{Outcome: &ckdv1.Result_Error{Error: noRoom(false).Proto()}})
	case 2: // of a and c, c is
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
	_, err := stream.Recv() // the client ends it
	return err
}

func decided(action ckdv1.Action) *ckdv1.Result {
	return &ckdv1.Result{Outcome: &ckdv1.Result_Decomposition{Decomposition: &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{Action: action, Score: ckdv1.Score_SCORE_MI, Reason: ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD},
	}}}
}

// noRoom is a refusal that passes, or that of an input which alone is too large.
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

// serveFake serves until the end of the test, and returns the address.
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

// Only what has no answer is sent again, with its own passes.
func TestPythonSendsAgain(t *testing.T) {
	python := python(t, "grpc", "google.protobuf", "numpy")
	f := &fickle{}
	r := run(t, python, "-c", `
import sys
sys.path.insert(0, "python")
import ckd, numpy
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
