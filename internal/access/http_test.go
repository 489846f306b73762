package access_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs/certtest"
)

// needs of the test's paths.
func needs(r *http.Request) access.Need {
	return map[string]access.Need{
		"/livez": access.NeedNothing, "/v1": access.NeedIdentity, "/page": access.NeedAdmin, "/-/reload": access.NeedReload,
	}[r.URL.Path]
}

// serveHTTP until the end of the test.
func serveHTTP(t *testing.T, config *tls.Config, handler http.Handler) (url string) {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	server := &http.Server{TLSConfig: config, Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
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

// get a path with headers; the answer's code, header and body.
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

func TestHTTP(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add, CheckCertificate: src.Check}, `
identities:
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}], certificates: [a.svc], models: [m]}
- {name: operator, tokens: [{sha256: `+sumOf(tokenB)+`}], admin: true, reload: true}
- {name: loader, certificates: [CN=loader], reload: true}
- {name: admin, certificates: [CN=admin], admin: true}
`)
	url := serveHTTP(t, src.TLSConfig(), s.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "identity") || strings.Contains(strings.ToLower(name), "authorization") {
				t.Errorf("%s: the header %s goes on", r.URL, name)
			}
		}
		i := access.FromContext(r.Context())
		md, _ := metadata.FromOutgoingContext(access.Outgoing(r.Context()))
		fmt.Fprintf(w, "%q passed on as %q, uses m %t, x-request-id %s", i.Name(), md.Get("ckd-identity"), i.MayUse("m"), r.Header.Get("X-Request-Id"))
	}), access.HTTPOptions{Need: needs}))
	plain, asA := httpClient(t, ca, false), httpClient(t, ca, true, ca.Client(t, "a.svc"))
	asLoader, asAdmin := httpClient(t, ca, true, ca.Client(t, "CN=loader")), httpClient(t, ca, true, ca.Client(t, "CN=admin"))
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token, "X-Request-Id", "7"} }
	a, operator := `"a" passed on as ["a"], uses m true, x-request-id 7`, `"operator" passed on as ["operator"], uses m false, x-request-id 7`
	const unknown = "no identity is known by what was presented, expected a valid bearer token or client certificate\n"
	tests := []struct {
		path    string
		client  *http.Client
		headers []string
		code    int
		body    string
		why     access.Reason
	}{
		{"/livez", plain, []string{"Ckd-Identity", "a"}, 200, `"" passed on as [], uses m false, x-request-id `, ""},
		{"/livez", plain, bearer("a-wrong-token-0123456789"), 200, `"" passed on as [], uses m false, x-request-id 7`, ""},
		{"/v1", plain, bearer(tokenA), 200, a, ""},
		{"/v1", plain, append(bearer(tokenA), "Grpc-Metadata-Ckd-Identity", "operator", "Grpc-Metadata-Authorization", "x"), 200, a, ""},
		{"/v1", asA, []string{"X-Request-Id", "7"}, 200, a, ""},
		{"/v1", asA, bearer(tokenB), 200, operator, ""},
		{"/v1", plain, nil, 401, unknown, access.NoCredential},
		{"/v1", plain, []string{"Ckd-Identity", "a"}, 401, unknown, access.NoCredential},
		{"/v1", plain, bearer(tokenA + "x"), 401, unknown, access.UnknownToken},
		{"/v1", asA, bearer(tokenA + "x"), 401, unknown, access.UnknownToken},
		{"/v1", plain, append(bearer(tokenA), bearer(tokenA)...), 401, unknown, access.BadCredential},
		{"/v1", plain, []string{"Authorization", "Basic x"}, 401, unknown, access.BadCredential},
		{"/page", plain, bearer(tokenB), 200, operator, ""},
		{"/-/reload", plain, bearer(tokenB), 200, operator, ""},
		{"/page", plain, bearer(tokenA), 403, "the identity may not do this\n", access.NotAllowed},
		{"/-/reload", asA, nil, 403, "the identity may not do this\n", access.NotAllowed},
		{"/-/reload", asAdmin, nil, 403, "the identity may not do this\n", access.NotAllowed},
		{"/-/reload", asLoader, nil, 200, `"loader" passed on as ["loader"], uses m false, x-request-id `, ""},
		{"/page", asLoader, nil, 403, "the identity may not do this\n", access.NotAllowed},
		{"/page", asAdmin, nil, 200, `"admin" passed on as ["admin"], uses m false, x-request-id `, ""},
		{"/-/reload", plain, nil, 401, unknown, access.NoCredential},
		{"/else", plain, bearer(tokenB), 403, "the identity may not do this\n", access.NotAllowed},
	}
	for _, test := range tests {
		code, header, body := get(t, test.client, url+test.path, test.headers...)
		why := refused.last()
		if code != test.code || body != test.body || why != test.why || (header.Get("WWW-Authenticate") == "Bearer") != (code == 401) {
			t.Errorf("%s %q: %d %v %q, %s; want %d %q, %s", test.path, test.headers, code, header, body, why, test.code, test.body, test.why)
		}
	}
}

