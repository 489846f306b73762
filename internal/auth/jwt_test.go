package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/issuertest"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/internal/watch"
)

// accessOf returns an access file with an issuer and these identities.
func accessOf(of *issuertest.Issuer, identities string) string {
	return fmt.Sprintf("issuers: [{name: i, url: %q, audience: %s, ca: %q}]\nidentities:\n%s", of.URL, issuertest.Audience, of.CAFile, identities)
}

const grader = "- {name: grader, models: [m], jwts: [{issuer: i, claims: {sub: \"system:serviceaccount:eye:grader\"}}]}\n"

// watched returns a store that watches its file until the end of the test.
func watched(t *testing.T, refused *refusals, text string) (s *auth.Store, path string) {
	t.Helper()
	s, path = open(t, auth.Options{Refused: refused.add}, text)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(watch.Outcome) {})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s, path
}

// tapped presents a token, and returns who it is and why not.
func tapped(t *testing.T, s *auth.Store, refused *refusals, token string) (string, string) {
	t.Helper()
	_, who, err := s.Tap(bearer(t.Context(), token), "/ckd.v1.UncertaintyService/GetModel")
	if err != nil {
		return "", refused.last()
	}
	return who.Name(), ""
}

// TestJWTs checks which identity a token belongs to.
func TestJWTs(t *testing.T) {
	tokens, stranger := issuertest.New(t), issuertest.New(t)
	var refused refusals
	s, _ := watched(t, &refused, accessOf(tokens, grader+`
- {name: namespace, jwts: [{issuer: i, claims: {kubernetes.io/namespace: eye, groups: ops}}]}
- {name: file, tokens: [{sha256: `+sumOf(tokenA)+`}]}
`))
	good := tokens.Token(time.Hour, nil)
	testbed.Eventually(t, "keys are fetched", func() bool {
		_, why := tapped(t, s, &refused, good)
		return why != "keys_unavailable"
	})
	nested := map[string]any{"kubernetes.io": map[string]any{"namespace": "eye"}, "groups": []string{"dev", "ops"}}
	other := map[string]any{"sub": "other", "kubernetes.io": nested["kubernetes.io"], "groups": nested["groups"]}
	for _, test := range []struct {
		name, token, who string
		why              string
	}{
		{"by its subject", good, "grader", ""},
		{"once more, remembered", good, "grader", ""},
		{"by nested claims", tokens.Token(time.Hour, other), "namespace", ""},
		{"both", tokens.Token(time.Hour, nested), "", "ambiguous_token"},
		{"neither", tokens.Token(time.Hour, map[string]any{"sub": "other"}), "", "unknown_token"},
		{"some claims", tokens.Token(time.Hour, map[string]any{"sub": "other", "groups": "ops"}), "", "unknown_token"},
		{"another audience", tokens.Token(time.Hour, map[string]any{"aud": "kubernetes"}), "", "invalid_token"},
		{"expired", tokens.Token(-time.Second, nil), "", "expired_token"},
		{"another issuer", stranger.Token(time.Hour, nil), "", "unknown_token"},
		{"forged", stranger.Token(time.Hour, map[string]any{"iss": tokens.URL}), "", "invalid_token"},
		{"too long", tokens.Token(time.Hour, map[string]any{"x": strings.Repeat("x", 17<<10)}), "", "bad_credential"},
		{"of the file", tokenA, "file", ""},
		{"unknown", tokenB, "", "unknown_token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if who, why := tapped(t, s, &refused, test.token); who != test.who || why != test.why {
				t.Errorf("%q, %q, want %q, %q", who, why, test.who, test.why)
			}
		})
	}
}

