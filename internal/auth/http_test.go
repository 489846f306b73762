package auth_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// needs returns what the paths of the tests ask for.
func needs(r *http.Request) auth.Need {
	return map[string]auth.Need{
		"/livez": auth.NeedNothing, "/v1": auth.NeedIdentity, "/page": auth.NeedAdmin,
	}[r.URL.Path]
}

// serveHTTP serves until the end of the test.
func serveHTTP(t *testing.T, src *tlsfiles.Source, handler http.Handler) (url string) {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	server := &http.Server{TLSConfig: src.TLSConfigForProbes(), ConnState: src.ConnState, Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return "https://" + l.Addr().String()
}

func httpClient(t *testing.T, ca *certtest.CA, h2 bool, shows ...certtest.Pair) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: client(t, ca, shows...), ForceAttemptHTTP2: h2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// get requests a path with headers, and returns the answer's code, header and body.
func get(t *testing.T, c *http.Client, url string, headers ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

// TestHTTP checks who may do what over HTTP, and that credentials and claims go no further. Where the
// options say so, a browser's password is accepted as a token, and asked for.
func TestHTTP(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, auth.Options{Refused: refused.add}, `
identities:
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}], certificates: [a.svc], models: [m]}
- {name: operator, tokens: [{sha256: `+sumOf(tokenB)+`}], admin: true}
- {name: loader, certificates: [CN=loader], outcomes: true}
- {name: admin, certificates: [CN=admin], admin: true}
`)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "identity") || strings.Contains(strings.ToLower(name), "authorization") {
				t.Errorf("%s: the header %s goes on", r.URL, name)
			}
		}
		i := auth.FromContext(r.Context())
		md, _ := metadata.FromOutgoingContext(auth.Outgoing(r.Context()))
		fmt.Fprintf(w, "%q passed on as %q, uses m %t, x-request-id %s", i.Name(), md.Get("ckd-identity"), i.MayUse("m"), r.Header.Get("X-Request-Id"))
	})
	url := serveHTTP(t, src, s.HTTP(handler, auth.HTTPOptions{Need: needs}))
	browsed := serveHTTP(t, src, s.HTTP(handler, auth.HTTPOptions{Need: needs, Basic: true}))
	plain, asA := httpClient(t, ca, false), httpClient(t, ca, true, ca.Client(t, "a.svc"))
	asLoader, asAdmin := httpClient(t, ca, true, ca.Client(t, "CN=loader")), httpClient(t, ca, true, ca.Client(t, "CN=admin"))
	token := func(token string) []string { return []string{"Authorization", "Bearer " + token, "X-Request-Id", "7"} }
	basic := func(user, password string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), "X-Request-Id", "7"}
	}
	a, operator := `"a" passed on as ["a"], uses m true, x-request-id 7`, `"operator" passed on as ["operator"], uses m false, x-request-id 7`
	const forbidden = "the identity may not do this\n"
	const unknown = "no identity is known by what was presented, expected a valid bearer token or client certificate\n"
	for _, test := range []struct {
		url     string
		client  *http.Client
		headers []string
		code    int
		body    string
		why     string
	}{
		{url + "/livez", plain, []string{"Ckd-Identity", "a"}, 200, `"" passed on as [], uses m false, x-request-id `, ""},
		{url + "/livez", plain, token("a-wrong-token-0123456789"), 200, `"" passed on as [], uses m false, x-request-id 7`, ""},
		{url + "/v1", plain, token(tokenA), 200, a, ""},
		{url + "/v1", plain, append(token(tokenA), "Grpc-Metadata-Ckd-Identity", "operator", "Grpc-Metadata-Authorization", "x"), 200, a, ""},
		{url + "/v1", asA, []string{"X-Request-Id", "7"}, 200, a, ""},
		{url + "/v1", asA, token(tokenB), 200, operator, ""},
		{url + "/v1", plain, nil, 401, unknown, "no_credential"},
		{url + "/v1", plain, []string{"Ckd-Identity", "a"}, 401, unknown, "no_credential"},
		{url + "/v1", plain, token(tokenA + "x"), 401, unknown, "unknown_token"},
		{url + "/v1", asA, token(tokenA + "x"), 401, unknown, "unknown_token"},
		{url + "/v1", plain, append(token(tokenA), token(tokenA)...), 401, unknown, "bad_credential"},
		{url + "/v1", plain, []string{"Authorization", "Basic x"}, 401, unknown, "bad_credential"},
		{url + "/page", plain, token(tokenB), 200, operator, ""},
		{url + "/page", plain, token(tokenA), 403, forbidden, "not_allowed"},
		{url + "/page", asLoader, nil, 403, forbidden, "not_allowed"},
		{url + "/page", asAdmin, nil, 200, `"admin" passed on as ["admin"], uses m false, x-request-id `, ""},
		{url + "/else", plain, token(tokenB), 403, forbidden, "not_allowed"},
		{url + "/page", plain, basic("", tokenB), 401, unknown, "bad_credential"},
		{browsed + "/page", plain, basic("", tokenB), 200, operator, ""},
		{browsed + "/page", plain, basic("whoever", tokenB), 200, operator, ""},
		{browsed + "/page", plain, token(tokenB), 200, operator, ""},
		{browsed + "/page", plain, basic("", tokenA), 403, forbidden, "not_allowed"},
		{browsed + "/page", plain, basic(tokenB, ""), 401, unknown, "bad_credential"},
		{browsed + "/page", plain, basic("operator", tokenB+"x"), 401, unknown, "unknown_token"},
		{browsed + "/page", plain, []string{"Authorization", "Basic " + tokenB}, 401, unknown, "bad_credential"},
	} {
		name := strings.NewReplacer(browsed, "browsed ", url, "").Replace(test.url)
		t.Run(fmt.Sprint(name, " ", test.code, " ", test.why), func(t *testing.T) {
			code, header, body := get(t, test.client, test.url, test.headers...)
			if why := refused.last(); code != test.code || body != test.body || why != test.why {
				t.Errorf("%q: %d %q, %s; want %d %q, %s", test.headers, code, body, why, test.code, test.body, test.why)
			}
			var asked []string
			if code == 401 {
				asked = append(asked, "Bearer")
				if strings.HasPrefix(test.url, browsed) {
					asked = append(asked, `Basic realm="ckd: a token as the password", charset="UTF-8"`)
				}
			}
			if got := header.Values("WWW-Authenticate"); !slices.Equal(got, asked) {
				t.Errorf("%q: asked for %q, want %q", test.headers, got, asked)
			}
		})
	}
}