// Where people come with a browser, a token is taken as a password, and asked for
// as one.
func TestHTTPBasic(t *testing.T) {
	ca, src, _ := secure(t)
	var refused refusals
	s, _ := open(t, access.Options{Refused: refused.add}, `
identities:
- {name: triage, tokens: [{sha256: `+sumOf(tokenB)+`}], admin: true, recent: true}
- {name: a, tokens: [{sha256: `+sumOf(tokenA)+`}]}
`)
	url := serveHTTP(t, src.TLSConfig(), s.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := access.FromContext(r.Context())
		fmt.Fprintf(w, "%s %t %q", i.Name(), i.MaySeeRecent(), r.Header.Values("Authorization"))
	}), access.HTTPOptions{Need: needs, Basic: true}))
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	for _, test := range []struct {
		authorization string
		code          int
		body          string
		why           access.Reason
	}{
		{basic("", tokenB), 200, "triage true []", ""},
		{basic("whoever", tokenB), 200, "triage true []", ""},
		{"Bearer " + tokenB, 200, "triage true []", ""},
		{basic("", tokenA), 403, "", access.NotAllowed},
		{basic(tokenB, ""), 401, "", access.BadCredential},
		{basic("triage", tokenB+"x"), 401, "", access.UnknownToken},
		{"Basic " + tokenB, 401, "", access.BadCredential},
	} {
		code, header, body := get(t, httpClient(t, ca, true), url+"/page", "Authorization", test.authorization)
		why := refused.last()
		asked := slices.ContainsFunc(header.Values("WWW-Authenticate"), func(v string) bool { return strings.HasPrefix(v, "Basic realm=") })
		if code != test.code || test.body != "" && body != test.body || why != test.why || asked != (code == 401) {
			t.Errorf("%q: %d %v %q, %s; want %d %q, %s", test.authorization, code, header, body, why, test.code, test.body, test.why)
		}
	}
}

// Who refuses may choose the form of it.
func TestHTTPRefuse(t *testing.T) {
	ca, src, _ := secure(t)
	s, _ := open(t, access.Options{}, "identities: []")
	url := serveHTTP(t, src.TLSConfig(), s.HTTP(http.NotFoundHandler(), access.HTTPOptions{Need: needs, Refuse: func(w http.ResponseWriter, _ *http.Request, st *status.Status) {
		w.WriteHeader(access.HTTPCode(st))
		fmt.Fprintf(w, "{%q}", reasonOf(t, st.Err()))
	}}))
	if code, header, body := get(t, httpClient(t, ca, true), url+"/v1"); code != 401 || body != `{"UNAUTHENTICATED"}` || header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%d %v %s", code, header, body)
	}
	var none *access.Store
	url = serveHTTP(t, src.TLSConfig(), none.HTTP(http.NotFoundHandler(), access.HTTPOptions{Need: needs}))
	if code, _, _ := get(t, httpClient(t, ca, true), url+"/v1"); code != 404 {
		t.Errorf("%d without access control", code)
	}
}

