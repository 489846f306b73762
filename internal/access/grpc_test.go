package access_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	tokenA = "token-of-a-0123456789"
	tokenB = "token-of-b-0123456789"
)

// reasonOf a status, if its details are as they should be.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == "ckd.v1" {
			return info.GetReason()
		}
	}
	return ""
}

// Who is known by what, over TLS; and all who are not are told the same.
func TestAuthentication(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add, CheckCertificate: src.Check}, `
identities:
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}], models: [m], certificates: [spiffe://c/ns/eye/sa/a, a.eye.svc, CN=a of eye]}
- {name: b, tokens: [{sha256: `+sumOf(tokenB)+`}], models: ["*"], certificates: [b.eye.svc, spiffe://c/ns/eye/sa/b]}
`)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, src, service{}, l)
	bearer := func(token string) []string { return []string{"authorization", "Bearer " + token} }
	tests := []struct {
		name  string
		certs []string // names of the client's certificate
		sent  []string
		who   string        // empty for nobody
		why   access.Reason // then
	}{
		{name: "a token", sent: bearer(tokenA), who: "a"},
		{name: "another", sent: bearer(tokenB), who: "b"},
		{name: "the scheme in other letters", sent: []string{"authorization", "bEARER " + tokenB}, who: "b"},
		{name: "a URI", certs: []string{"spiffe://c/ns/eye/sa/a"}, who: "a"},
		{name: "a DNS name", certs: []string{"a.eye.svc"}, who: "a"},
		{name: "a DNS name in other letters", certs: []string{"A.Eye.svc"}, who: "a"},
		{name: "a common name", certs: []string{"CN=a of eye"}, who: "a"},
		{name: "several names of one identity", certs: []string{"spiffe://c/ns/eye/sa/b", "b.eye.svc", "else.svc"}, who: "b"},
		{name: "a token and a certificate", certs: []string{"a.eye.svc"}, sent: bearer(tokenB), who: "b"},
		{name: "nothing", why: access.NoCredential},
		{name: "a wrong token", sent: bearer(tokenA + "x"), why: access.UnknownToken},
		{name: "half a token", sent: bearer(tokenA[:10]), why: access.UnknownToken},
		{name: "the hash of a token", sent: bearer(sumOf(tokenA)), why: access.UnknownToken},
		{name: "no token", sent: bearer(""), why: access.BadCredential},
		{name: "another scheme", sent: []string{"authorization", "Basic " + tokenA}, why: access.BadCredential},
		{name: "a long token", sent: bearer(strings.Repeat("x", 5000)), why: access.BadCredential},
		{name: "two tokens", sent: append(bearer(tokenA), bearer(tokenA)...), why: access.BadCredential},
		{name: "an unknown certificate", certs: []string{"c.eye.svc"}, why: access.UnknownCertificate},
		{name: "a DNS name as a common name", certs: []string{"CN=a.eye.svc"}, why: access.UnknownCertificate},
		{name: "a URI below", certs: []string{"spiffe://c/ns/eye/sa/a/x"}, why: access.UnknownCertificate},
		{name: "a host of capitals, which URIs keep", certs: []string{"spiffe://C/ns/eye/sa/a"}, why: access.UnknownCertificate},
		{name: "a certificate of two identities", certs: []string{"a.eye.svc", "spiffe://c/ns/eye/sa/b"}, why: access.AmbiguousCertificate},
		{name: "a wrong token and a good certificate", certs: []string{"a.eye.svc"}, sent: bearer("no-such-token-012345"), why: access.UnknownToken},
		{name: "another scheme and a good certificate", certs: []string{"a.eye.svc"}, sent: []string{"authorization", "Basic x"}, why: access.BadCredential},
		{name: "an identity of its own saying", sent: []string{"ckd-identity", "a"}, why: access.NoCredential},
		{name: "an identity of its own saying beside a certificate", certs: []string{"a.eye.svc"}, sent: []string{"ckd-identity", "b"}, who: "a"},
	}
	var first *status.Status
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := client(t, ca)
			if test.certs != nil {
				config = client(t, ca, ca.Client(t, test.certs...))
			}
			c := dial(t, l.Addr().String(), config)
			m, err := call(t, c, "m", test.sent...)
			why := refused.last()
			stream, streamErr := ckdv1.NewUncertaintyServiceClient(c).DecomposeStream(
				metadata.NewOutgoingContext(t.Context(), metadata.Pairs(test.sent...)))
			if streamErr == nil {
				_ = stream.CloseSend()
				_, streamErr = stream.Recv()
			}
			if test.who != "" {
				if err != nil || m.GetPolicy().GetModel() != test.who || len(m.GetClasses()) > 0 || why != "" {
					t.Errorf("%v, %v, %s, want %s", m, err, why, test.who)
				}
				if status.Code(streamErr) == codes.Unauthenticated {
					t.Errorf("stream: %v", streamErr)
				}
				return
			}
			if status.Code(err) != codes.Unauthenticated || reasonOf(t, err) != "UNAUTHENTICATED" || why != test.why {
				t.Errorf("%v, %s, want UNAUTHENTICATED, %s", err, why, test.why)
			}
			st := status.Convert(err)
			if first == nil {
				first = st
			}
			if !proto.Equal(st.Proto(), first.Proto()) || !proto.Equal(status.Convert(streamErr).Proto(), first.Proto()) {
				t.Errorf("%v and %v tell more than %v", st, streamErr, first)
			}
			if why := refused.last(); why != test.why {
				t.Errorf("stream: %s, want %s", why, test.why)
			}
		})
	}
}

