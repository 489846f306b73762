package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/app"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Whatever the batches and however late their answers, every input is sent once,
// no more are under way than allowed, and the answers come in order.
func TestReplayKeepsOrderAndWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &playback{
			inputs: rapid.IntRange(0, 200).Draw(t, "inputs"),
			batch:  rapid.IntRange(1, 20).Draw(t, "batch"),
			pace:   pacer(0, 1, func() error { return nil }),
		}
		p.inFlight = p.batch * rapid.IntRange(1, 5).Draw(t, "batches in flight")
		seed := rapid.Uint64().Draw(t, "seed")
		var underway, most atomic.Int64
		p.send = func(_ context.Context, from, to int) []answer {
			now := underway.Add(int64(to - from))
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			defer underway.Add(int64(from - to))
			random := rand.New(rand.NewPCG(seed, uint64(from)))
			time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
			return failed(from, to, nil)
		}
		next := 0
		err := replay(context.Background(), p, func(answers []answer) error {
			for _, a := range answers {
				if a.index != next {
					t.Fatalf("the answer of input %d comes where %d was expected", a.index, next)
				}
				next++
			}
			return nil
		})
		if err != nil || next != p.inputs {
			t.Fatalf("%d of %d inputs answered, error %v", next, p.inputs, err)
		}
		if most.Load() > int64(p.inFlight) {
			t.Fatalf("%d inputs under way, expected at most %d", most.Load(), p.inFlight)
		}
	})
}

func TestReplayEndsEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	endless := &playback{
		inputs: math.MaxInt, batch: 1, inFlight: 4, pace: pacer(0, 1, func() error { return nil }),
		send: func(_ context.Context, from, to int) []answer { return failed(from, to, nil) },
	}
	fault := errors.New("disk full")
	if err := replay(ctx, endless, func([]answer) error { return fault }); !errors.Is(err, fault) {
		t.Errorf("error %v, expected %v", err, fault)
	}
	taken := 0
	err := replay(ctx, endless, func([]answer) error {
		if taken++; taken == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || taken != 3 {
		t.Errorf("error %v after %d batches, expected %v after 3", err, taken, context.Canceled)
	}
	// A pacer that gives up must not pass for the end of the recording.
	stuck := *endless
	stuck.pace = func(context.Context, int) error { return fault }
	if err := replay(context.Background(), &stuck, func([]answer) error { return nil }); !errors.Is(err, fault) {
		t.Errorf("error %v, expected %v", err, fault)
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	var broken error
	pace := pacer(1e-3, 8, func() error { return broken }) // one batch, then nothing for hours
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	if err := pace(ctx, 8); err != nil {
		t.Errorf("the first batch: %v", err)
	}
	if err := pace(ctx, 8); err == nil {
		t.Error("the second batch may begin at once")
	}
	broken = errors.New("gone")
	if err := pace(ctx, 8); err != nil {
		t.Errorf("after the stream broke: %v", err)
	}
	broken = nil
	cancel()
	if err := pace(ctx, 8); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, expected %v", err, context.Canceled)
	}
}

// Passes and batches are the same values whatever the layout and width of the file.
func TestValuesAreGathered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6)
		passes, inputs, classes := n.Draw(t, "passes"), n.Draw(t, "inputs"), n.Draw(t, "classes")
		from := rapid.IntRange(0, inputs-1).Draw(t, "from")
		to := rapid.IntRange(from+1, inputs).Draw(t, "to")
		layout := rapid.SampledFrom([]record.Layout{record.SNK, record.NSK}).Draw(t, "layout")
		wide := rapid.Bool().Draw(t, "float64")

		p := &record.Passes{S: passes, N: inputs, K: classes, Layout: layout}
		value := func(s, n, k int) float32 { return float32(10000*s + 100*n + k) }
		if size := passes * inputs * classes; wide {
			p.Float64 = make([]float64, size)
		} else {
			p.Float32 = make([]float32, size)
		}
		for s := range passes {
			for n := range inputs {
				for k := range classes {
					if at := p.Offset(s, n) + k; wide {
						p.Float64[at] = float64(value(s, n, k))
					} else {
						p.Float32[at] = value(s, n, k)
					}
				}
			}
		}
		var scratch []float32
		var snk, nsk []float32
		for s := range passes {
			var want []float32
			for n := from; n < to; n++ {
				for k := range classes {
					want = append(want, value(s, n, k))
				}
			}
			if got := passValues(&scratch, p, s, from, to); !slices.Equal(got, want) {
				t.Fatalf("pass %d: %v, expected %v", s, got, want)
			}
			snk = append(snk, want...)
		}
		for n := from; n < to; n++ {
			for s := range passes {
				for k := range classes {
					nsk = append(nsk, value(s, n, k))
				}
			}
		}
		want := map[ckdv1.Layout][]float32{client.SNK: snk, client.NSK: nsk}
		if layout, got := batchValues(p, from, to); !slices.Equal(got, want[layout]) {
			t.Fatalf("%v: %v, expected %v", layout, got, want[layout])
		}
	})
}

func TestPercentileIsOfTheNearestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Millisecond
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{hundred, 50, 50 * time.Millisecond},
		{hundred, 99, 99 * time.Millisecond},
		{hundred, 100, 100 * time.Millisecond},
		{hundred[:10], 50, 5 * time.Millisecond},
		{hundred[:10], 90, 9 * time.Millisecond},
		{hundred[:10], 99, 10 * time.Millisecond},
		{hundred[:3], 50, 2 * time.Millisecond},
		{hundred[:1], 50, time.Millisecond},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("p%d of %d values: %v, expected %v", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestSummaryCounts(t *testing.T) {
	t.Parallel()
	o := &replayOutput{w: bufio.NewWriter(&bytes.Buffer{}), detail: client.Decision}
	decided := func(index int, a ckdv1.Action, latency time.Duration) answer {
		return answer{index, client.Result{Decomposition: &ckdv1.Decomposition{
			Passes: 30, Decision: &ckdv1.Decision{Action: a},
		}}, latency}
	}
	err := o.take([]answer{
		decided(0, ckdv1.Action_ACTION_RETAIN, 4*time.Millisecond),
		decided(1, ckdv1.Action_ACTION_DEFER, 1*time.Millisecond),
		failed(2, 3, errors.New("gone"))[0],
		decided(3, ckdv1.Action_ACTION_RETAIN, 2*time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	o.summary(&text, 2*time.Second)
	want := "ckd: 3 inputs decided, 1 not, in 2.000 s: 2 inputs/s, 45 passes/s\n" +
		"ckd: latency p50 2ms, p90 4ms, p99 4ms, max 4ms\n" +
		"ckd: retain 2, defer 1, observe 0\n"
	if text.String() != want {
		t.Errorf("%s\nexpected\n%s", text.String(), want)
	}
}

// An input without an answer is told in the words of the daemon, or else of the
// connection.
func TestAnswerRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err             error
		reason, message string
	}{
		{&client.ProtocolError{Message: "no info"}, "internal", "no answer: the contract is broken: no info"},
		{status.Error(codes.DeadlineExceeded, "too slow"), "deadline_exceeded", "no answer: too slow"},
		{fmt.Errorf("wrapped: %w", status.Error(codes.Unavailable, "gone")), "unavailable", "no answer: gone"},
		{client.ErrClosed, "unknown", "no answer: the session is closed"},
	} {
		got := answerRefusal(answer{index: 7, Result: client.Result{Err: c.err}})
		if want := (refusal{7, reason{c.reason, c.message}}); *got != want {
			t.Errorf("%v: %v, expected %v", c.err, *got, want)
		}
	}
}

// A daemon says of a recording what decompose says with its policy, whatever the
// way there: numbers to 1e-12 relative or 1e-15 absolute, all else letter by
// letter.
func TestReplayAgreesWithDecompose(t *testing.T) {
	t.Parallel()
	const inputs, passes = 50, 12
	random := rand.New(rand.NewPCG(1, 2))
	snk := make([]float64, 0, passes*inputs*3)
	for range passes * inputs {
		a, b := float64(float32(random.Float64()/2)), float64(float32(random.Float64()/2))
		snk = append(snk, a, b, float64(float32(1-a-b)))
	}
	snk[3*(4*inputs+7)] = math.NaN()
	snk[3*(0*inputs+8)] = 3
	copy(snk[3*(11*inputs+49):], []float64{.5, .75, .5})
	nsk := make([]float64, 0, len(snk))
	for n := range inputs {
		for s := range passes {
			nsk = append(nsk, snk[3*(s*inputs+n):][:3]...)
		}
	}
	file := writeNpy(t, "<f4", []int{passes, inputs, 3}, snk)
	policyFile := writeFile(t, "p.yaml", handPolicy)
	want, _, code := runCommand(t, "decompose", "--passes", file, "--policy", policyFile)
	if code != exitFault || len(readLines(t, want)) != inputs {
		t.Fatalf("decompose: exit code %d, %d lines", code, len(readLines(t, want)))
	}

	addr := startDaemon(t, policyFile)
	for name, args := range map[string][]string{
		"stream":     {"--passes", file},
		"unary":      {"--passes", file, "--unary"},
		"batch of 1": {"--passes", file, "--batch", "1", "--in-flight", "3"},
		"large":      {"--passes", file, "--batch", "1000", "--in-flight", "1000"},
		"small":      {"--passes", file, "--in-flight", "1"},
		"float64":    {"--passes", writeNpy(t, "<f8", []int{passes, inputs, 3}, snk)},
		"nsk":        {"--passes", writeNpy(t, "<f4", []int{inputs, passes, 3}, nsk), "--layout", "nsk"},
		"nsk unary":  {"--passes", writeNpy(t, "<f4", []int{inputs, passes, 3}, nsk), "--layout", "nsk", "--unary"},
		"paced":      {"--passes", file, "--rate", "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			got, stderr, code := runCommand(t, append([]string{"replay", "--addr", addr, "--model", "hand"}, args...)...)
			wantFragment(t, stderr, "ckd: 3 of 50 inputs have no decision; the first: input 7: pass 4: class 0 is NaN")
			if code != exitFault {
				t.Errorf("exit code %d, expected %d", code, exitFault)
			}
			lines := readLines(t, got)
			for i, line := range readLines(t, want) {
				compare(t, fmt.Sprintf("input %d", i), lines[i], line, 1e-12, 1e-15)
			}
			for i, text := range strings.Split(strings.TrimSpace(want), "\n") {
				if keys := keysOf(t, strings.Split(got, "\n")[i]); !slices.Equal(keys, keysOf(t, text)) {
					t.Errorf("input %d: keys %v", i, keys)
				}
			}
			if name == "float64" {
				wantFragment(t, stderr, "float64 is narrowed to float32")
			}
		})
	}

	t.Run("limit and summary", func(t *testing.T) {
		out, stderr, code := runCommand(t, "replay", "--addr", addr, "--model", "hand", "--passes", file, "--limit", "5",
			"--summary", "--quiet", "--detail", "decision")
		if out != "" || code != exitOK {
			t.Errorf("exit code %d, output %q", code, out)
		}
		wantFragment(t, stderr, "ckd: 5 inputs decided, 0 not, in ")
	})
	t.Run("faults", func(t *testing.T) {
		for _, c := range []struct{ args, message string }{
			{"--model foot --passes " + file, `model "foot" of the daemon at ` + addr},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{2, 1, 2}, []float64{1, 0, 1, 0}),
				"has 2 classes, but model hand of the daemon has 3: a, b, c"},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{1, 1, 3}, []float64{1, 0, 0}), "accepts no fewer than 4"},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{1, 1, 3}, []float64{1, 2, 3}), "these may be logits"},
		} {
			out, stderr, code := runCommand(t, append([]string{"replay", "--addr", addr}, strings.Fields(c.args)...)...)
			if code != exitFault || out != "" {
				t.Errorf("%s: exit code %d, output %q", c.args, code, out)
			}
			wantFragment(t, stderr, c.message)
		}
	})
}

