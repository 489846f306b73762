package auth_test

import (
	"context"
	"errors"
	"fmt"
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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/auth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	tokenA = "token-of-a-0123456789"
	tokenB = "token-of-b-0123456789"
)

// TestAuthentication checks which credential belongs to which identity, by tokens over a unix socket and
// certificates over TLS, and that every unknown caller gets the same answer.
func TestAuthentication(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, `
identities:
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}], models: [m], certificates: [spiffe://c/ns/eye/sa/a, a.eye.svc, CN=a of eye]}
- {name: b, tokens: [{sha256: `+sumOf(tokenB)+`}], models: ["*"], certificates: [b.eye.svc, spiffe://c/ns/eye/sa/b]}
`)
	plain, secured := listen(t, "unix", filepath.Join(t.TempDir(), "s")), listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, plain)
	serve(t, s, src, service{}, secured)
	token := func(token string) []string { return []string{"authorization", "Bearer " + token} }
	tests := []struct {
		name  string
		certs []string // names of the client's certificate
		sent  []string
		who   string // empty for nobody
		why   string // then
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
		{name: "nothing", why: "no_credential"},
		{name: "a wrong token", sent: token(tokenA + "x"), why: "unknown_token"},
		{name: "half a token", sent: token(tokenA[:10]), why: "unknown_token"},
		{name: "the hash of a token", sent: token(sumOf(tokenA)), why: "unknown_token"},
		{name: "no token", sent: token(""), why: "bad_credential"},
		{name: "another scheme", sent: []string{"authorization", "Basic " + tokenA}, why: "bad_credential"},
		{name: "a long token", sent: token(strings.Repeat("x", 17000)), why: "bad_credential"},
		{name: "two tokens", sent: append(token(tokenA), token(tokenA)...), why: "bad_credential"},
		{name: "an unknown certificate", certs: []string{"c.eye.svc"}, why: "unknown_certificate"},
		{name: "a DNS name as a common name", certs: []string{"CN=a.eye.svc"}, why: "unknown_certificate"},
		{name: "a URI below", certs: []string{"spiffe://c/ns/eye/sa/a/x"}, why: "unknown_certificate"},
		{name: "a host of capitals, which URIs keep", certs: []string{"spiffe://C/ns/eye/sa/a"}, why: "unknown_certificate"},
		{name: "a certificate of two identities", certs: []string{"a.eye.svc", "spiffe://c/ns/eye/sa/b"}, why: "ambiguous_certificate"},
		{name: "a wrong token and a good certificate", certs: []string{"a.eye.svc"}, sent: token("no-such-token-012345"), why: "unknown_token"},
		{name: "another scheme and a good certificate", certs: []string{"a.eye.svc"}, sent: []string{"authorization", "Basic x"}, why: "bad_credential"},
		{name: "an identity of its own saying", sent: []string{"ckd-identity", "a"}, why: "no_credential"},
		{name: "an identity of its own saying beside a certificate", certs: []string{"a.eye.svc"}, sent: []string{"ckd-identity", "b"}, who: "a"},
	}
	var first *status.Status
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, "unix:"+plain.Addr().String(), nil)
			if test.certs != nil {
				c = dial(t, secured.Addr().String(), client(t, ca, ca.Client(t, test.certs...)))
			}
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

// TestModels checks that an identity may use its models alone, and that a refusal names the model.
func TestModels(t *testing.T) {
	s, _ := open(t, auth.Options{}, onlyA(tokenA))
	long := strings.Repeat("é", 300)
	for model, want := range map[string]string{"m": "", "n": `"n"`, "*": `"*"`, "": `""`, long: `"` + long[:120] + `..."`} {
		ctx, _, err := s.Tap(bearer(t.Context(), tokenA), "/a/b")
		if err != nil {
			t.Fatal(err)
		}
		err = auth.Allow(ctx, model)
		if allowed := err == nil; allowed != (want == "") {
			t.Errorf("%q: %v", model, err)
		} else if !allowed {
			expectReason(t, err, "NOT_ALLOWED")
			if !strings.HasSuffix(status.Convert(err).Message(), "the model "+want) {
				t.Errorf("%q: %v", model, err)
			}
		}
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
	opened := stream{s}
	if err := opened.more(model); err != nil {
		t.Fatal(err)
	}
	return opened
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
			testbed.Eventually(t, "as many gone as should be", func() bool {
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
			testbed.Eventually(t, "no sessions left", func() bool { return s.Sessions() == 0 })
		})
	}
}