// What is open to all, and what is not.
func TestOpen(t *testing.T) {
	s, _ := open(t, access.Options{}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(tokenA)+"}]}\n")
	tcp, unix := listen(t, "tcp", "127.0.0.1:0"), listen(t, "unix", filepath.Join(t.TempDir(), "s"))
	serve(t, s, nil, service{}, tcp, unix)
	for _, address := range []string{tcp.Addr().String(), "unix:" + unix.Addr().String()} {
		c := dial(t, address, nil)
		if _, err := healthv1.NewHealthClient(c).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		watch := func(pairs ...string) error {
			ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...)))
			defer cancel()
			stream, err := healthv1.NewHealthClient(c).Watch(ctx, &healthv1.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		if err := watch(); reasonOf(t, err) != "UNAUTHENTICATED" {
			t.Errorf("a watch that goes on: %v", err)
		}
		if err := watch("authorization", "Bearer "+tokenA); err != nil {
			t.Errorf("a watch: %v", err)
		}
		reflect := func(pairs ...string) error {
			ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...)))
			defer cancel()
			stream, err := reflectionv1.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
			if err == nil {
				_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
				_, err = stream.Recv()
			}
			return err
		}
		if err := reflect(); reasonOf(t, err) != "UNAUTHENTICATED" {
			t.Errorf("reflection: %v", err)
		}
		if err := reflect("authorization", "Bearer "+tokenA); err != nil {
			t.Errorf("reflection: %v", err)
		}
		for _, method := range []string{
			"/inference.GRPCInferenceService/ModelReady", "/grpc.health.v1.Healthy/Check", "/none/none",
			"/ckd.v1.UncertaintyService/GetModel",
		} {
			err := c.Invoke(t.Context(), method, &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
			if code := status.Code(err); code != codes.Unauthenticated && code != codes.Unimplemented {
				t.Errorf("%s: %v", method, err)
			}
		}
		if _, err := call(t, c, "m", "ckd-identity", "a"); reasonOf(t, err) != "UNAUTHENTICATED" {
			t.Errorf("over %s an identity of its own saying is %v", address, err)
		}
	}
	eventually(t, "streams ended", func() bool { return s.Sessions() == 0 })
}

// A nil store is no access control.
func TestNoAccessControl(t *testing.T) {
	var s *access.Store
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, l)
	c := dial(t, l.Addr().String(), nil)
	if m, err := call(t, c, "anything", "ckd-identity", "a"); err != nil || m.GetPolicy().GetModel() != "" {
		t.Errorf("%v, %v", m, err)
	}
	stream := begin(t, c, "anything")
	if err := stream.more("anything"); err != nil {
		t.Error(err)
	}
	if access.Gone(t.Context()) != nil || access.Ended(t.Context()) != nil || access.Allow(t.Context(), "x") != nil {
		t.Error("a context without access control is limited")
	}
	var i *access.Identity
	if !i.AcquireStream() || !i.MayAdmin() || !i.MayReload() || !i.AcquireCall() || i.Calls() != 0 || !i.UsesModels() || !i.MayUse("x") || i.Name() != "" || i.Streams() != 0 {
		t.Error("no identity is limited")
	}
	i.ReleaseStream()
}