// startDaemon runs a daemon on a socket of its own until the test ends.
func startDaemon(t *testing.T, policyFile string) (addr string) {
	t.Helper()
	var c config.Config
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	args := []string{"--policy", policyFile, "--listen", "unix:" + socket, "--admin", config.Off}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	daemon, err := app.New(&c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = daemon.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return "unix:" + socket
}

// breakingDaemon decides on the first group that it is sent, and then ends the
// stream.
type breakingDaemon struct {
	ckdv1.UnimplementedUncertaintyServiceServer
}

func (breakingDaemon) GetModel(context.Context, *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	return &ckdv1.GetModelResponse{Model: &ckdv1.Model{
		Classes: []string{"a", "b", "c"}, Kind: ckdv1.Kind_KIND_PROBABILITIES, SumTolerance: 1e-3,
	}}, nil
}

func (breakingDaemon) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	header, err := stream.Recv()
	if err != nil {
		return err
	}
	reply := &ckdv1.DecomposeStreamResponse{Info: &ckdv1.StreamInfo{Classes: []string{"a", "b", "c"}}}
	var opened *ckdv1.Block
	for range header.GetHeader().GetPasses() {
		if err := stream.Send(reply); err != nil {
			return err
		}
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if opened == nil {
			opened = message.GetBlock()
		}
		reply = &ckdv1.DecomposeStreamResponse{}
	}
	reply.Policies = []*ckdv1.PolicyRef{{Model: "hand"}}
	for row, id := range opened.GetInputIds() {
		reply.Results = append(reply.Results, &ckdv1.Result{
			InputId: id, Group: opened.GetGroup(), Row: uint32(row),
			Outcome: &ckdv1.Result_Decomposition{Decomposition: &ckdv1.Decomposition{
				Decision: &ckdv1.Decision{Action: ckdv1.Action_ACTION_RETAIN},
			}},
		})
	}
	if err := stream.Send(reply); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "the daemon is going away")
}

