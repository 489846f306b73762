package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// testPolicies has a model that decides, one that observes, one for logits and one for
// concentrations.
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

// newServer returns a server of testPolicies with the default limits, its metrics and its log.
func newServer(t testing.TB, change ...func(*Options)) (*Server, *prometheus.Registry, *observer.ObservedLogs) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{RejectReasons: RejectReasons(), Receipts: true})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	options := Options{Limits: DefaultLimits(), Logger: zap.New(core), Metrics: m, Registry: registry}
	for _, c := range change {
		c(&options)
	}
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetPolicies(parsePolicies(t, testPolicies)); err != nil {
		t.Fatal(err)
	}
	return s, registry, logs
}

func newHarness(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	s, registry, logs := newServer(t, change...)
	t.Cleanup(func() { // after the server has stopped
		if !within(s.Idle) { // Stop does not wait for handlers
			t.Error("calls are left")
		}
		if !within(func() bool {
			if s.budget.total() == 0 {
				return true
			}
			runtime.GC() // frees replies that were lost with their connection
			return false
		}) {
			t.Errorf("%d bytes of the budget are not given back", s.budget.total())
		}
	})
	h := &harness{server: s, registry: registry, logs: logs, pipe: servertest.Serve(t, s.GRPC())}
	h.conn = h.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))) // closed before the server stops
	h.client = ckdv1.NewUncertaintyServiceClient(h.conn)
	return h
}

// dial opens another connection.
func (h *harness) dial(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return servertest.Dial(t, h.pipe, options...)
}

func parsePolicies(t testing.TB, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// set puts policies in force, in place of those before.
func (h *harness) set(t testing.TB, text string) {
	t.Helper()
	if err := h.server.SetPolicies(parsePolicies(t, text)); err != nil {
		t.Fatal(err)
	}
}

// model returns what clients are told about a policy.
func (h *harness) model(t *testing.T, name string) *ckdv1.Model {
	t.Helper()
	reply, err := h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: name})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetModel()
}

// decompose makes a unary call, which must not be refused.
func (h *harness) decompose(t *testing.T, r *ckdv1.DecomposeRequest, options ...grpc.CallOption) *ckdv1.DecomposeResponse {
	t.Helper()
	response, err := h.client.Decompose(t.Context(), r, options...)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// withIdentities puts an access file in force: the rights of identities, by name.
func withIdentities(t *testing.T, rights map[string]string) func(*Options) {
	t.Helper()
	text := "identities:\n"
	for name, has := range rights {
		text += fmt.Sprintf("- {name: %s, tokens: [{sha256: %x}], %s}\n", name, sha256.Sum256([]byte(tokenOf(name))), has)
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := auth.Open(path, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Auth = store }
}

// tokenOf returns the token of an identity.
func tokenOf(name string) string { return name + "-0123456789abcdef" }

// identified returns a context to call with as an identity.
func identified(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tokenOf(name))
}

// metric sums a metric over the series with the given labels.
func (h *harness) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return servertest.Sum(t, h.registry, name, labels...)
}

// eventually waits until a metric has a value.
func (h *harness) eventually(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	servertest.Eventually(t, h.registry, want, name, labels...)
}

// expectScrape checks that a scrape ends now: it must not wait for a shard of the metrics that the
// caller holds.
func (h *harness) expectScrape(t *testing.T) {
	scraped := make(chan error, 1)
	go func() {
		_, err := h.registry.Gather()
		scraped <- err
	}()
	select {
	case err := <-scraped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a scrape waits for its shard")
	}
}

// within reports whether something becomes true within a minute.
func within(so func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}

// clientStream is the client's end of a stream. Any error of the transport fails the test.
type clientStream struct {
	t *testing.T
	ckdv1.UncertaintyService_DecomposeStreamClient
	cancel context.CancelFunc
	info   *ckdv1.StreamInfo
}