func TestModels(t *testing.T) {
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add}, `
identities:
- {name: one, tokens: [{sha256: `+sumOf(tokenA)+`}], models: [m]}
- {name: none, tokens: [{sha256: `+sumOf(tokenB)+`}]}
`)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, l)
	c := dial(t, l.Addr().String(), nil)
	long := strings.Repeat("é", 300)
	for _, test := range []struct{ token, model, want string }{
		{tokenA, "m", ""},
		{tokenA, "n", `the identity may not use the model "n"`},
		{tokenA, "*", `the identity may not use the model "*"`},
		{tokenA, long, `the identity may not use the model "` + long[:120] + `..."`},
		{tokenB, "m", `the identity may not use the model "m"`},
		{tokenB, "", `the identity may not use the model ""`},
	} {
		_, err := call(t, c, test.model, "authorization", "Bearer "+test.token)
		why := refused.last()
		if test.want == "" {
			if err != nil || why != "" {
				t.Errorf("%v, %s", err, why)
			}
			continue
		}
		if st := status.Convert(err); st.Code() != codes.PermissionDenied || st.Message() != test.want || reasonOf(t, err) != "NOT_ALLOWED" || why != access.NotAllowed {
			t.Errorf("%v, %s, want %s", err, why, test.want)
		}
	}
}

// stream of a client.
type stream struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
}

// begin a stream and have one message answered.
func begin(t *testing.T, c *grpc.ClientConn, model string, pairs ...string) stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...)), time.Minute)
	t.Cleanup(cancel)
	s, err := ckdv1.NewUncertaintyServiceClient(c).DecomposeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	one := stream{s}
	if err := one.more(model); err != nil {
		t.Fatal(err)
	}
	return one
}

// more of it: one message and its answer.
func (s stream) more(model string) error {
	if err := s.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{
		Header: &ckdv1.StreamHeader{Model: model},
	}}); err != nil && !strings.Contains(err.Error(), "EOF") {
		return err
	}
	_, err := s.Recv()
	return err
}

