package auth_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusals collects the reasons that a store reported.
type refusals struct {
	mu      sync.Mutex
	reasons []string
	latest  auth.Refusal
}

func (r *refusals) add(_ context.Context, refusal auth.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons, r.latest = append(r.reasons, refusal.Why), refusal
}

// last returns the last reason and forgets it.
func (r *refusals) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last string
	if n := len(r.reasons); n > 0 {
		last = r.reasons[n-1]
	}
	r.reasons = nil
	return last
}

// open returns a store of this text, and its file.
func open(t *testing.T, o auth.Options, text string) (s *auth.Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "access.yaml")
	write(t, path, text)
	s, err := auth.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A server that was stopped does not wait for its handlers.
		testbed.Eventually(t, "no session is left", func() bool { return s.Sessions() == 0 })
	})
	return s, path
}

// onlyA returns the text of a file whose only identity, a, has a token and may use the model m.
func onlyA(token string) string {
	return "identities:\n- {name: a, tokens: [{sha256: " + sumOf(token) + "}], models: [m]}\n"
}

// service answers with the name of its caller.
type service struct {
	ckdv1.UnimplementedUncertaintyServiceServer
	// streaming is called when a stream has begun. It may be nil.
	streaming func(context.Context)
}

func (service) GetModel(ctx context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	if err := auth.Allow(ctx, r.GetModel()); err != nil {
		return nil, err
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	return &ckdv1.GetModelResponse{Model: &ckdv1.Model{
		Policy: &ckdv1.PolicyRef{Model: auth.FromContext(ctx).Name()}, Classes: sent.Get("ckd-identity"),
	}}, nil
}

// DecomposeStream answers every message with the name of its caller, and leaves it to the
// interceptor to end the stream.
func (s service) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	if s.streaming != nil {
		s.streaming(stream.Context())
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := auth.Allow(stream.Context(), m.GetHeader().GetModel()); err != nil {
			return err
		}
		name := auth.FromContext(stream.Context()).Name()
		if err := stream.Send(&ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{Model: name}}}); err != nil {
			return err
		}
	}
}

// serve serves on listeners until the end of the test.
func serve(t *testing.T, s *auth.Store, src *tlsfiles.Source, impl ckdv1.UncertaintyServiceServer, listeners ...net.Listener) {
	t.Helper()
	server := grpc.NewServer(grpc.Creds(tlsfiles.Credentials(src)), grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
		ctx, _, err := s.Tap(ctx, call.FullMethodName)
		return ctx, err
	}), grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream))
	ckdv1.RegisterUncertaintyServiceServer(server, impl)
	healthv1.RegisterHealthServer(server, health.NewServer())
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
}

// pipe listens for connections within the process.
type pipe struct{ *bufconn.Listener }

func newPipe() pipe { return pipe{bufconn.Listen(1 << 16)} }

type pipeConn struct{ net.Conn }

func (pipeConn) InProcess() {}

func (p pipe) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return pipeConn{c}, nil
}

// dialPipe connects within the process.
func dialPipe(t *testing.T, p pipe, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, servertest.Address, nil, append(options, servertest.Through(p.Listener))...)
}

// bearer returns the context of a call that presents a token.
func bearer(ctx context.Context, token string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
}

// reload replaces the access file and puts it in force.
func reload(t *testing.T, s *auth.Store, path, text string) {
	t.Helper()
	write(t, path, text)
	if out := s.Reload("test"); out.Err != nil || !out.Changed {
		t.Fatalf("reload: %+v", out)
	}
}

// expectReason checks the reason of a status; empty means no error.
func expectReason(t *testing.T, err error, want string) {
	t.Helper()
	if got := servertest.FaultOf(err).Reason; got != want || (err == nil) != (want == "") {
		t.Errorf("got %q, want %q: %v", got, want, err)
	}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dial connects over TCP; a nil configuration means plaintext.
func dial(t *testing.T, address string, config *tls.Config, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	c, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// call calls GetModel with metadata, and returns who the server says it was.
func call(t *testing.T, c *grpc.ClientConn, model string, pairs ...string) (*ckdv1.Model, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...)), time.Minute)
	defer cancel()
	r, err := ckdv1.NewUncertaintyServiceClient(c).GetModel(ctx, &ckdv1.GetModelRequest{Model: model})
	return r.GetModel(), err
}

// secure returns a source whose CA its clients share.
func secure(t *testing.T) (*certtest.CA, *tlsfiles.Source, tlsfiles.Options) {
	t.Helper()
	ca, dir := certtest.NewCA(t, "ca"), t.TempDir()
	server := ca.Issue(t)
	o := tlsfiles.Options{
		Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca"),
		CRL: filepath.Join(dir, "crl"),
	}
	write(t, o.Cert, string(server.CertPEM))
	write(t, o.Key, string(server.KeyPEM))
	write(t, o.ClientCA, string(ca.PEM))
	write(t, o.CRL, string(ca.Revoke(t, time.Now().Add(time.Hour))))
	src, err := tlsfiles.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return ca, src, o
}

func client(t *testing.T, ca *certtest.CA, shows ...certtest.Pair) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
	for _, p := range shows {
		c.Certificates = append(c.Certificates, p.TLS(t))
	}
	return c
}

func sumOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