// TestStreams checks that an identity's limit of streams holds across reloads.
func TestStreams(t *testing.T) {
	text := func(streams int) string {
		return fmt.Sprintf("identities:\n- {name: a, tokens: [{sha256: %s}], models: [m], streams: %d}\n", sumOf(tokenA), streams)
	}
	s, path := open(t, auth.Options{}, text(2))
	var quota auth.Quota
	acquire := func(want bool) {
		t.Helper()
		_, who, err := s.Tap(bearer(t.Context(), tokenA), "/a/b")
		if err != nil {
			t.Fatal(err)
		}
		if quota = who.Streams(); quota.Acquire() != want {
			t.Errorf("acquired one more of %d: %t, want %t", quota.Limit(), !want, want)
		}
	}
	acquire(true)
	acquire(true)
	acquire(false)
	quota.Release()
	acquire(true)
	reload(t, s, path, text(3))
	acquire(true)
	acquire(false)
	reload(t, s, path, text(1))
	quota.Release()
	quota.Release()
	acquire(false)
	quota.Release()
	acquire(true)
	reload(t, s, path, text(0))
	for range 100 {
		acquire(true)
	}
}

// TestInProcess checks that an identity is passed on within the process, and believed only there.
func TestInProcess(t *testing.T) {
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, onlyA(tokenA))
	local, tcp := newPipe(), listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, local, tcp)
	c := dialPipe(t, local)
	for name, test := range map[string]struct {
		sent []string
		who  string
		why  string
	}{
		"passed on":                  {[]string{"ckd-identity", "a"}, "a", ""},
		"a token counts for nothing": {[]string{"authorization", "Bearer " + tokenA}, "", "no_credential"},
		"nothing":                    {nil, "", "no_credential"},
		"no name":                    {[]string{"ckd-identity", ""}, "", "bad_credential"},
		"two names":                  {[]string{"ckd-identity", "a", "ckd-identity", "a"}, "", "bad_credential"},
		"an unknown name":            {[]string{"ckd-identity", "b"}, "", "unknown_identity"},
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
	network := dial(t, tcp.Addr().String(), nil)
	_, err := call(t, network, "m", "ckd-identity", "a")
	expectReason(t, err, "UNAUTHENTICATED")
	m, err := call(t, network, "m", "ckd-identity", "b", "authorization", "Bearer "+tokenA)
	if err != nil || m.GetPolicy().GetModel() != "a" || len(m.GetClasses()) > 0 {
		t.Errorf("over the network: %v, %v, want a, and what it says of itself taken away", m, err)
	}
}

// TestTap checks that unknown callers are refused before their request is read: here the request
// never arrives.
func TestTap(t *testing.T) {
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, onlyA(tokenA))
	tcp := listen(t, "tcp", "127.0.0.1:0")
	serve(t, s, nil, service{}, tcp)
	c := dial(t, tcp.Addr().String(), nil)
	if _, err := call(t, c, "m", "authorization", "Bearer "+tokenA); err != nil || refused.last() != "" {
		t.Errorf("%v, want it let in", err)
	}
	for why, sent := range map[string][]string{
		"no_credential": {"ckd-identity", "a"}, "unknown_token": {"authorization", "Bearer " + tokenB},
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
	if _, _, err := (*auth.Store)(nil).Tap(t.Context(), ""); err != nil {
		t.Error(err)
	}
	_, err := s.Unary(bearer(t.Context(), tokenA), nil, nil, nil)
	expectReason(t, err, "UNAUTHENTICATED") // without Tap
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
	if expectReason(t, err, "UNAUTHENTICATED"); called != 1 || refused.last() != "unknown_token" {
		t.Errorf("called %d times, %v", called, err)
	}
}