// What is withdrawn ends the streams that it let in, and no others, whether they
// wait for the interceptor or for Gone.
func TestWithdrawnMidStream(t *testing.T) {
	const text = `
identities:
- {name: a, models: [m, n], tokens: [{file: one}, {file: two}]}
- {name: b, models: ["*"], tokens: [{file: three}]}
`
	tokens := map[string]string{"one": "token-one-0123456789", "two": "token-two-0123456789", "three": "token-three-0123456789"}
	tests := []struct {
		name   string
		text   string            // of the access file; empty for the same
		tokens map[string]string // replaced; empty content for no file
		ended  string            // which of the streams one-m one-n two-m three-m end
		want   string            // with which reason
		added  string            // a model that streams of two may use now
	}{
		{name: "nothing", ended: ""},
		{name: "a token is replaced", tokens: map[string]string{"one": "token-new-0123456789"}, ended: "one-m one-n", want: "UNAUTHENTICATED"},
		{name: "a token's file is removed", tokens: map[string]string{"two": ""}, ended: "two-m", want: "UNAUTHENTICATED"},
		{name: "a token is no longer named", text: strings.Replace(text, "{file: one}, ", "", 1), ended: "one-m one-n", want: "UNAUTHENTICATED"},
		{name: "an identity is removed", text: "identities:\n- {name: b, models: ['*'], tokens: [{file: three}]}\n", ended: "one-m one-n two-m", want: "UNAUTHENTICATED"},
		{name: "an identity has another name", text: strings.Replace(text, "name: a", "name: c", 1), ended: "one-m one-n two-m", want: "UNAUTHENTICATED"},
		{name: "a token is another identity's", text: "identities:\n- {name: a, models: [m, n], tokens: [{file: three}, {file: two}]}\n- {name: b, models: ['*'], tokens: [{file: one}]}\n", ended: "one-m one-n three-m", want: "UNAUTHENTICATED"},
		{name: "all are removed", text: "identities: []", ended: "one-m one-n two-m three-m", want: "UNAUTHENTICATED"},
		{name: "a model is withdrawn", text: strings.Replace(text, "[m, n]", "[m]", 1), ended: "one-n", want: "NOT_ALLOWED"},
		{name: "all models become one", text: strings.Replace(text, `["*"]`, "[n]", 1), ended: "three-m", want: "NOT_ALLOWED"},
		{name: "a model is added", text: strings.Replace(text, "[m, n]", "[m, n, o]", 1), ended: "", added: "o"},
		{name: "a faulty file", text: "identities: none", ended: ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, token := range tokens {
				write(t, filepath.Join(dir, name), token+"\n")
			}
			path := filepath.Join(dir, "access.yaml")
			write(t, path, text)
			s, err := access.Open(path, access.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.Pace(time.Millisecond, 20*time.Millisecond, time.Hour)
			var (
				mu   sync.Mutex
				gone = map[string]error{} // why streams ended, as their handlers see it; nil while they go on
			)
			impl := service{streaming: func(ctx context.Context) {
				name := metadata.ValueFromIncomingContext(ctx, "name")[0]
				go func() {
					select {
					case <-access.Gone(ctx):
						<-ctx.Done()
					case <-ctx.Done(): // or both at once
						if access.Ended(ctx) == nil {
							return
						}
						<-access.Gone(ctx)
					}
					mu.Lock()
					defer mu.Unlock()
					gone[name] = access.Ended(ctx)
					if !errors.Is(context.Cause(ctx), access.Ended(ctx)) {
						t.Errorf("cause %v, want %v", context.Cause(ctx), access.Ended(ctx))
					}
				}()
			}}
			l := listen(t, "tcp", "127.0.0.1:0")
			serve(t, s, nil, impl, l)
			c := dial(t, l.Addr().String(), nil)
			streams := map[string]stream{}
			for _, name := range []string{"one-m", "one-n", "two-m", "three-m"} {
				token, model, _ := strings.Cut(name, "-")
				streams[name] = begin(t, c, model, "authorization", "Bearer "+tokens[token], "name", name)
			}
			if s.Sessions() != 4 {
				t.Errorf("%d sessions, want 4", s.Sessions())
			}

			if test.text != "" {
				write(t, path, test.text)
			}
			for name, token := range test.tokens {
				if token == "" {
					remove(t, filepath.Join(dir, name))
				} else {
					write(t, filepath.Join(dir, name), token)
				}
			}
			s.Reload("test")
			want := strings.Fields(test.ended)
			eventually(t, "as many gone as should be", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(gone) >= len(want)
			})
			for name, one := range streams {
				_, model, _ := strings.Cut(name, "-")
				err := one.more(model)
				mu.Lock()
				cause, isGone := gone[name]
				mu.Unlock()
				if !strings.Contains(" "+test.ended+" ", " "+name+" ") {
					if err != nil || isGone {
						t.Errorf("%s has ended: %v", name, err)
					}
					continue
				}
				if reasonOf(t, err) != test.want || reasonOf(t, cause) != test.want {
					t.Errorf("%s: %v and %v, want %s", name, err, cause, test.want)
				}
			}
			if test.added != "" {
				if err := streams["two-m"].more(test.added); err != nil {
					t.Errorf("%s: %v", test.added, err)
				}
			}
			for _, one := range streams {
				_ = one.CloseSend()
			}
			eventually(t, "no sessions left", func() bool { return s.Sessions() == 0 })
		})
	}
}

// A certificate that is revoked is good for no further call, and its streams end.
func TestRevokedCertificate(t *testing.T) {
	ca, src, o := secure(t)
	var refused refusals
	s, _ := open(t, access.Options{CheckCertificate: src.Check, Refused: refused.add}, "identities:\n- {name: a, certificates: [a.svc], models: [m]}\n")
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, src, service{}, l)
	pair := ca.Client(t, "a.svc")
	c := dial(t, l.Addr().String(), client(t, ca, pair))
	stream := begin(t, c, "m")
	write(t, o.CRL, string(ca.Revoke(t, time.Now().Add(time.Hour), pair.Cert)))
	if out := src.Reload("test"); out.Err != nil || !out.Changed {
		t.Fatalf("%+v", out)
	}
	s.Recheck()
	if err := stream.more("m"); err == nil {
		t.Error("the stream goes on")
	}
	eventually(t, "no sessions", func() bool { return s.Sessions() == 0 })
}