// A request that lasts ends when what let it in is withdrawn, and a connection
// whose certificate is revoked is good for no further request.
func TestHTTPWithdrawn(t *testing.T) {
	ca, src, o := secure(t)
	var refused refusals
	const text = "identities:\n- {name: a, certificates: [a.svc]}\n"
	s, path := open(t, access.Options{CheckCertificate: src.Check, Refused: refused.add}, text)
	causes := make(chan error, 1)
	begun := make(chan struct{})
	url := serveHTTP(t, src.TLSConfig(), s.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			begun <- struct{}{}
			<-r.Context().Done()
			causes <- context.Cause(r.Context())
		}
	}), access.HTTPOptions{Need: needs}))
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
		if err := <-causes; reasonOf(t, err) != why {
			t.Errorf("%s ended with %v", path, err)
		}
		<-done
	}
	reload := func(text string) {
		t.Helper()
		write(t, path, text)
		if out := s.Reload("test"); out.Err != nil || !out.Changed {
			t.Errorf("%+v", out)
		}
	}
	reload("identities:\n- {name: a, certificates: [a.svc], admin: true, recent: true}\n")
	ended("/page", "NOT_ALLOWED", func() {
		reload("identities:\n- {name: a, certificates: [a.svc], admin: true}\n") // what it needs is still there
		reload("identities:\n- {name: a, certificates: [a.svc], reload: true}\n")
	})
	ended("/v1", "UNAUTHENTICATED", func() {
		write(t, path, "identities: []")
		if out := s.Reload("test"); out.Err != nil || !out.Changed || len(out.Warnings) != 1 {
			t.Errorf("%+v", out)
		}
	})
	write(t, path, text)
	if out := s.Reload("test"); out.Err != nil || !out.Changed {
		t.Errorf("%+v", out)
	}
	if code, _, _ := get(t, c, url+"/v1"); code != 200 {
		t.Errorf("code %d", code)
	}
	ended("/v1", "UNAUTHENTICATED", func() {
		write(t, o.CRL, string(ca.Revoke(t, time.Now().Add(time.Hour), pair.Cert)))
		if out := src.Reload("test"); out.Err != nil || !out.Changed {
			t.Errorf("%+v", out)
		}
		s.Reload("a poll finds it")
	})
	if code, _, _ := get(t, c, url+"/v1"); code != 401 || refused.last() != access.RevokedCertificate {
		t.Errorf("code %d", code)
	}
	// The connection was closed with that answer, and there is no other.
	if response, err := c.Get(url + "/v1"); err == nil {
		response.Body.Close()
		t.Errorf("code %d of a connection with a revoked certificate", response.StatusCode)
	}
}

// Outgoing replaces whatever claims to be an identity.
func TestOutgoing(t *testing.T) {
	claimed := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("ckd-identity", "x", "x-request-id", "7"))
	claimed = metadata.AppendToOutgoingContext(claimed, "Ckd-Identity", "y")
	md, _ := metadata.FromOutgoingContext(access.Outgoing(claimed))
	if got := md.Get("ckd-identity"); len(got) > 0 || len(md.Get("x-request-id")) != 1 {
		t.Errorf("%v", md)
	}
	if _, ok := metadata.FromOutgoingContext(access.Outgoing(t.Context())); !ok {
		t.Error("no metadata")
	}
	// Through a connection, over which the one identity of a request arrives.
	s, _ := open(t, access.Options{}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(tokenA)+"}], models: [m]}\n")
	local := newPipe()
	serve(t, s, nil, service{}, local)
	c := dial(t, "passthrough:///pipe", nil, append(access.OutgoingOptions(), local.dialer())...)
	request, err := http.NewRequestWithContext(claimed, http.MethodGet, "/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+tokenA)
	served := false
	s.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served = true
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		who, err := callIn(ctx, c)
		if err != nil || who != "a" {
			t.Errorf("%s, %v, want a", who, err)
		}
		if who, err := streamIn(ctx, c); err != nil || who != "a" {
			t.Errorf("%s, %v, want a", who, err)
		}
	}), access.HTTPOptions{Need: needs}).ServeHTTP(discard{}, request)
	if !served {
		t.Error("refused")
	}
	if _, err := callIn(claimed, c); reasonOf(t, err) != "UNAUTHENTICATED" {
		t.Errorf("%v", err)
	}
	eventually(t, "no sessions", func() bool { return s.Sessions() == 0 })
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