// serveDaemon serves another daemon on a socket of its own until the test ends.
func serveDaemon(t *testing.T, daemon ckdv1.UncertaintyServiceServer) (addr string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	ckdv1.RegisterUncertaintyServiceServer(server, daemon)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
	})
	return "unix:" + socket
}

// Inputs that the stream leaves behind are errors, every one of them.
func TestReplayOfABrokenStream(t *testing.T) {
	t.Parallel()
	addr := serveDaemon(t, breakingDaemon{})
	rows := slices.Repeat([]float64{.5, .25, .25}, 4*10)
	out, stderr, code := runCommand(t, "replay", "--addr", addr, "--model", "hand",
		"--batch", "2", "--in-flight", "2", "--reconnect", "0", "--passes", writeNpy(t, "<f4", []int{4, 10, 3}, rows))
	if code != exitFault {
		t.Errorf("exit code %d, expected %d", code, exitFault)
	}
	wantFragment(t, stderr, "ckd: the stream broke: the daemon is going away\n")
	wantFragment(t, stderr, "8 of 10 inputs have no decision; the first: input 2: no answer: the daemon is going away")
	lines := readLines(t, out)
	if len(lines) != 10 {
		t.Fatalf("%d lines, expected 10", len(lines))
	}
	for i, l := range lines {
		if i < 2 {
			compare(t, fmt.Sprintf("input %d", i), l["decision"], map[string]any{"action": "retain"}, 0, 0)
			continue
		}
		compare(t, fmt.Sprintf("input %d", i), l, map[string]any{
			"index": float64(i),
			"error": map[string]any{"reason": "unavailable", "message": "no answer: the daemon is going away"},
		}, 0, 0)
	}
}

// With --settle, inputs are decided before their last pass, nearly all of them as by
// all passes, and what that saved is said.
func TestReplaySettles(t *testing.T) {
	t.Parallel()
	const recording = "../../internal/recordings/ctg-lowrank.passes.npy"
	const inputs, passes, at = 2126, 30, 0.02
	rule := filepath.Join(t.TempDir(), "policy.yaml")
	_, stderr, code := runCommand(t, "calibrate", "--passes", recording, "--policy", writeFile(t, "policy.yaml", settlesPolicy),
		"--settle", fmt.Sprint(at), "--out", rule)
	if code != exitOK {
		t.Fatalf("calibrate: exit code %d, %s", code, stderr)
	}
	addr := startDaemon(t, rule)
	args := []string{"replay", "--addr", addr, "--model", "fetal-health", "--passes", recording}
	want, stderr, _ := runCommand(t, args...)
	if strings.Contains(stderr, "settled") {
		t.Errorf("unasked: %s", stderr)
	}
	out, stderr, code := runCommand(t, append(args, "--settle")...)
	if code != exitOK {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	others, used, early := 0, 0, 0
	full := readLines(t, want)
	for i, line := range readLines(t, out) {
		n := int(line["passes"].(float64))
		if used += n; n < passes {
			early++
		}
		if line["decision"].(map[string]any)["action"] != full[i]["decision"].(map[string]any)["action"] {
			others++
		}
	}
	// All but those audited, of which the first 400 are; some need all passes.
	if early < inputs/2 || float64(others) > at*inputs {
		t.Errorf("%d of %d inputs settled early, %d decided otherwise", early, inputs, others)
	}
	wantFragment(t, stderr, fmt.Sprintf("ckd: %d of %d inputs settled before their last pass: %.1f of %d passes used on average\n",
		early, inputs, float64(used)/inputs, passes))
	var sent, saved int
	var fewer float64
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if _, err := fmt.Sscanf(lines[len(lines)-1], "ckd: %d passes sent, %d saved: %fx fewer", &sent, &saved, &fewer); err != nil ||
		sent+saved != inputs*passes || sent != used || math.Abs(fewer-float64(inputs*passes)/float64(sent)) > 0.051 {
		t.Errorf("%q, %v; expected %d passes, of which %d are used", lines[len(lines)-1], err, inputs*passes, used)
	}

	_, stderr, code = runCommand(t, "replay", "--addr", startDaemon(t, writeFile(t, "policy.yaml", settlesPolicy)), "--model", "fetal-health",
		"--passes", recording, "--limit", "3", "--quiet", "--settle")
	if code != exitOK {
		t.Errorf("without a rule: exit code %d", code)
	}
	wantFragment(t, stderr, "ckd: nothing is settled early: the daemon has no rule in force for 30 passes of this model, or audits have stopped it\n")
}

const settlesPolicy = `models:
  - name: fetal-health
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    gate: any-critical
    reliability_threshold: 0.3
    primary: {score: c_crit_max, threshold: 0.052}
    fallback: {score: cbec, threshold: 0.023}
`

// However many rows are left, each keeps its values.
func TestPickRows(t *testing.T) {
	t.Parallel()
	values := []float32{0, 1, 10, 11, 20, 21}
	for _, c := range []struct {
		rows []int
		want []float32
	}{
		{[]int{0, 1, 2}, values},
		{[]int{0, 2}, []float32{0, 1, 20, 21}},
		{[]int{1}, []float32{10, 11}},
	} {
		if got := pickRows(values, c.rows, 2); !slices.Equal(got, c.want) {
			t.Errorf("rows %v: %v, expected %v", c.rows, got, c.want)
		}
	}
}

// listeningDaemon keeps the posteriors that are stated, and decides nothing.
type listeningDaemon struct {
	breakingDaemon
	stated chan string
}

func (d listeningDaemon) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	message, err := stream.Recv()
	if err != nil {
		return err
	}
	d.stated <- message.GetHeader().GetPosterior()
	return status.Error(codes.Internal, "not now")
}