// The number of streams of an identity is bounded, whatever is reloaded.
func TestStreams(t *testing.T) {
	text := func(streams string) string {
		return "identities:\n- {name: a, tokens: [{sha256: " + sumOf(tokenA) + "}], models: [m]" + streams + "}\n"
	}
	s, path := open(t, access.Options{}, text(", streams: 2"))
	handler := func(f func(*access.Identity)) {
		t.Helper()
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+tokenA))
		if _, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
			f(access.FromContext(ctx))
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	acquire := func(want bool) {
		t.Helper()
		handler(func(i *access.Identity) {
			if got := i.AcquireStream(); got != want {
				t.Errorf("acquired %t of %d, want %t", got, i.Streams(), want)
			}
		})
	}
	release := func() { handler(func(i *access.Identity) { i.ReleaseStream() }) }
	reload := func(streams string) {
		t.Helper()
		write(t, path, text(streams))
		if out := s.Reload("test"); out.Err != nil || !out.Changed {
			t.Fatalf("%+v", out)
		}
	}
	acquire(true)
	acquire(true)
	acquire(false)
	acquire(false)
	release()
	acquire(true)
	reload(", streams: 3")
	acquire(true)
	acquire(false)
	reload(", streams: 1")
	release()
	acquire(false)
	release()
	release()
	acquire(true)
	reload("")
	for range 100 {
		acquire(true)
	}
}

// pipe is a listener of connections within the process.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

type pipeConn struct{ net.Conn }

func (pipeConn) InProcess() {}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return pipeConn{c}, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (*pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipe) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case p.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.done:
			return nil, net.ErrClosed
		}
	})
}

// An identity is passed on within the process, and believed there alone.
func TestInProcess(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(tokenA)+"}], models: [m]}\n")
	local, tcp := newPipe(), listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, src, service{}, local, tcp)
	c := dial(t, "passthrough:///pipe", nil, local.dialer())
	for _, test := range []struct {
		name string
		sent []string
		who  string
		why  access.Reason
	}{
		{"passed on", []string{"ckd-identity", "a"}, "a", ""},
		{"a token counts for nothing", []string{"authorization", "Bearer " + tokenA}, "", access.NoCredential},
		{"nothing", nil, "", access.NoCredential},
		{"no name", []string{"ckd-identity", ""}, "", access.BadCredential},
		{"two names", []string{"ckd-identity", "a", "ckd-identity", "a"}, "", access.BadCredential},
		{"an unknown name", []string{"ckd-identity", "b"}, "", access.UnknownIdentity},
	} {
		m, err := call(t, c, "m", test.sent...)
		if why := refused.last(); m.GetPolicy().GetModel() != test.who || (err == nil) != (test.who != "") || why != test.why {
			t.Errorf("%s: %v, %v, %s", test.name, m, err, why)
		}
		if err != nil && reasonOf(t, err) != "UNAUTHENTICATED" {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := healthv1.NewHealthClient(c).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	network := dial(t, tcp.Addr().String(), client(t, ca))
	if _, err := call(t, network, "m", "ckd-identity", "a"); reasonOf(t, err) != "UNAUTHENTICATED" {
		t.Errorf("over the network: %v", err)
	}
	m, err := call(t, network, "m", "ckd-identity", "b", "authorization", "Bearer "+tokenA)
	if err != nil || m.GetPolicy().GetModel() != "a" || len(m.GetClasses()) > 0 {
		t.Errorf("over the network: %v, %v, want a, and what it says of itself taken away", m, err)
	}
}

// The server's probes of the Open Inference Protocol are open over the network as well as within the process, where
// those of HTTP come from.
func TestProbesOfInference(t *testing.T) {
	s, _ := open(t, access.Options{}, "identities: []")
	local := newPipe()
	probes := &probeService{}
	server := grpc.NewServer(grpc.Creds(certs.Credentials(nil)), grpc.ChainUnaryInterceptor(s.Unary))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{probes.method("ServerLive"), probes.method("ServerReady"), probes.method("ModelReady")},
	}, probes)
	tcp := listen(t, "tcp", "127.0.0.1:0")
	var serving sync.WaitGroup
	for _, l := range []net.Listener{local, tcp} {
		serving.Go(func() { _ = server.Serve(l) })
	}
	defer serving.Wait()
	defer server.Stop()
	for _, test := range []struct {
		name   string
		c      *grpc.ClientConn
		method string
		want   codes.Code
	}{
		{"in process", dial(t, "passthrough:///pipe", nil, local.dialer()), "ServerLive", codes.OK},
		{"in process", dial(t, "passthrough:///pipe", nil, local.dialer()), "ServerReady", codes.OK},
		{"in process", dial(t, "passthrough:///pipe", nil, local.dialer()), "ModelReady", codes.Unauthenticated},
		{"network", dial(t, tcp.Addr().String(), nil), "ServerLive", codes.OK},
		{"network", dial(t, tcp.Addr().String(), nil), "ServerReady", codes.OK},
		{"network", dial(t, tcp.Addr().String(), nil), "ModelReady", codes.Unauthenticated},
	} {
		err := test.c.Invoke(t.Context(), "/inference.GRPCInferenceService/"+test.method, &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
		if status.Code(err) != test.want {
			t.Errorf("%s %s: %v, want %s", test.name, test.method, err, test.want)
		}
	}
}

