package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// testPolicies: a model that decides, one that observes, one for logits and one
// for concentrations.
const testPolicies = `
models:
  - name: ctg
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
  - name: open-ended
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
  - name: logits
    classes: [a, b, c]
    critical: [c]
    kind: logits
    gate: never
    passes: {fewest: 2, expected: 2}
  - name: evidential
    classes: [a, b, c]
    critical: [c]
    kind: dirichlet
`

// harness is a server behind a connection in memory.
type harness struct {
	server   *Server
	client   ckdv1.UncertaintyServiceClient
	conn     *grpc.ClientConn
	registry *prometheus.Registry
	logs     *observer.ObservedLogs
	pipe     *bufconn.Listener
}

// dial is another connection.
func (h *harness) dial(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:bufconn", append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return h.pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func newServer(t testing.TB, limits Limits, change ...func(*Options)) (*Server, *prometheus.Registry, *observer.ObservedLogs) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(testPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{ClassLabels: 32, RejectReasons: RejectReasons()})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	options := Options{Limits: limits, Logger: zap.New(core), Metrics: m, Registry: registry}
	for _, c := range change {
		c(&options)
	}
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
	return s, registry, logs
}

func newHarness(t *testing.T, limits Limits, change ...func(*Options)) *harness {
	t.Helper()
	s, registry, logs := newServer(t, limits, change...)
	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- s.GRPC().Serve(pipe) }()
	t.Cleanup(func() {
		s.GRPC().Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(time.Minute); !s.Idle() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // Stop does not wait for handlers
		}
		for deadline := time.Now().Add(time.Minute); s.openBytes.Load() != 0 && time.Now().Before(deadline); {
			runtime.GC() // which finds replies that a connection took along
			time.Sleep(time.Millisecond)
		}
		if n := s.openBytes.Load(); n != 0 {
			t.Errorf("%d bytes of the budget are not given back", n)
		}
	})
	h := &harness{server: s, registry: registry, logs: logs, pipe: pipe}
	h.conn = h.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))) // closed before the server stops
	h.client = ckdv1.NewUncertaintyServiceClient(h.conn)
	return h
}

// withIdentities puts an access file in force, whose identities have tokens by tokenOf.
func withIdentities(t *testing.T, file string) func(*Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := access.Open(path, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Access = store }
}

// tokenOf an identity, and what the access file has of it.
func tokenOf(name string) (token, tokens string) {
	token = name + "-0123456789abcdef"
	return token, fmt.Sprintf("tokens: [{sha256: %x}]", sha256.Sum256([]byte(token)))
}

// as is a context to call with as an identity.
func as(ctx context.Context, name string) context.Context {
	token, _ := tokenOf(name)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// metric is the sum of a metric's values (counts, of histograms) over the
// series that have the given labels.
func (h *harness) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// eventually waits until a metric, which the server may still be updating, has
// a value.
func (h *harness) eventually(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	var got float64
	for range 6000 {
		if got = h.metric(t, name, labels...); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s%v is %v, want %v", name, labels, got, want)
}

// stream is a stream of a test, which fails on any error of the transport.
type stream struct {
	t *testing.T
	ckdv1.UncertaintyService_DecomposeStreamClient
	cancel context.CancelFunc
	info   *ckdv1.StreamInfo
}

func (h *harness) open(t *testing.T, header *ckdv1.StreamHeader) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s, err := h.client.DecomposeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st := &stream{t, s, cancel, nil}
	st.sendHeader(header)
	st.info = st.receive().GetInfo()
	if st.info == nil {
		t.Fatal("the first answer has no info")
	}
	return st
}

func (s *stream) sendHeader(h *ckdv1.StreamHeader) {
	s.t.Helper()
	s.send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: h}})
}

func (s *stream) sendBlock(b *ckdv1.Block) {
	s.t.Helper()
	s.send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
}

func (s *stream) send(m *ckdv1.DecomposeStreamRequest) {
	s.t.Helper()
	if err := s.Send(m); err != nil {
		_, err = s.Recv()
		s.t.Fatalf("send: %v", err)
	}
}

func (s *stream) receive() *ckdv1.DecomposeStreamResponse {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatalf("receive: %v", err)
	}
	return m
}

// rest half-closes and gathers what is still to come.
func (s *stream) rest() []*ckdv1.Result {
	s.t.Helper()
	if err := s.CloseSend(); err != nil {
		s.t.Fatal(err)
	}
	var results []*ckdv1.Result
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return results
		}
		if err != nil {
			s.t.Fatalf("receive: %v", err)
		}
		results = append(results, m.GetResults()...)
	}
}

// ctg is the test recording, as [pass][input][class].
func ctg(t testing.TB) *record.Passes {
	t.Helper()
	p, err := record.ReadPasses("../internal/recordings/ctg-mcdropout.passes.npy", record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rowsOfPass is pass s of inputs [from, to).
func rowsOfPass(p *record.Passes, s, from, to int) []float32 {
	return p.Float32[p.Offset(s, from) : p.Offset(s, from)+(to-from)*p.K]
}

func littleEndian(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// reasonIn is the reason in the details of a status, and its metadata.
func reasonIn(t testing.TB, st *rpcstatus.Status) (ckdv1.ErrorReason, map[string]string) {
	t.Helper()
	for _, d := range status.FromProto(st).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if info.GetDomain() != "ckd.v1" {
				t.Errorf("domain %q", info.GetDomain())
			}
			return ckdv1.ErrorReason(ckdv1.ErrorReason_value["ERROR_REASON_"+info.GetReason()]), info.GetMetadata()
		}
	}
	t.Errorf("no ErrorInfo in %v", st)
	return 0, nil
}

func grpcHeader(h *metadata.MD) grpc.CallOption { return grpc.Header(h) }