func (d listeningDaemon) Decompose(_ context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	d.stated <- r.GetPosterior()
	return nil, status.Error(codes.Internal, "not now")
}

// What --posterior says is stated, in a stream as in calls.
func TestReplayStatesThePosterior(t *testing.T) {
	t.Parallel()
	daemon := listeningDaemon{stated: make(chan string, 2)}
	addr := serveDaemon(t, daemon)
	file := writeNpy(t, "<f4", []int{4, 1, 3}, slices.Repeat([]float64{.5, .25, .25}, 4))
	for _, args := range [][]string{{}, {"--unary"}} {
		runCommand(t, append([]string{"replay", "--addr", addr, "--model", "hand", "--passes", file, "--posterior", "ensemble"}, args...)...)
		if got := <-daemon.stated; got != "ensemble" {
			t.Errorf("%q: stated %q, expected ensemble", args, got)
		}
	}
}

func TestReplayRefusesFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, message string
		code          int
	}{
		{"--model m --passes x", "--addr", exitUsage},
		{"--addr a --passes x", "--model", exitUsage},
		{"--addr a --model m", "--passes", exitUsage},
		{"--addr a --model m --passes x --batch 0", "--batch 0: expected at least 1", exitUsage},
		{"--addr a --model m --passes x --in-flight=-1", "--in-flight -1: expected at least 1", exitUsage},
		{"--addr a --model m --passes x --limit=-1", "--limit -1: expected", exitUsage},
		{"--addr a --model m --passes x --posterior a/b", `--posterior "a/b": expected at most 128 letters`, exitUsage},
		{"--addr a --model m --passes x --rate NaN", "--rate NaN: expected", exitUsage},
		{"--addr a --model m --passes x --rate=-1", "--rate -1: expected", exitUsage},
		{"--addr a --model m --passes x --settle --unary", "--settle: expected without --unary", exitUsage},
		{"--addr a --model m --passes x --detail most", "--detail must be one of", exitUsage},
		{"--addr 192.0.2.1:1 --model m --passes x", "plaintext is for unix sockets and loopback addresses", exitFault},
		{"--addr unix:/no/such.sock --model m --passes x", `model "m" of the daemon at unix:/no/such.sock`, exitFault},
	} {
		out, stderr, code := runCommand(t, append([]string{"replay"}, strings.Fields(c.args)...)...)
		if code != c.code || out != "" {
			t.Errorf("%s: exit code %d, expected %d; output %q", c.args, code, c.code, out)
		}
		wantFragment(t, stderr, c.message)
	}
}