// TestHTTPWithdrawn checks that a long request ends when its right is withdrawn or its certificate
// revoked, after which the client gets no other connection.
func TestHTTPWithdrawn(t *testing.T) {
	ca, src, o := secure(t)
	const text = "identities:\n- {name: a, certificates: [a.svc]}\n"
	s, path := open(t, auth.Options{}, text)
	causes := make(chan error, 1)
	begun := make(chan struct{})
	url := serveHTTP(t, src, s.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			begun <- struct{}{}
			<-r.Context().Done()
			causes <- context.Cause(r.Context())
		}
	}), auth.HTTPOptions{Need: needs}))
	pair := ca.Client(t, "a.svc")
	c := httpClient(t, ca, false, pair)
	ended := func(path, why string, withdraw func()) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			get(t, c, url+path, "Wait", "yes")
		}()
		<-begun
		withdraw()
		expectReason(t, <-causes, why)
		<-done
	}
	reload(t, s, path, "identities:\n- {name: a, certificates: [a.svc], admin: true, recent: true}\n")
	ended("/page", "NOT_ALLOWED", func() {
		reload(t, s, path, "identities:\n- {name: a, certificates: [a.svc], admin: true}\n") // what it needs is still there
		reload(t, s, path, "identities:\n- {name: a, certificates: [a.svc], outcomes: true}\n")
	})
	ended("/v1", "UNAUTHENTICATED", func() {
		reload(t, s, path, "identities: []")
	})
	reload(t, s, path, text)
	if code, _, _ := get(t, c, url+"/v1"); code != 200 {
		t.Errorf("code %d", code)
	}
	failed := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1", nil)
		if err == nil {
			request.Header.Set("Wait", "yes")
			_, err = c.Do(request) //nolint:bodyclose // it fails
		}
		failed <- err
	}()
	<-begun
	write(t, o.CRL, string(ca.Revoke(t, time.Now().Add(time.Hour), pair.Cert)))
	if out := src.Reload("test"); out.Err != nil || !out.Changed {
		t.Errorf("%+v", out)
	}
	if err, cause := <-failed, <-causes; err == nil || !errors.Is(cause, context.Canceled) {
		t.Errorf("a request with a revoked certificate: %v, ended by %v", err, cause)
	}
	if response, err := c.Get(url + "/v1"); err == nil {
		response.Body.Close()
		t.Errorf("code %d for a revoked certificate", response.StatusCode)
	}
}

// TestOutgoing checks that Outgoing replaces any other identity in the metadata.
func TestOutgoing(t *testing.T) {
	claimed := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("ckd-identity", "x", "x-request-id", "7"))
	claimed = metadata.AppendToOutgoingContext(claimed, "Ckd-Identity", "y")
	md, _ := metadata.FromOutgoingContext(auth.Outgoing(claimed))
	if got := md.Get("ckd-identity"); len(got) > 0 || len(md.Get("x-request-id")) != 1 {
		t.Errorf("%v", md)
	}
	if _, ok := metadata.FromOutgoingContext(auth.Outgoing(t.Context())); !ok {
		t.Error("no metadata")
	}
}
