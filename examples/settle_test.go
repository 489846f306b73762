package examples_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var saving = regexp.MustCompile(`(?m)^([\d.]+) passes an input without early stopping, ([\d.]+) with: ([\d.]+)x$`)

// saved returns the passes of an input without and with early stopping, as an example printed them,
// or 0 if it printed nothing.
func saved(t *testing.T, text string) (without, with float64) {
	t.Helper()
	told := saving.FindStringSubmatch(text)
	if told == nil {
		return 0, 0
	}
	var numbers []float64
	for _, n := range told[1:] {
		x, err := strconv.ParseFloat(n, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, x)
	}
	without, with = numbers[0], numbers[1]
	if math.Abs(without/with-numbers[2]) > 0.06+0.05*numbers[2]/with {
		t.Errorf("%s: the ratio is %.2f", told[0], without/with)
	}
	return without, with
}

// far writes a policy whose rule decides inputs early that are far from the threshold. A rule
// learned from the recording would not hold for the classifier of the Go example, and full-pass
// checks would stop it.
func far(t *testing.T) (file string) {
	t.Helper()
	data, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(policy.File{Name: policyFile, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	p := set.All()[0]
	// At or below a seventh of the threshold, or at three times the threshold or more.
	form := &earlystop.Form{
		Boundaries: []earlystop.Boundary{
			{Passes: p.FewestPasses, Retain: -2, Defer: -1}, {Passes: p.ExpectedPasses - 1, Retain: -2, Defer: -1},
		},
		Retain: []earlystop.Term{{Of: "own", Weight: 1}}, Defer: []earlystop.Term{{Of: "own", Weight: -1}},
	}
	p.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: form.Rule(p.ExpectedPasses, 0),
		Certificate: policy.EarlyStopCertificate{Disagreement: 0.1, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 1}},
	}
	file = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, p.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSettles checks that the examples save passes once the first inputs, which are checked and have
// all their passes, are through.
func TestSettles(t *testing.T) {
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy")
	socket := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	serveOn(t, socket, "--policy", far(t))
	r := run(t, python, "python/mc_dropout.py", "--addr", socket, "--passes", recording)
	if without, with := saved(t, r.Stderr); r.Code != 0 || without != 30 || with < 10 || with >= 30 {
		t.Errorf("exit %d, %.1f passes without early stopping and %.1f with, expected 30 and fewer\n%s", r.Code, without, with, r.Stderr)
	}
	r = run(t, goExample, "--addr", socket, "--inputs", "500")
	if lines := strings.Count(r.Stdout, "\t"); r.Code != 0 || lines != 1000 {
		t.Fatalf("exit %d, %d lines, expected 0 and 1000\n%s", r.Code, lines, r.Stderr)
	}
	if without, with := saved(t, r.Stdout); without != 30 || with < 10 || with >= 30 {
		t.Errorf("%.1f passes without early stopping and %.1f with, expected 30 and fewer", without, with)
	}
}

// leaving fakes a daemon. On its first stream it decides a early, and breaks the stream once the
// client leaves a out. On the next it decides b once b has more passes than before, and fails c
// once the client leaves b out.
type leaving struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	mu      sync.Mutex
	streams int
	faults  []string
	before  int // passes of b and c on the first stream
}

func (l *leaving) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	header, err := stream.Recv()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fault := func(format string, args ...any) { l.faults = append(l.faults, fmt.Sprintf(format, args...)) }
	if l.streams++; !header.GetHeader().GetAcceptSettled() {
		fault("stream %d does not accept settled inputs", l.streams)
	}
	info := &ckdv1.StreamInfo{Classes: []string{"x", "y"}, ExpectedPasses: 1 << 20, Settles: true, Acknowledges: true}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: info}); err != nil {
		return err
	}
	blocks := uint64(0)
	answer := func(results ...*ckdv1.Result) error {
		return stream.Send(&ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{}}, Results: results, Blocks: blocks})
	}
	of := func(row uint32, r *ckdv1.Result) *ckdv1.Result {
		r.InputId, r.Group, r.Row = []string{"abc", "bc"}[l.streams-1][row:][:1], 1, row
		return r
	}
	settled := func(row uint32) *ckdv1.Result {
		r := decided(ckdv1.Action_ACTION_RETAIN)
		r.GetDecomposition().Settled = true
		return of(row, r)
	}
	var passes []int // passes received, by row
	left := false    // the client has left the decided input out
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		b := request.GetBlock()
		blocks++
		if ids := b.GetInputIds(); len(ids) > 0 {
			if want := []string{"a b c", "b c"}[l.streams-1]; strings.Join(ids, " ") != want {
				fault("stream %d opens with %q, expected %q", l.streams, ids, want)
			}
			passes = make([]int, len(ids))
		}
		rows := b.GetRows()
		if len(rows) == 0 {
			rows = []uint32{0, 1, 2}[:len(passes)]
		}
		if n := len(b.GetValuesLe()); n != 8*len(rows)*int(b.GetPasses()) {
			fault("%d bytes for %d passes of rows %v", n, b.GetPasses(), rows)
			return status.Error(codes.InvalidArgument, "wrong length")
		}
		for i := range int(b.GetPasses()) * len(rows) {
			row := rows[i%len(rows)]
			got := math.Float32frombits(binary.LittleEndian.Uint32(b.GetValuesLe()[8*i:]))
			if want := float32(10*passes[row] + int(row) + l.streams - 1); got != want {
				fault("stream %d, row %d: pass %v, expected %v", l.streams, row, got, want)
			}
			passes[row]++
		}
		gone := !slices.Contains(rows, 0)
		switch first := l.streams == 1; {
		case first && !gone && passes[0] == 2:
			err = answer(settled(0))
		case first && gone:
			l.before = passes[1]
			return status.Error(codes.Unavailable, "gone")
		case !first && !gone && passes[0] == l.before+2:
			err = answer(settled(0))
		case !first && gone && !left:
			left = true
			err = answer(of(1, &ckdv1.Result{Outcome: &ckdv1.Result_Error{Error: noRoom(false).Proto()}}))
		default:
			err = answer() // acknowledges the block
		}
		if err != nil {
			return err
		}
	}
}

// TestPythonLeavesSettledOut checks that answered inputs are left out of what is computed and sent.
// After a break, the others must go on with all their passes.
func TestPythonLeavesSettledOut(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	l := &leaving{}
	r := script(t, `
import time
seen, deadline = [], time.monotonic() + 60

def forward(rows):
    assert time.monotonic() < deadline, seen
    if not seen or seen[-1][1] != rows.tolist():
        seen.append((0 if not seen else forward.passes, rows.tolist()))
    values = numpy.stack([10 * forward.passes + rows, 0 * rows], axis=1)
    forward.passes += 1
    rows[:] = -1  # ours
    return values

forward.passes = 0
with ckd.Client(sys.argv[1]) as client, client.session("m", accept_settled=True) as session:
    print(*(f"{r.id} {r.action} {r.settled}" for r in session.decide("abc", forward)), sep=", ")
print(*(rows for _, rows in seen), sep=", ")
`, serveFake(t, l))
	want := "a retain True, b retain True, c error False\n[0, 1, 2], [1, 2], [2]\n"
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("exit %d, %q, expected %q\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams != 2 || len(l.faults) > 0 {
		t.Errorf("%d streams, expected 2; %q", l.streams, l.faults[:min(len(l.faults), 5)])
	}
}
