package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/cmd/ckd/internal/daemon"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReplayAgreesWithDecompose expects a daemon to answer what decompose does with the same
// policy, by every way of sending: numbers to 1e-12 relative or 1e-15 absolute, all else to the
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
	file := writeNpy(t, "<f4", []int{passes, inputs, 3}, snk)
	nsk := writePasses(t, "<f4", &record.Passes{S: passes, N: inputs, K: 3, Float64: snk}, record.NSK, inputs)
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
		"nsk":        {"--passes", nsk, "--layout", "nsk"},
		"nsk unary":  {"--passes", nsk, "--layout", "nsk", "--unary"},
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
		expectRefusals(t, "replay --addr "+addr, []refusal{
			{"--model foot --passes " + file, `model "foot" of the daemon at ` + addr, exitFault},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{2, 1, 2}, []float64{1, 0, 1, 0}),
				"has 2 classes, but model hand of the daemon has 3: a, b, c", exitFault},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{1, 1, 3}, []float64{1, 0, 0}), "accepts no fewer than 4", exitFault},
			{"--model hand --passes " + writeNpy(t, "<f4", []int{1, 1, 3}, []float64{-1, 2, 2.5}), "these may be logits", exitFault},
		})
	})
}

// startDaemon runs a daemon on a socket of its own until the test ends.
func startDaemon(t *testing.T, policyFile string) (addr string) {
	t.Helper()
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix:" + filepath.Join(t.TempDir(), "ckd.sock")
	c.Policy, c.Listen, c.Admin = []string{policyFile}, []string{socket}, config.Off
	daemon, err := daemon.New(c, zap.NewNop())
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
	return socket
}

func (listeningDaemon) GetModel(context.Context, *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	return &ckdv1.GetModelResponse{Model: &ckdv1.Model{
		Classes: []string{"a", "b", "c"}, Kind: ckdv1.Kind_KIND_PROBABILITIES, SumTolerance: 1e-3,
	}}, nil
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

// listeningDaemon records the posteriors that clients state, and decides nothing.
type listeningDaemon struct {
	ckdv1.UnimplementedUncertaintyServiceServer
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

// TestReplayStatesThePosterior expects --posterior to reach the daemon, in a stream and in calls.
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
	const good = "--addr a --model m --passes x "
	expectRefusals(t, "replay", []refusal{
		{"--model m --passes x", "--addr", exitUsage},
		{"--addr a --passes x", "--model", exitUsage},
		{"--addr a --model m", "--passes", exitUsage},
		{good + "--batch 0", "--batch 0: expected at least 1", exitUsage},
		{good + "--in-flight=-1", "--in-flight -1: expected at least 1", exitUsage},
		{good + "--limit=-1", "--limit -1: expected", exitUsage},
		{good + "--posterior a/b", `--posterior "a/b": expected at most 128 letters`, exitUsage},
		{good + "--rate NaN", "--rate NaN: expected", exitUsage},
		{good + "--rate=-1", "--rate -1: expected", exitUsage},
		{good + "--settle --unary", "--settle: expected without --unary", exitUsage},
		{good + "--detail most", "--detail must be one of", exitUsage},
		{"--addr 192.0.2.1:1 --model m --passes x", "plaintext is for unix sockets and loopback addresses", exitFault},
		{"--addr unix:/no/such.sock --model m --passes x", `model "m" of the daemon at unix:/no/such.sock`, exitFault},
	})
}
