package examples_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
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

// TestPythonFindsDaemon checks that a restarted daemon answers within a second of listening, however
// long it was away.
func TestPythonFindsDaemon(t *testing.T) {
	timed.Only(t)
	python := python(t, "grpc", "google.protobuf", "numpy")
	// The delay stops growing after a second, so 20 s stand for any longer time.
	for _, away := range []time.Duration{2 * time.Second, 20 * time.Second} {
		for _, how := range []string{"stream", "call", "pause"} {
			if how == "pause" && away > 2*time.Second {
				continue // this time has no subtest
			}
			t.Run(fmt.Sprint(how, " after ", away), func(t *testing.T) {
				t.Parallel()
				var first time.Duration
				for range 3 { // the best of three counts
					first = findsDaemon(t, python, how, away)
					if first < time.Second {
						break
					}
				}
				if t.Logf("%v after it listened", first); first >= time.Second {
					t.Errorf("the first decision came %v after the daemon listened, expected less than 1 s", first)
				}
			})
		}
	}
}

// findsDaemon returns the time from when the daemon listens again until the first decision.
func findsDaemon(t *testing.T, python, how string, away time.Duration) time.Duration {
	t.Helper()
	address := fixedAddress(t)
	first := serveOn(t, address, "--policy", policyFile)
	command := exec.Command(python, "-c", `
import sys, time
import ckd, numpy
address, recorded, how = sys.argv[1], numpy.load(sys.argv[2])[:, :3], sys.argv[3]
with ckd.Client(address) as client, client.session("fetal-health") as session:
    def ask():
        results = client.decompose("fetal-health", recorded) if how == "call" else session.decide("abc", recorded)
        return all(r.decomposition for r in results)
    assert ask()
    print("asked", flush=True)
    sys.stdin.readline()  # the daemon is gone
    if how == "pause":
        sys.stdin.readline()  # and back
    while not ask():
        pass
    print("answered", flush=True)
`, address, recording, how)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	told := bufio.NewScanner(stdout)
	expect := func(want string) {
		t.Helper()
		if !told.Scan() || told.Text() != want {
			_ = command.Wait() // reports failures too
			t.Fatalf("%q, expected %q", told.Text(), want)
		}
	}
	expect("asked")
	_ = first.Process.Process.Kill() // the test kills it here
	<-first.Exited
	fmt.Fprintln(stdin, "gone")
	time.Sleep(away)
	serveOn(t, address, "--policy", policyFile)
	listening := time.Now()
	fmt.Fprintln(stdin, "back")
	expect("answered")
	found := time.Since(listening)
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	return found
}

// fixedAddress returns a free address with a port that the system does not assign to clients. A
// client that keeps dialling an assignable port may get it as its own and connect to itself.
func fixedAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close() // no connection was accepted
			return address
		}
	}
}
