package auth_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ckd-project/ckd/internal/tlsfiles"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/auth"
)

const (
	tokenA = "token-of-a-0123456789"
	tokenB = "token-of-b-0123456789"
)

// TestAuthentication checks who is known by which credential over TLS, and that everybody unknown
// gets the same answer.
func TestAuthentication(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add, CheckCertificate: src.Check}, `
identities:
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}], models: [m], certificates: [spiffe://c/ns/eye/sa/a, a.eye.svc, CN=a of eye]}
- {name: b, tokens: [{sha256: `+sumOf(tokenB)+`}], models: ["*"], certificates: [b.eye.svc, spiffe://c/ns/eye/sa/b]}
`)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, src, service{}, l)
	token := func(token string) []string { return []string{"authorization", "Bearer " + token} }
	tests := []struct {
		name  string
		certs []string // names of the client's certificate
		sent  []string
		who   string      // empty for nobody
		why   auth.Reason // then
	}{
		{name: "a token", sent: token(tokenA), who: "a"},
		{name: "another", sent: token(tokenB), who: "b"},
		{name: "the scheme in other letters", sent: []string{"authorization", "bEARER " + tokenB}, who: "b"},
		{name: "a URI", certs: []string{"spiffe://c/ns/eye/sa/a"}, who: "a"},
		{name: "a DNS name", certs: []string{"a.eye.svc"}, who: "a"},
		{name: "a DNS name in other letters", certs: []string{"A.Eye.svc"}, who: "a"},
		{name: "a common name", certs: []string{"CN=a of eye"}, who: "a"},
		{name: "several names of one identity", certs: []string{"spiffe://c/ns/eye/sa/b", "b.eye.svc", "else.svc"}, who: "b"},
		{name: "a token and a certificate", certs: []string{"a.eye.svc"}, sent: token(tokenB), who: "b"},
		{name: "nothing", why: auth.NoCredential},
		{name: "a wrong token", sent: token(tokenA + "x"), why: auth.UnknownToken},
		{name: "half a token", sent: token(tokenA[:10]), why: auth.UnknownToken},
		{name: "the hash of a token", sent: token(sumOf(tokenA)), why: auth.UnknownToken},
		{name: "no token", sent: token(""), why: auth.BadCredential},
		{name: "another scheme", sent: []string{"authorization", "Basic " + tokenA}, why: auth.BadCredential},
		{name: "a long token", sent: token(strings.Repeat("x", 17000)), why: auth.BadCredential},
		{name: "two tokens", sent: append(token(tokenA), token(tokenA)...), why: auth.BadCredential},
		{name: "an unknown certificate", certs: []string{"c.eye.svc"}, why: auth.UnknownCertificate},
		{name: "a DNS name as a common name", certs: []string{"CN=a.eye.svc"}, why: auth.UnknownCertificate},
		{name: "a URI below", certs: []string{"spiffe://c/ns/eye/sa/a/x"}, why: auth.UnknownCertificate},
		{name: "a host of capitals, which URIs keep", certs: []string{"spiffe://C/ns/eye/sa/a"}, why: auth.UnknownCertificate},
		{name: "a certificate of two identities", certs: []string{"a.eye.svc", "spiffe://c/ns/eye/sa/b"}, why: auth.AmbiguousCertificate},
		{name: "a wrong token and a good certificate", certs: []string{"a.eye.svc"}, sent: token("no-such-token-012345"), why: auth.UnknownToken},
		{name: "another scheme and a good certificate", certs: []string{"a.eye.svc"}, sent: []string{"authorization", "Basic x"}, why: auth.BadCredential},
		{name: "an identity of its own saying", sent: []string{"ckd-identity", "a"}, why: auth.NoCredential},
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
			if expectReason(t, err, "UNAUTHENTICATED"); status.Code(err) != codes.Unauthenticated || why != test.why {
				t.Errorf("%v, %s, want %s", err, why, test.why)
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

// receiver is a stream that receives.
type receiver interface{ RecvMsg(to any) error }

// TestOpen checks which methods need no credential.
func TestOpen(t *testing.T) {
	s, _ := open(t, auth.Options{}, onlyA(tokenA))
	tcp, unix := listen(t, "tcp", "127.0.0.1:0"), listen(t, "unix", filepath.Join(t.TempDir(), "s"))
	serve(t, s, nil, service{}, tcp, unix)
	for _, address := range []string{tcp.Addr().String(), "unix:" + unix.Addr().String()} {
		c := dial(t, address, nil)
		if _, err := healthv1.NewHealthClient(c).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		// A stream holds resources, so even these need a credential.
		for name, begin := range map[string]func(context.Context) (receiver, error){
			"watch": func(ctx context.Context) (receiver, error) {
				return healthv1.NewHealthClient(c).Watch(ctx, &healthv1.HealthCheckRequest{})
			},
			"reflection": func(ctx context.Context) (receiver, error) {
				stream, err := reflectionv1.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
				if err == nil {
					_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
				}
				return stream, err
			},
		} {
			for want, sent := range map[string][]string{"UNAUTHENTICATED": nil, "": {"authorization", "Bearer " + tokenA}} {
				t.Run(strings.TrimSpace(name+" "+want), func(t *testing.T) {
					ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(sent...)))
					defer cancel()
					stream, err := begin(ctx)
					if err == nil {
						err = stream.RecvMsg(&emptypb.Empty{})
					}
					expectReason(t, err, want)
				})
			}
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
		_, err := call(t, c, "m", "ckd-identity", "a")
		expectReason(t, err, "UNAUTHENTICATED")
	}
	eventually(t, "streams ended", func() bool { return s.Sessions() == 0 })
}

// TestNoAccessControl checks that a nil store lets everybody in.
func TestNoAccessControl(t *testing.T) {
	var s *auth.Store
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
	if auth.Gone(t.Context()) != nil || auth.Ended(t.Context()) != nil || auth.Allow(t.Context(), "x") != nil {
		t.Error("a context without access control is limited")
	}
	var i *auth.Identity
	if !i.MayAdmin() || !i.UsesModels() || !i.MayUse("x") || i.Name() != "" {
		t.Error("no identity lacks a right")
	}
	for _, q := range []auth.Quota{i.Streams(), i.Calls(), i.Watches()} {
		if !q.Acquire() || q.Limit() != 0 {
			t.Errorf("no identity has the limit %d", q.Limit())
		}
		q.Release()
	}
}

// TestModels checks that an identity may use its models alone, and that a refusal names the model.
func TestModels(t *testing.T) {
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, `
identities:
- {name: one, tokens: [{sha256: `+sumOf(tokenA)+`}], models: [m]}
- {name: none, tokens: [{sha256: `+sumOf(tokenB)+`}]}
`)
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, l)
	c := dial(t, l.Addr().String(), nil)
	long := strings.Repeat("é", 300)
	for name, test := range map[string]struct{ token, model, want string }{
		"its model":     {tokenA, "m", ""},
		"another model": {tokenA, "n", `"n"`},
		"all models":    {tokenA, "*", `"*"`},
		"a long name":   {tokenA, long, `"` + long[:120] + `..."`},
		"no models":     {tokenB, "m", `"m"`},
		"no name":       {tokenB, "", `""`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call(t, c, test.model, "authorization", "Bearer "+test.token)
			why := refused.last()
			if test.want == "" {
				if err != nil || why != "" {
					t.Errorf("%v, %s", err, why)
				}
				return
			}
			expectReason(t, err, "NOT_ALLOWED")
			if st := status.Convert(err); st.Code() != codes.PermissionDenied || !strings.HasSuffix(st.Message(), "the model "+test.want) || why != auth.NotAllowed {
				t.Errorf("%v, %s, want %s", err, why, test.want)
			}
		})
	}
}

