package daemon_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ckd-project/ckd/cmd/ckd/internal/daemon"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// settings returns the defaults with free addresses, and the policy of a model m.
func settings(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	c.Listen, c.Admin = []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")}, "127.0.0.1:0"
	c.ShutdownGrace, c.Policy = time.Second, []string{filepath.Join(t.TempDir(), "p.yaml")}
	if err := os.WriteFile(c.Policy[0], []byte("models: [{name: m, classes: [a, b], critical: [b]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// started is a running daemon.
type started struct {
	*daemon.Daemon
	t    *testing.T
	logs *observer.ObservedLogs
	stop func() error // stops it once and waits
}

// start runs a daemon until stop, or until the test ends. Each change adapts the settings.
func start(t *testing.T, changes ...func(*config.Config)) *started {
	t.Helper()
	c := settings(t)
	for _, change := range changes {
		change(c)
	}
	core, logs := observer.New(zap.InfoLevel)
	d, err := daemon.New(c, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return &started{d, t, logs, stop}
}

// untilDraining waits until the daemon wants no more traffic.
func (d *started) untilDraining() {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if code, _ := get(d.t, d.AdminURL()+"/readyz"); code == http.StatusServiceUnavailable {
			return
		}
	}
	d.t.Error("the daemon wants traffic although it stops")
}

// grace returns a change of the settings.
func grace(g time.Duration) func(*config.Config) {
	return func(c *config.Config) { c.ShutdownGrace = g }
}

// withHTTP serves the API over HTTP.
func withHTTP(c *config.Config) { c.HTTP = "127.0.0.1:0" }

// get returns the answer to a request whose connection is not kept, and its body. The code is 0
// without an answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return request(t, http.MethodGet, url, func(*http.Request) {})
}

func request(t *testing.T, method, url string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	change(r)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// openStream opens a stream for model m.
func openStream(t *testing.T, target string) ckdv1.UncertaintyService_DecomposeStreamClient {
	t.Helper()
	stream, err := ckdv1.NewUncertaintyServiceClient(dial(t, target)).DecomposeStream(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	send(t, stream, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "m"}}})
	receive(t, stream)
	return stream
}

func send(t *testing.T, stream ckdv1.UncertaintyService_DecomposeStreamClient, m *ckdv1.DecomposeStreamRequest) {
	t.Helper()
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
}

func sendBlock(t *testing.T, stream ckdv1.UncertaintyService_DecomposeStreamClient, b *ckdv1.Block) {
	t.Helper()
	send(t, stream, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
}

func receive(t *testing.T, stream ckdv1.UncertaintyService_DecomposeStreamClient) *ckdv1.DecomposeStreamResponse {
	t.Helper()
	reply, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// openInput opens an input of some passes and returns when the daemon has it: the answer on an
// unknown group shows that.
func openInput(t *testing.T, stream ckdv1.UncertaintyService_DecomposeStreamClient, values ...float32) {
	t.Helper()
	sendBlock(t, stream, &ckdv1.Block{Group: 1, InputIds: []string{"x"}, Passes: uint32(len(values) / 2), Values: values})
	sendBlock(t, stream, &ckdv1.Block{Group: 9})
	receive(t, stream)
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

// TestRunAndStop checks that both listeners and the admin address answer, and that stopping ends
// Run without an error and leaves nothing running.
func TestRunAndStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	a := start(t)
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
	if code, body := get(t, a.AdminURL()+"/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// TestFirstLine checks that the log begins with the build, the addresses and the settings that are
// not at their defaults, and holds the names of files but nothing of what they say.
func TestFirstLine(t *testing.T) {
	c := settings(t)
	c.MaxStreams, c.InsecurePlaintext, c.Access = 7, true, filepath.Join(t.TempDir(), "access.yaml")
	c.ShutdownGrace = 3 * time.Second
	secret := strings.Repeat("ab", 32)
	if err := os.WriteFile(c.Access, []byte("identities: [{name: someone, tokens: [{sha256: "+secret+"}], models: [m]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := start(t, func(to *config.Config) { *to = *c })
	first := a.logs.All()[0]
	want := map[string]any{
		"version": buildinfo.Get().Version, "revision": buildinfo.Get().Revision,
		"listeners": map[string]any{"grpc": a.Targets(), "admin": strings.TrimPrefix(a.AdminURL(), "http://")},
		"settings": map[string]any{
			"policy": c.Policy, "listen": c.Listen, "admin": c.Admin, "access": c.Access, "insecure-plaintext": true, "max-streams": 7, "shutdown-grace": "3s",
		},
	}
	if d := cmp.Diff(want, first.ContextMap()); first.Message != "starting" || d != "" {
		t.Errorf("%q: -want +got:\n%s", first.Message, d)
	}
	for _, line := range a.logs.All() {
		if strings.Contains(fmt.Sprint(line.ContextMap()), secret) {
			t.Errorf("the log has what the access file says: %v", line)
		}
	}
}

// TestNothingStaysOpen checks that the addresses are free again after New fails.
func TestNothingStaysOpen(t *testing.T) {
	running := start(t)
	c := settings(t)
	c.Admin = strings.TrimPrefix(running.AdminURL(), "http://") // taken
	if _, err := daemon.New(c, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a taken port: %v", err)
	}
	c.Admin = "off" // the unix socket of c must be free again
	if a := start(t, func(to *config.Config) { *to = *c }); a.AdminURL() != "" {
		t.Errorf("an admin address in spite of off: %s", a.AdminURL())
	}
}

// TestNewLogger checks the level, the format and the sampling of log lines.
func TestNewLogger(t *testing.T) {
	var out strings.Builder
	log, err := daemon.NewLogger(&out, "warn", "json")
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
	// 100 lines in a second, then every hundredth. A slow machine may take two seconds.
	if n := strings.Count(out.String(), "flood"); n < 100 || n > 1000 {
		t.Errorf("%d lines of 10000 like ones are written", n)
	}
	if _, err := daemon.NewLogger(&out, "shout", "json"); err == nil {
		t.Error("no error for an unknown level")
	}
}
