package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/app"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func settings(t *testing.T, grace time.Duration) *config.Config {
	t.Helper()
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Admin, c.ShutdownGrace = []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")}, "127.0.0.1:0", grace
	return c
}

func policies(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "p.yaml", Data: []byte("models: [{name: m, classes: [a, b], critical: [b]}]")})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// started is an App that runs, and how to end it.
type started struct {
	*app.App
	stop func() error
}

func start(t *testing.T, grace time.Duration) started {
	t.Helper()
	a, err := app.NewFixed(settings(t, grace), zap.NewNop(), policies(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return started{a, func() error {
		cancel()
		return <-done
	}}
}

func dial(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestRunAndStop: both listeners and the admin address answer, and stopping
// ends Run without an error and leaves nothing running.
func TestRunAndStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	a := start(t, time.Second)
	for _, target := range a.Targets() {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "m"}, grpc.WaitForReady(true))
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", target, r, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(a.AdminURL() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("/readyz: %d %q %v", answer.StatusCode, body, err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// TestShutdownGrace: a stream that is held open is ended when the grace is
// over; one that ends by itself is let go on.
func TestShutdownGrace(t *testing.T) {
	a := start(t, 200*time.Millisecond)
	stream, err := ckdv1.NewUncertaintyServiceClient(dial(t, a.Targets()[0])).DecomposeStream(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	header := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "m"}}}
	if err := stream.Send(header); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}

	b := start(t, time.Minute)
	stream, err = ckdv1.NewUncertaintyServiceClient(dial(t, b.Targets()[1])).DecomposeStream(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(header); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	block := func(b *ckdv1.Block) {
		t.Helper()
		if err := stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}); err != nil {
			t.Fatal(err)
		}
	}
	// A number that is not open is answered, so that the input is known to be.
	block(&ckdv1.Block{Group: 1, InputIds: []string{"x"}, Passes: 3, Values: []float32{1, 0, 0.5, 0.5, 0, 1}})
	block(&ckdv1.Block{Group: 9})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	for b.Serving() {
		time.Sleep(time.Millisecond)
	}
	block(&ckdv1.Block{Group: 1, Passes: 1, Values: []float32{0.5, 0.5}, Final: true})
	reply, err := stream.Recv()
	if err != nil || len(reply.GetResults()) != 1 || reply.GetResults()[0].GetDecomposition() == nil {
		t.Errorf("while stopping: %v, %v", reply, err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// TestFirstLine: the log begins with the build, the addresses and the settings that are
// not at their defaults. Of files it has the names alone.
func TestFirstLine(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	c := settings(t, 3*time.Second)
	c.MaxStreams, c.InsecurePlaintext, c.Access = 7, true, filepath.Join(t.TempDir(), "access.yaml")
	secret := strings.Repeat("ab", 32)
	if err := os.WriteFile(c.Access, []byte("identities: [{name: someone, tokens: [{sha256: "+secret+"}], models: [m]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := app.NewFixed(c, zap.New(core), policies(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
	first := logs.All()[0]
	got := first.ContextMap()
	want := map[string]any{
		"version": buildinfo.Get().Version, "revision": buildinfo.Get().Revision,
		"listeners": map[string]any{"grpc": a.Targets(), "admin": strings.TrimPrefix(a.AdminURL(), "http://")},
		"settings": map[string]any{
			"listen": c.Listen, "admin": c.Admin, "access": c.Access, "insecure-plaintext": true, "max-streams": 7, "shutdown-grace": "3s",
		},
	}
	if first.Message != "starting" || !reflect.DeepEqual(got, want) {
		t.Errorf("%q: %v, want %v", first.Message, got, want)
	}
	for _, line := range logs.All() {
		if strings.Contains(fmt.Sprint(line.ContextMap()), secret) {
			t.Errorf("the log has what the access file says: %v", line)
		}
	}
}

// TestGraceIsOver: when the grace is over, clients that read learn why their streams end,
// though a connection stays open on which somebody watches the health.
//
// The time to read it in is limited, so that the best of three counts.
func TestGraceIsOver(t *testing.T) {
	var torn map[string]int
	for range 3 {
		if torn = overGrace(t); len(torn) == 0 {
			return
		}
	}
	t.Errorf("streams that did not end with DRAINING: %v", torn)
}

// overGrace stops a daemon that has streams open, and returns the errors of those that do
// not learn why they end.
func overGrace(t *testing.T) (torn map[string]int) {
	t.Helper()
	a := start(t, 50*time.Millisecond)
	watch, err := healthv1.NewHealthClient(dial(t, a.Targets()[0])).Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	var streams []ckdv1.UncertaintyService_DecomposeStreamClient
	for i := range 40 {
		stream, err := ckdv1.NewUncertaintyServiceClient(dial(t, a.Targets()[i%2])).DecomposeStream(t.Context(), grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*ckdv1.DecomposeStreamRequest{
			{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "m"}}},
			{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{Group: 1, InputIds: []string{"x"}, Values: []float32{0.5, 0.5}}}},
			{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{Group: 9}}}, // is answered, so that the input is known to be open
		} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		streams = append(streams, stream)
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	torn = map[string]int{}
	for _, stream := range streams {
		_, err := stream.Recv()
		if info := detail[*errdetails.ErrorInfo](err); info.GetReason() != "DRAINING" {
			torn[fmt.Sprint(err)]++
		}
	}
	return torn
}

// detail returns a detail of a status, or its zero value.
func detail[D any](err error) (found D) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(D); ok {
			found = d
		}
	}
	return found
}

// TestNothingStaysOpen: where New fails, the addresses are free again.
func TestNothingStaysOpen(t *testing.T) {
	running := start(t, time.Second)
	c := settings(t, time.Second)
	c.Admin = strings.TrimPrefix(running.AdminURL(), "http://") // taken
	if _, err := app.NewFixed(c, zap.NewNop(), policies(t)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a taken port: %v", err)
	}
	c.Admin = "off" // the unix socket of c must be free again
	a, err := app.NewFixed(c, zap.NewNop(), policies(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.AdminURL() != "" {
		t.Errorf("an admin address in spite of off: %s", a.AdminURL())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := running.stop(); err != nil {
		t.Error(err)
	}
}

func TestNewLogger(t *testing.T) {
	var out strings.Builder
	log, err := app.NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Error("loud", zap.String("why", "x"))
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"why":"x"`) || strings.Contains(got, "stacktrace") {
		t.Errorf("log: %s", got)
	}
	out.Reset()
	for range 10_000 {
		log.Warn("flood")
	}
	// 100 in a second, then every hundredth; a slow machine may take two seconds.
	if n := strings.Count(out.String(), "flood"); n < 100 || n > 1000 {
		t.Errorf("%d lines of 10000 like ones are written", n)
	}
	if _, err := app.NewLogger(&out, "shout", "json"); err == nil {
		t.Error("no error for an unknown level")
	}
}

// TestOthersDoNotHoldUpTheEnd: neither a connection that says nothing nor a
// client that watches the health is waited for.
func TestOthersDoNotHoldUpTheEnd(t *testing.T) {
	a := start(t, time.Hour)
	silent, err := net.Dial("tcp", a.Targets()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	watch, err := healthv1.NewHealthClient(dial(t, a.Targets()[0])).Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for want := healthv1.HealthCheckResponse_SERVING; ; {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetStatus() == want {
			break
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the watch says %v, %v", r, err)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute): // of an hour's grace
		t.Error("the daemon waits for what is no call of its own")
	}
}