func (h *harness) open(t *testing.T, of *ckdv1.StreamHeader) *clientStream {
	t.Helper()
	return h.openIn(t.Context(), t, of)
}

// openIn opens a stream in a context, which has the metadata of the call.
func (h *harness) openIn(ctx context.Context, t *testing.T, of *ckdv1.StreamHeader) *clientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	s, err := h.client.DecomposeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st := &clientStream{t, s, cancel, nil}
	st.send(header(of))
	st.info = st.receive().GetInfo()
	if st.info == nil {
		t.Fatal("the first answer has no info")
	}
	return st
}

func header(h *ckdv1.StreamHeader) *ckdv1.DecomposeStreamRequest {
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: h}}
}

func block(b *ckdv1.Block) *ckdv1.DecomposeStreamRequest {
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}
}

func (s *clientStream) sendBlock(b *ckdv1.Block) {
	s.t.Helper()
	s.send(block(b))
}

func (s *clientStream) send(m *ckdv1.DecomposeStreamRequest) {
	s.t.Helper()
	if err := s.Send(m); err != nil {
		_, err = s.Recv()
		s.t.Fatalf("send: %v", err)
	}
}

func (s *clientStream) receive() *ckdv1.DecomposeStreamResponse {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatalf("receive: %v", err)
	}
	return m
}

// rest half-closes the stream and returns the results that still come.
func (s *clientStream) rest() []*ckdv1.Result {
	s.t.Helper()
	if err := s.CloseSend(); err != nil {
		s.t.Fatal(err)
	}
	return s.ended("")
}

// ended reads a stream to its end, checks the reason for it, which is empty for a stream that ends
// well, and returns the results until then.
func (s *clientStream) ended(reason string) (results []*ckdv1.Result) {
	s.t.Helper()
	for {
		m, err := s.Recv()
		switch {
		case err == nil:
			results = append(results, m.GetResults()...)
			continue
		case reason == "" && !errors.Is(err, io.EOF):
			s.t.Fatalf("receive: %v", err)
		case reason != "":
			expectFault(s.t, err, reason)
		}
		return results
	}
}

// segment is a group of inputs of the test recording.
type segment struct {
	group uint64
	first int // input
	n     int
}

// sendPasses sends passes [from, to) of a segment, in a block each. Pass 0 opens the group.
func (s *clientStream) sendPasses(of segment, from, to int) {
	s.t.Helper()
	recording := ctg(s.t)
	for pass := from; pass < to; pass++ {
		b := &ckdv1.Block{Group: of.group, Values: rowsOfPass(recording, pass, of.first, of.first+of.n)}
		if pass == 0 {
			b.InputIds = make([]string, of.n)
		}
		s.sendBlock(b)
	}
}

var recordingOfCTG = sync.OnceValues(func() (*record.Passes, error) {
	return record.ReadPasses("../internal/recordings/ctg-mcdropout.passes.npy", record.Options{})
})

// ctg returns the test recording, [pass][input][class]. Tests must not change it.
func ctg(t testing.TB) *record.Passes {
	t.Helper()
	p, err := recordingOfCTG()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rowsOfPass returns pass s of inputs [from, to).
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

// expectFault checks the reason of an error, and that it has the code of its reason, which
// TestErrorDocs holds against the documentation.
func expectFault(t testing.TB, err error, reason string) servertest.Fault {
	t.Helper()
	f := servertest.FaultOf(err)
	code := codeOf(ckdv1.ErrorReason(ckdv1.ErrorReason_value["ERROR_REASON_"+reason]))
	if f.Reason != reason || status.Code(err) != code {
		t.Errorf("got %s %s, want %s %s: %v", status.Code(err), f.Reason, code, reason, err)
	}
	return f
}

// expectError checks the reason and the code of the error of an input, or of a message.
func expectError(t testing.TB, st *rpcstatus.Status, reason string) servertest.Fault {
	t.Helper()
	return expectFault(t, status.ErrorProto(st), reason)
}
