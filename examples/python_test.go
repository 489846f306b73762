package examples_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var update = flag.Bool("update", false, "write the contract that the Python client reads")

//go:generate go test -run ^TestPythonContract$ -update .

// TestPythonContract checks that the contract in contract.binpb equals the daemon's.
func TestPythonContract(t *testing.T) {
	want := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		want.File = append(want.File, protodesc.ToFileDescriptorProto(file)) // files come after those that they import
	}
	add(ckdv1.File_ckd_v1_uncertainty_proto)
	add(ckdv1.File_ckd_v1_outcomes_proto)
	add(errdetails.File_google_rpc_error_details_proto)

	const path = "../python/ckd/contract.binpb"
	if *update {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		if err == nil {
			err = os.WriteFile(path, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s is not current: go generate ./examples", path)
	}
}

// decisions returns the actions that the Go client gets for the recording, by all passes.
func decisions(t *testing.T, address string) (actions []string) {
	t.Helper()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	results, err := c.Decompose(t.Context(), client.Batch{
		Model: "fetal-health", Passes: r.Passes.S, Inputs: r.Passes.N, Values: r.Passes.Float32,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || r.Decomposition.GetPasses() != 30 {
			t.Fatalf("input %d: %v, %+v", r.Row, r.Err, r.Decomposition)
		}
		actions = append(actions, strings.ToLower(strings.TrimPrefix(r.Decomposition.GetDecision().GetAction().String(), "ACTION_")))
	}
	return actions
}

// printed compares the lines of mc_dropout.py with what the daemon decided.
func printed(t *testing.T, r testbed.Result, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 0 || len(lines) != len(want) {
		t.Fatalf("exit %d, %d lines, expected 0 and %d\n%s", r.Code, len(lines), len(want), r.Stderr)
	}
	for i, line := range lines {
		if start := fmt.Sprintf("%d\t%s: ", i, want[i]); !strings.HasPrefix(line, start) {
			t.Errorf("line %q, expected %q", line, start)
		}
	}
}

const inputs = 150 // two whole batches and part of a third; some inputs are deferred

// TestPython runs the Python example. It must print the daemon's decisions as its README shows, and
// the cause of a failure.
func TestPython(t *testing.T) {
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy")
	d := serve(t)
	want := decisions(t, d.GRPC[0])[:inputs]
	if text := strings.Join(want, " "); !strings.Contains(text, "retain") || !strings.Contains(text, "defer") {
		t.Fatalf("decisions %s, expected both kinds", text)
	}
	r := run(t, python, "python/mc_dropout.py", "--addr", d.GRPC[0], "--passes", recording, "--limit", fmt.Sprint(inputs))
	printed(t, r, want)
	if !strings.Contains(r.Stderr, fmt.Sprintf("%d of %d inputs retained, 0 without", strings.Count(r.Stdout, "retain:"), inputs)) {
		t.Errorf("standard error %q", r.Stderr)
	}
	readme, err := os.ReadFile("python/README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^    (\d+\t.*\n)`).FindAllStringSubmatch(string(readme), -1)
	if len(shown) == 0 {
		t.Error("the README shows no output")
	}
	for _, line := range shown {
		if !strings.Contains(r.Stdout, line[1]) {
			t.Errorf("the README shows a line that is not printed: %s", line[1])
		}
	}

	r = run(t, python, "python/mc_dropout.py", "--addr", d.GRPC[0], "--model", "nobody", "--passes", recording, "--limit", "2")
	if r.Code != 1 || strings.Count(r.Stdout, `no decision: no policy names the model "nobody"`) != 2 {
		t.Errorf("unknown model: exit %d, output %q, errors %q", r.Code, r.Stdout, r.Stderr)
	}
	r = run(t, python, "python/mc_dropout.py", "--addr", "192.0.2.1:8590", "--passes", recording)
	if r.Code == 0 || !strings.Contains(r.Stderr, "plaintext is for unix sockets and loopback addresses") {
		t.Errorf("plaintext elsewhere: exit %d, %q", r.Code, r.Stderr)
	}
}

// TestPythonFrozenDaemon checks that the client waits for a frozen daemon as long as its patience
// lasts: on an open stream, on a new one, and in a call. When the daemon goes on, so must the
// client.
func TestPythonFrozenDaemon(t *testing.T) {
	t.Parallel()
	d := serve(t)
	defer func() { _ = d.Process.Process.Signal(syscall.SIGCONT) }() // lets the daemon run again so that it can stop
	r := script(t, `
import os, pathlib, signal, time
from ckd import _engine
address, daemon, recorded = sys.argv[1], int(sys.argv[2]), numpy.load(sys.argv[3])[:, :3]
ids = ["a", "b", "c"]

class clock:
    """The client's: it goes on by itself, and with what the model takes."""
    sleep, taken = time.sleep, 0
    monotonic = lambda: time.monotonic() + clock.taken

_engine.time = clock

def answers(results, error=""):
    assert [r.id for r in results] == ids, results
    for r in results:
        assert (r.action == "error") == bool(error) and error in str(r.error), r

def stopped(thread):
    return thread.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"

def freezing():
    for i, values in enumerate(recorded):
        if i == 10:
            os.kill(daemon, signal.SIGSTOP)
            while not all(map(stopped, pathlib.Path(f"/proc/{daemon}/task").iterdir())):
                time.sleep(0.001)  # a thread may go on for a moment
        yield values

with ckd.Client(address, patience=60) as client:
    session = client.session("fetal-health")
    answers(session.decide(ids, recorded))
    client.patience, late = 0.2, "did not answer within 0.2 s"
    answers(session.decide(ids, freezing()), late)
    answers(session.decide(ids, recorded), late)
    answers(client.session("fetal-health").decide(ids, recorded), late)
    answers(client.decompose("fetal-health", recorded, ids), late)
    os.kill(daemon, signal.SIGCONT)
    client.patience = 60
    answers(session.decide(ids, recorded))

    # What the model takes for its passes is not the daemon's.
    def slow():
        for i, values in enumerate(recorded):
            if i == 10:
                clock.taken = 1000
            yield values
    answers(session.decide(ids, slow()))
`, d.GRPC[0], fmt.Sprint(d.Process.Process.Pid), recording)
	if r.Code != 0 {
		t.Error(r.Stderr)
	}
}