// stream is the client's end of a stream.
type stream struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
}

// begin opens a stream and has one message answered.
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

// more sends a message and receives its answer.
func (s stream) more(model string) error {
	if err := s.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{
		Header: &ckdv1.StreamHeader{Model: model},
	}}); err != nil && !strings.Contains(err.Error(), "EOF") {
		return err
	}
	_, err := s.Recv()
	return err
}

// TestWithdrawnMidStream checks that withdrawing a right ends the streams that it let in, and no
// others, whether they wait for the interceptor or for Gone.
func TestWithdrawnMidStream(t *testing.T) {
	const text = `
identities:
- {name: a, models: [m, n], tokens: [{file: one}, {file: two}]}
- {name: b, models: ["*"], tokens: [{file: three}]}
`
	tokens := map[string]string{"one": "token-one-0123456789", "two": "token-two-0123456789", "three": "token-three-0123456789"}
	tests := []struct {
		name   string
		text   string            // content of the access file; empty if it does not change
		tokens map[string]string // replaced; empty content for no file
		ended  string            // streams that end, out of one-m one-n two-m three-m
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
			s, path := open(t, auth.Options{}, "identities: []")
			dir := filepath.Dir(path)
			for name, token := range tokens {
				write(t, filepath.Join(dir, name), token+"\n")
			}
			reload(t, s, path, text)
			var (
				mu   sync.Mutex
				gone = map[string]error{} // why streams ended, as their handlers see it; nil while they go on
			)
			impl := service{streaming: func(ctx context.Context) {
				name := metadata.ValueFromIncomingContext(ctx, "name")[0]
				go func() {
					select {
					case <-auth.Gone(ctx):
						<-ctx.Done()
					case <-ctx.Done(): // or both at once
						if auth.Ended(ctx) == nil {
							return
						}
						<-auth.Gone(ctx)
					}
					mu.Lock()
					defer mu.Unlock()
					gone[name] = auth.Ended(ctx)
					if !errors.Is(context.Cause(ctx), auth.Ended(ctx)) {
						t.Errorf("cause %v, want %v", context.Cause(ctx), auth.Ended(ctx))
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
					if err := os.Remove(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
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
				expectReason(t, err, test.want)
				expectReason(t, cause, test.want)
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

// TestRevokedCertificate checks that a revoked certificate is refused, and that its streams end.
func TestRevokedCertificate(t *testing.T) {
	ca, src, o := secure(t)
	var refused refusals
	s, _ := open(t, auth.Options{CheckCertificate: src.Check, Refused: refused.add}, "identities:\n- {name: a, certificates: [a.svc], models: [m]}\n")
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

// TestStreams checks that an identity's limit of streams holds across reloads.
func TestStreams(t *testing.T) {
	text := func(streams string) string {
		return "identities:\n- {name: a, tokens: [{sha256: " + sumOf(tokenA) + "}], models: [m]" + streams + "}\n"
	}
	s, path := open(t, auth.Options{}, text(", streams: 2"))
	handler := func(f func(*auth.Identity)) {
		t.Helper()
		if _, err := s.Unary(bearer(t.Context(), tokenA), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
			f(auth.FromContext(ctx))
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	acquire := func(want bool) {
		t.Helper()
		handler(func(i *auth.Identity) {
			if got := i.Streams().Acquire(); got != want {
				t.Errorf("acquired %t of %d, want %t", got, i.Streams().Limit(), want)
			}
		})
	}
	release := func() { handler(func(i *auth.Identity) { i.Streams().Release() }) }
	acquire(true)
	acquire(true)
	acquire(false)
	acquire(false)
	release()
	acquire(true)
	reload(t, s, path, text(", streams: 3"))
	acquire(true)
	acquire(false)
	reload(t, s, path, text(", streams: 1"))
	release()
	acquire(false)
	release()
	release()
	acquire(true)
	reload(t, s, path, text(""))
	for range 100 {
		acquire(true)
	}
}

// TestInProcess checks that an identity is passed on within the process, and believed only there.
func TestInProcess(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, onlyA(tokenA))
	local, tcp := newPipe(), listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, src, service{}, local, tcp)
	c := dialPipe(t, local)
	for name, test := range map[string]struct {
		sent []string
		who  string
		why  auth.Reason
	}{
		"passed on":                  {[]string{"ckd-identity", "a"}, "a", ""},
		"a token counts for nothing": {[]string{"authorization", "Bearer " + tokenA}, "", auth.NoCredential},
		"nothing":                    {nil, "", auth.NoCredential},
		"no name":                    {[]string{"ckd-identity", ""}, "", auth.BadCredential},
		"two names":                  {[]string{"ckd-identity", "a", "ckd-identity", "a"}, "", auth.BadCredential},
		"an unknown name":            {[]string{"ckd-identity", "b"}, "", auth.UnknownIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := call(t, c, "m", test.sent...)
			if why := refused.last(); m.GetPolicy().GetModel() != test.who || (err == nil) != (test.who != "") || why != test.why {
				t.Errorf("%v, %v, %s", m, err, why)
			}
			if err != nil {
				expectReason(t, err, "UNAUTHENTICATED")
			}
		})
	}
	if _, err := healthv1.NewHealthClient(c).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	network := dial(t, tcp.Addr().String(), client(t, ca))
	_, err := call(t, network, "m", "ckd-identity", "a")
	expectReason(t, err, "UNAUTHENTICATED")
	m, err := call(t, network, "m", "ckd-identity", "b", "authorization", "Bearer "+tokenA)
	if err != nil || m.GetPolicy().GetModel() != "a" || len(m.GetClasses()) > 0 {
		t.Errorf("over the network: %v, %v, want a, and what it says of itself taken away", m, err)
	}
}

// TestProbesOfInference checks that the probes of the Open Inference Protocol are open over the
// network, and within the process, where those of HTTP come from.
func TestProbesOfInference(t *testing.T) {
	s, _ := open(t, auth.Options{}, "identities: []")
	local := newPipe()
	probes := &probeService{}
	server := grpc.NewServer(grpc.Creds(tlsfiles.Credentials(nil)), grpc.ChainUnaryInterceptor(s.Unary))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{probes.method("ServerLive"), probes.method("ServerReady"), probes.method("ModelReady")},
	}, probes)
	tcp := listen(t, "tcp", "127.0.0.1:0")
	start(t, server, local, tcp)
	for where, c := range map[string]*grpc.ClientConn{"in process": dialPipe(t, local), "network": dial(t, tcp.Addr().String(), nil)} {
		for method, want := range map[string]codes.Code{"ServerLive": codes.OK, "ServerReady": codes.OK, "ModelReady": codes.Unauthenticated} {
			t.Run(where+" "+method, func(t *testing.T) {
				err := c.Invoke(t.Context(), "/inference.GRPCInferenceService/"+method, &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
				if status.Code(err) != want {
					t.Errorf("got %v, want %s", err, want)
				}
			})
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
				if i := auth.FromContext(ctx); i == nil || i.MayUse("m") || i.MayAdmin() || i.Name() != "" {
					return nil, errors.New("nobody may do something")
				}
				return &healthv1.HealthCheckResponse{}, nil
			})
	}}
}

// TestTap checks that unknown callers are refused before their request is read: here the request
// never arrives.
func TestTap(t *testing.T) {
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, onlyA(tokenA))
	tcp := listen(t, "tcp", "127.0.0.1:0")
	var none *auth.Store
	server := grpc.NewServer(grpc.Creds(tlsfiles.Credentials(nil)), grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
		ctx, _, err := s.Tap(ctx, call.FullMethodName)
		return ctx, err
	}), grpc.ChainUnaryInterceptor(none.Unary))
	ckdv1.RegisterUncertaintyServiceServer(server, service{})
	start(t, server, tcp)
	c := dial(t, tcp.Addr().String(), nil)
	if _, err := call(t, c, "m", "authorization", "Bearer "+tokenA); err != nil || refused.last() != "" {
		t.Errorf("%v, want it let in", err)
	}
	for why, sent := range map[auth.Reason][]string{
		auth.NoCredential: {"ckd-identity", "a"}, auth.UnknownToken: {"authorization", "Bearer " + tokenB},
	} {
		t.Run(string(why), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), metadata.Pairs(sent...)), time.Minute)
			defer cancel()
			call, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/ckd.v1.UncertaintyService/GetModel")
			if err != nil {
				t.Fatal(err)
			}
			expectReason(t, call.RecvMsg(&ckdv1.GetModelResponse{}), "UNAUTHENTICATED")
			if got := refused.last(); got != why {
				t.Errorf("refused for %s, want %s", got, why)
			}
		})
	}
	if _, _, err := s.Tap(t.Context(), "/grpc.health.v1.Health/Check"); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, _, err := none.Tap(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// TestWithdrawnAfterTap checks that a request which takes its time to arrive is refused if its
// credential is withdrawn meanwhile.
func TestWithdrawnAfterTap(t *testing.T) {
	var refused refusals
	s, file := open(t, auth.Options{Refused: refused.add}, onlyA(tokenA))
	const method = "/ckd.v1.UncertaintyService/GetModel"
	ctx, who, err := s.Tap(bearer(t.Context(), tokenA), method)
	if err != nil || who.Name() != "a" {
		t.Fatalf("%v is let in, %v", who, err)
	}
	called := 0
	call := func() error {
		_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			called++
			return nil, auth.Allow(ctx, "m")
		})
		return err
	}
	if err := call(); err != nil || called != 1 {
		t.Fatalf("called %d times, %v", called, err)
	}
	reload(t, s, file, onlyA(tokenB))
	err = call()
	if expectReason(t, err, "UNAUTHENTICATED"); called != 1 || refused.last() != auth.UnknownToken {
		t.Errorf("called %d times, %v", called, err)
	}
}