type probeService struct{}

func (probeService) method(name string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := &healthv1.HealthCheckRequest{}
		if err := decode(request); err != nil {
			return nil, err
		}
		return interceptor(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/inference.GRPCInferenceService/" + name},
			func(ctx context.Context, _ any) (any, error) {
				if i := access.FromContext(ctx); i == nil || i.MayUse("m") || i.MayAdmin() || i.Name() != "" {
					return nil, errors.New("nobody may do something")
				}
				return &healthv1.HealthCheckResponse{}, nil
			})
	}}
}

// Who is not known is refused before the request is read: here it never comes.
func TestTap(t *testing.T) {
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(tokenA)+"}], models: [m]}\n")
	local, tcp := newPipe(), listen(t, "tcp", "127.0.0.1:0")
	var none *access.Store
	server := grpc.NewServer(grpc.Creds(certs.Credentials(nil)), grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
		_, err := s.Tap(ctx, call.FullMethodName)
		return ctx, err
	}), grpc.ChainUnaryInterceptor(none.Unary))
	ckdv1.RegisterUncertaintyServiceServer(server, service{})
	var serving sync.WaitGroup
	for _, l := range []net.Listener{local, tcp} {
		serving.Go(func() { _ = server.Serve(l) })
	}
	defer serving.Wait()
	defer server.Stop()
	network, inProcess := dial(t, tcp.Addr().String(), nil), dial(t, "passthrough:///pipe", nil, local.dialer())
	for _, test := range []struct {
		name string
		c    *grpc.ClientConn
		sent []string
		why  access.Reason // empty for a call that is let in
	}{
		{"a token", network, []string{"authorization", "Bearer " + tokenA}, ""},
		{"nothing", network, nil, access.NoCredential},
		{"a wrong token", network, []string{"authorization", "Bearer " + tokenB}, access.UnknownToken},
		{"its own saying", network, []string{"ckd-identity", "a"}, access.NoCredential},
		{"passed on", inProcess, []string{"ckd-identity", "a"}, ""},
		{"passed on to nobody", inProcess, []string{"ckd-identity", "b"}, access.UnknownIdentity},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(test.sent...)), time.Minute)
			defer cancel()
			call, err := test.c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/ckd.v1.UncertaintyService/GetModel")
			if err != nil {
				t.Fatal(err)
			}
			if test.why == "" {
				_ = call.SendMsg(&ckdv1.GetModelRequest{Model: "m"})
				_ = call.CloseSend()
				if err := call.RecvMsg(&ckdv1.GetModelResponse{}); err != nil || refused.last() != "" {
					t.Errorf("%v, want it let in", err)
				}
				return
			}
			err = call.RecvMsg(&ckdv1.GetModelResponse{})
			if why := refused.last(); reasonOf(t, err) != "UNAUTHENTICATED" || why != test.why {
				t.Errorf("%v, %s, want %s", err, why, test.why)
			}
		})
	}
	if _, err := s.Tap(t.Context(), "/grpc.health.v1.Health/Check"); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, err := none.Tap(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
