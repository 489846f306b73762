package access_test

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
	"google.golang.org/grpc/reflection"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs"
	"github.com/ckd-project/ckd/internal/certs/certtest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusals are the reasons that a store told of.
type refusals struct {
	mu      sync.Mutex
	reasons []access.Reason
	latest  access.Refusal
}

func (r *refusals) add(_ context.Context, refusal access.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons, r.latest = append(r.reasons, refusal.Why), refusal
}

// last reason, which is forgotten.
func (r *refusals) last() access.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	var last access.Reason
	if n := len(r.reasons); n > 0 {
		last = r.reasons[n-1]
	}
	r.reasons = nil
	return last
}

// open a store of this text.
func open(t *testing.T, o access.Options, text string) (s *access.Store, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "access.yaml")
	write(t, path, text)
	s, err := access.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Sessions() > 0 {
			t.Errorf("%d sessions are left", s.Sessions())
		}
	})
	return s, path
}

// service answers with who called it.
type service struct {
	ckdv1.UnimplementedUncertaintyServiceServer
	// streaming is called by every stream when it has begun; it may be nil.
	streaming func(context.Context)
}

func (service) GetModel(ctx context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	if err := access.Allow(ctx, r.GetModel()); err != nil {
		return nil, err
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	return &ckdv1.GetModelResponse{Model: &ckdv1.Model{
		Policy: &ckdv1.PolicyRef{Model: access.FromContext(ctx).Name()}, Classes: sent.Get("ckd-identity"),
	}}, nil
}

// DecomposeStream answers every message with who called it, and leaves it to the
// interceptor to end it.
func (s service) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	if s.streaming != nil {
		s.streaming(stream.Context())
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := access.Allow(stream.Context(), m.GetHeader().GetModel()); err != nil {
			return err
		}
		name := access.FromContext(stream.Context()).Name()
		if err := stream.Send(&ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{Model: name}}}); err != nil {
			return err
		}
	}
}

// serve on listeners, until the end of the test.
func serve(t *testing.T, s *access.Store, src *certs.Source, impl ckdv1.UncertaintyServiceServer, listeners ...net.Listener) {
	t.Helper()
	server := grpc.NewServer(grpc.Creds(certs.Credentials(src)), grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream))
	ckdv1.RegisterUncertaintyServiceServer(server, impl)
	healthv1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dial TCP; nil is plaintext.
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

// call GetModel with metadata, and tell who the server says it was.
func call(t *testing.T, c *grpc.ClientConn, model string, pairs ...string) (*ckdv1.Model, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...)), time.Minute)
	defer cancel()
	r, err := ckdv1.NewUncertaintyServiceClient(c).GetModel(ctx, &ckdv1.GetModelRequest{Model: model})
	return r.GetModel(), err
}

// secure is a source whose CA its clients share. They need no certificate.
func secure(t *testing.T) (*certtest.CA, *certs.Source, certs.Options) {
	t.Helper()
	ca, dir := certtest.NewCA(t, "ca"), t.TempDir()
	server := ca.Issue(t)
	o := certs.Options{
		Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca"),
		CRL: filepath.Join(dir, "crl"), ClientCertOptional: true,
	}
	write(t, o.Cert, string(server.CertPEM))
	write(t, o.Key, string(server.KeyPEM))
	write(t, o.ClientCA, string(ca.PEM))
	write(t, o.CRL, string(ca.Revoke(t, time.Now().Add(time.Hour))))
	src, err := certs.Load(o)
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

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not in a minute: %s", what)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// callIn a context, and tell who the server says it was.
func callIn(ctx context.Context, c *grpc.ClientConn) (string, error) {
	r, err := ckdv1.NewUncertaintyServiceClient(c).GetModel(ctx, &ckdv1.GetModelRequest{Model: "m"})
	return r.GetModel().GetPolicy().GetModel(), err
}

// streamIn a context does the same over a stream.
func streamIn(ctx context.Context, c *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := ckdv1.NewUncertaintyServiceClient(c).DecomposeStream(ctx)
	if err != nil {
		return "", err
	}
	if err := s.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{
		Header: &ckdv1.StreamHeader{Model: "m"},
	}}); err != nil {
		return "", err
	}
	r, err := s.Recv()
	if err != nil {
		return "", err
	}
	return r.GetPolicies()[0].GetModel(), nil
}