// TestJWTWithoutKeys checks what callers see until the keys are here.
func TestJWTWithoutKeys(t *testing.T) {
	tokens := issuertest.New(t)
	tokens.Down(true)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, accessOf(tokens, grader)) // fetches nothing without Watch
	_, _, err := s.Tap(bearer(t.Context(), tokens.Token(time.Hour, nil)), "/ckd.v1.UncertaintyService/GetModel")
	expectReason(t, err, "KEYS_UNAVAILABLE")
	if got := refused.last(); got != "keys_unavailable" {
		t.Errorf("refused for %s", got)
	}
	handler := s.HTTP(http.NotFoundHandler(), auth.HTTPOptions{Need: func(*http.Request) auth.Need { return auth.NeedIdentity }})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+tokens.Token(time.Hour, nil))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
		t.Errorf("HTTP %d %v, want 503 and Retry-After", answer.Code, answer.Header())
	}
}

// TestJWTWithdrawn checks what ends the streams of a token, and that nothing else does.
func TestJWTWithdrawn(t *testing.T) {
	const replaced = "- {name: grader, models: [m], tokens: [{sha256: 0000000000000000000000000000000000000000000000000000000000000000}]}\n"
	tests := []struct {
		name   string
		change func(t *testing.T, s *auth.Store, path string, of *issuertest.Issuer)
		want   string // the reason that the stream ends for; empty if it goes on
	}{
		{"nothing", func(t *testing.T, s *auth.Store, path string, of *issuertest.Issuer) {
			reload(t, s, path, accessOf(of, grader+"- {name: b, tokens: [{sha256: "+sumOf(tokenA)+"}]}\n"))
		}, ""},
		{"the claims", func(t *testing.T, s *auth.Store, path string, of *issuertest.Issuer) {
			reload(t, s, path, accessOf(of, replaced))
		}, "UNAUTHENTICATED"},
		{"the audience", func(t *testing.T, s *auth.Store, path string, of *issuertest.Issuer) {
			reload(t, s, path, strings.Replace(accessOf(of, grader), "audience: ckd", "audience: other", 1))
		}, "UNAUTHENTICATED"},
		{"the key", func(t *testing.T, s *auth.Store, _ string, of *issuertest.Issuer) {
			of.Rotate("second")
			s.FetchKeys(t.Context())
		}, "UNAUTHENTICATED"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tokens := issuertest.New(t)
			s, path := open(t, auth.Options{}, accessOf(tokens, grader))
			s.FetchKeys(t.Context())
			l := listen(t, "tcp", "127.0.0.1:0")
			serve(t, s, nil, service{}, l)
			c := dial(t, l.Addr().String(), nil)
			stream := begin(t, c, "m", "authorization", "Bearer "+tokens.Token(time.Hour, nil))
			test.change(t, s, path, tokens)
			if test.want == "" {
				expectReason(t, stream.more("m"), "")
				return
			}
			expectReason(t, stream.more("m"), test.want)
		})
	}
}

// TestJWTExpires checks that a stream whose handler does not care ends soon after its token.
func TestJWTExpires(t *testing.T) {
	tokens := issuertest.New(t)
	s, _ := open(t, auth.Options{}, accessOf(tokens, grader))
	s.FetchKeys(t.Context())
	for life := 200 * time.Millisecond; ; life *= 2 {
		ended := make(chan error, 1)
		err := wait(t, s, tokens.Token(life, nil), func(_ any, stream grpc.ServerStream) error {
			ctx := stream.Context()
			<-auth.Expired(ctx)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		if servertest.FaultOf(err).Reason == "UNAUTHENTICATED" && life < time.Minute {
			continue // it expired before it came
		}
		expectReason(t, err, "DRAINING")
		if cause := <-ended; !errors.Is(cause, err) {
			t.Errorf("cause %v, want %v", cause, err)
		}
		return
	}
}

// TestJWTCacheIsBounded checks that many tokens are all let in.
func TestJWTCacheIsBounded(t *testing.T) {
	tokens := issuertest.New(t)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, accessOf(tokens, grader))
	s.FetchKeys(t.Context())
	for n := range 1100 {
		if who, why := tapped(t, s, &refused, tokens.Token(time.Hour, map[string]any{"n": n})); who != "grader" {
			t.Fatalf("token %d: %q, %q", n, who, why)
		}
	}
	if n := s.Remembered(); n != 1024 {
		t.Errorf("%d tokens are remembered, want 1024", n)
	}
}
