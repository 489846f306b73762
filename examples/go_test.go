package examples_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestGo runs the Go example. It must print a decision for every input, and the cause of a failure.
func TestGo(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	serveOn(t, socket, "--policy", policyFile)
	r := run(t, goExample, "--addr", socket)
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 0 || len(lines) != 16 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	named := regexp.MustCompile(`^\d-\d\t(retained: CLASS|to a person: DECISION_REASON_\w+, predicted CLASS(, deciding class CLASS)?)$`)
	for i, line := range lines {
		id := []string{"0-", "1-"}[i/8] + string(rune('0'+i%8)) + "\t"
		shape := regexp.MustCompile(`\b(normal|suspect|pathologic)\b`).ReplaceAllString(line, "CLASS")
		if !strings.HasPrefix(line, id) || !named.MatchString(shape) {
			t.Errorf("line %q, expected a decision for %q, with its class", line, id)
		}
	}
	if !strings.Contains(r.Stdout, "retained: ") || !strings.Contains(r.Stdout, "to a person: ") {
		t.Errorf("%s\nexpected both kinds of decision", r.Stdout)
	}

	r = run(t, goExample, "--addr", socket, "--model", "nobody")
	if r.Code != 1 || !strings.Contains(r.Stderr, `session for model "nobody"`) {
		t.Errorf("unknown model: exit %d, %s", r.Code, r.Stderr)
	}
	r = run(t, goExample, "--addr", "ckd.example.org:8590")
	if r.Code != 1 || !strings.Contains(r.Stderr, "plaintext is for unix sockets and loopback addresses") {
		t.Errorf("plaintext elsewhere: exit %d, %s", r.Code, r.Stderr)
	}
}

// renamed fakes a daemon whose policy gets other class names during the second batch.
type renamed struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	mu      sync.Mutex
	streams int
}

func (f *renamed) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	f.mu.Lock()
	classes := [][]string{{"old", "older"}, {"new", "newer"}}[f.streams]
	f.streams++
	f.mu.Unlock()
	refusal := status.New(codes.FailedPrecondition, "the policy changed")
	refusal, err := refusal.WithDetails(&errdetails.ErrorInfo{Domain: "ckd.v1", Reason: "POLICY_CHANGED"})
	if err != nil {
		return err
	}
	info := &ckdv1.StreamInfo{Classes: classes, ExpectedPasses: 1}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: info}); err != nil {
		return err
	}
	for groups := 0; ; {
		request, err := stream.Recv()
		if err != nil {
			return nil
		}
		b := request.GetBlock()
		if len(b.GetInputIds()) == 0 {
			continue
		}
		groups++
		gone := classes[0] == "old" && groups == 2
		reply := &ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{}}}
		for i, id := range b.GetInputIds() {
			r := decided([]ckdv1.Action{ckdv1.Action_ACTION_RETAIN, ckdv1.Action_ACTION_DEFER}[i])
			r.GetDecomposition().Predicted = uint32(i)
			if gone {
				r = &ckdv1.Result{Outcome: &ckdv1.Result_Error{Error: refusal.Proto()}}
			}
			r.InputId, r.Group, r.Row = id, b.GetGroup(), uint32(i)
			reply.Results = append(reply.Results, r)
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
		if gone {
			return refusal.Err()
		}
	}
}

// TestGoFollowsNames replaces the policy between two batches. Classes must have the names of the
// policy that decided.
func TestGoFollowsNames(t *testing.T) {
	t.Parallel()
	r := run(t, goExample, "--addr", serveFake(t, &renamed{}), "--inputs", "2")
	want := "0-0\tretained: old\n0-1\tto a person: DECISION_REASON_UNDER_THRESHOLD, predicted older\n" +
		"1-0\tretained: new\n1-1\tto a person: DECISION_REASON_UNDER_THRESHOLD, predicted newer\n"
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("exit %d, %q, expected %q\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
}
