package integration_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/integration_test/testbed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// twoModels adds a model to policyText.
const twoModels = policyText + `
  - name: retina
    classes: [healthy, ill]
    critical: [ill]
`

// TestIdentities serves three identities over TCP with TLS and over a unix socket. Unknown callers
// may only probe, and known callers may do what the access file says.
func TestIdentities(t *testing.T) {
	t.Parallel()
	g := serveGuarded(t)
	t.Run("credentials", g.testCredentials)
	t.Run("models that one may not use", g.testHiddenModels)
	t.Run("probes", g.testProbes)
	t.Run("curl", g.testCurl)
	g.checkSecrets(g.daemon)
}

// guarded wraps a daemon with an access file, and one client for each way to reach it.
type guarded struct {
	*daemon
	*vault
	tcp, socket *grpc.ClientConn
	web         *http.Client

	ann, ben, chief, wrong string // tokens; no identity has the wrong one
	benHash                string
}

func serveGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{vault: newVault(t)}
	g.ann, _ = g.token("ann")
	g.ben, g.benHash = g.token("ben")
	g.chief, _ = g.token("chief")
	g.wrong, _ = g.token("wrong")
	g.put("ann.token", []byte(g.ann+"\n"))
	g.put("chief.token", []byte(g.chief))
	access := g.put("access.yaml", []byte(`identities:
  - {name: ann, tokens: [{file: ann.token}], models: [fetal-health]}
  - {name: ben, tokens: [{sha256: `+g.benHash+`}], models: [retina, retinas]}
  - {name: chief, tokens: [{file: chief.token}], models: ["*"], admin: true}
`))
	socket := "unix:" + g.path("ckd.sock")
	g.daemon = serveSite(t, append(g.tls(g.servers.Issue(t)), "--policy", writePolicy(t, twoModels), "--access", access,
		"--listen", socket, "--log-level", "debug")...)
	overTCP := slices.IndexFunc(g.GRPC, func(address string) bool { return !strings.HasPrefix(address, "unix:") })
	config := trusting(g.servers)
	g.tcp, g.socket = dialTLS(t, g.GRPC[overTCP], config), dialTLS(t, socket, nil)
	g.web = secured(t, config, 2)
	return g
}

// conns returns the gRPC connections by name.
func (g *guarded) conns() map[string]*grpc.ClientConn {
	return map[string]*grpc.ClientConn{"TCP": g.tcp, "socket": g.socket}
}

// get sends a GET to the daemon's HTTP address.
func (g *guarded) get(t *testing.T, path string, headers ...string) reply {
	t.Helper()
	r, err := ask(inTime(t), g.web, http.MethodGet, g.HTTP+path, "", headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bearer returns a call's context that carries a token.
func bearer(t *testing.T, token string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+token)
}

// testCredentials lists the models of each caller. Only a token says who a caller is.
func (g *guarded) testCredentials(t *testing.T) {
	pretends := []string{"ckd-identity", "chief", "grpc-metadata-ckd-identity", "chief", "grpc-metadata-authorization", "Bearer " + g.chief}
	for name, c := range map[string]struct {
		pairs  []string
		models string // empty if the caller is refused
	}{
		"nothing":        {nil, ""},
		"unknown":        {[]string{"authorization", "Bearer " + g.wrong}, ""},
		"another scheme": {[]string{"authorization", "Basic " + g.ann}, ""},
		"two tokens":     {[]string{"authorization", "Bearer " + g.ann, "authorization", "Bearer " + g.chief}, ""},
		"says who":       {pretends, ""},
		"ann":            {[]string{"authorization", "Bearer " + g.ann}, "fetal-health"},
		"ann says who":   {append([]string{"authorization", "bearer " + g.ann}, pretends...), "fetal-health"},
		"ben":            {[]string{"authorization", "Bearer " + g.ben}, "retina"},
		"the chief":      {[]string{"authorization", "Bearer " + g.chief}, "fetal-health retina"},
	} {
		t.Run(name, func(t *testing.T) {
			for over, conn := range g.conns() {
				names, err := modelsOf(metadata.AppendToOutgoingContext(inTime(t), c.pairs...), conn)
				refused := isRefusal(err, codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED)
				if refused != (c.models == "") || strings.Join(names, " ") != c.models {
					t.Errorf("%s: %v, %v, want %q", over, names, err, c.models)
				}
			}
			r := g.get(t, "/v1/models", c.pairs...)
			for _, model := range []string{"fetal-health", "retina"} {
				if strings.Contains(r.body, model) != strings.Contains(c.models, model) {
					t.Errorf("over HTTP: %d %s, want %q", r.code, r.body, c.models)
				}
			}
			for _, path := range []string{"/v1/models", "/v2", "/v2/models/fetal-health/ready", "/nowhere"} {
				r := g.get(t, path, c.pairs...)
				if refused := r.code == http.StatusUnauthorized && r.header.Get("WWW-Authenticate") == "Bearer"; refused != (c.models == "") {
					t.Errorf("%s: %d %v %s", path, r.code, r.header, r.body)
				}
			}
		})
	}
	if err := tryStream(inTime(t), g.tcp); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream without a token: %v", err)
	}
	for _, reason := range []string{"unknown_token", "no_credential", "bad_credential"} {
		if g.gauge("ckd_refused_total", "resource", "access", "reason", reason) == 0 {
			t.Errorf("%s is not counted", reason)
		}
	}
}

// testHiddenModels asks for models that a caller may not use. Answers must not reveal whether such
// a model exists.
func (g *guarded) testHiddenModels(t *testing.T) {
	for name, call := range everyCall(t, g.tcp, g.web, g.HTTP, g.ben) {
		t.Run("absent, "+name, func(t *testing.T) { // the hint may name only ben's models
			answer := call("retinas")
			if strings.Contains(answer, "fetal") || strings.Contains(answer, "no policy names") != strings.Contains(answer, "expected retina") {
				t.Error(answer)
			}
		})
	}
	for name, call := range everyCall(t, g.tcp, g.web, g.HTTP, g.ann) {
		t.Run("not allowed, "+name, func(t *testing.T) {
			hidden, absent := call("retina"), call("absent")
			if hidden = strings.ReplaceAll(hidden, "retina", "absent"); hidden != absent {
				t.Errorf("the answers differ:\n%s\n%s", hidden, absent)
			}
			if !strings.Contains(hidden, "may not use the model") && !strings.Contains(name, "ready") {
				t.Error(hidden)
			}
			if allowed := call("fetal-health"); strings.Contains(allowed, "may not") || allowed == hidden {
				t.Errorf("an allowed model: %s", allowed)
			}
		})
	}
}

func (g *guarded) testProbes(t *testing.T) {
	for over, conn := range g.conns() {
		r, err := healthv1.NewHealthClient(conn).Check(inTime(t), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health over %s: %v, %v", over, r, err)
		}
	}
	for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
		if r := g.get(t, path); r.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/metrics"} {
		if code, _, _ := g.Get(path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// testCurl runs the commands of docs/security.md: those that make a token, and the call with one.
func (g *guarded) testCurl(t *testing.T) {
	curl := testbed.Program(t, "curl", "CURL")
	text := readPage(t, "security.md")
	testbed.Program(t, "openssl", "OPENSSL")
	makes := exec.CommandContext(inTime(t), "sh", "-e", "-c", regexp.MustCompile("(?s)```sh\n(openssl .*?)```").FindStringSubmatch(text)[1])
	makes.Dir = t.TempDir()
	r := testbed.Run(t, makes)
	token, err := os.ReadFile(filepath.Join(makes.Dir, "token"))
	if sum, _, _ := strings.Cut(r.Stdout, " "); err != nil || sum != fmt.Sprintf("%x", sha256.Sum256(bytes.TrimSpace(token))) {
		t.Errorf("the token %q has the hash %q: %v%s", token, r.Stdout, err, r.Stderr)
	}
	shown := regexp.MustCompile(`(?m)^curl .*$`).FindString(text)
	g.put("ca.crt", g.servers.PEM)
	g.put("token", []byte(g.ann+"\n"))
	here := strings.NewReplacer("https://ckd.eye.svc:8591", g.HTTP, "curl ", curl+" -sS ")
	c := exec.CommandContext(inTime(t), "sh", "-c", here.Replace(shown))
	c.Dir = g.dir
	if r := testbed.Run(t, c); r.Code != 0 || !strings.Contains(r.Stdout, "fetal-health") {
		t.Errorf("%s: exit %d: %s%s", shown, r.Code, r.Stdout, r.Stderr)
	}
}

// everyCall returns functions that call each method which names a model, by the name of the method.
// Each returns the whole answer as text.
func everyCall(t *testing.T, conn *grpc.ClientConn, web *http.Client, url, token string) map[string]func(model string) string {
	ctx := metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+token)
	native, infer := ckdv1.NewUncertaintyServiceClient(conn), inferencepb.NewGRPCInferenceServiceClient(conn)
	text := func(answer any, err error) string {
		return fmt.Sprint(answer, err, status.Convert(err).Proto())
	}
	calls := map[string]func(string) string{
		"GetModel": func(m string) string { return text(native.GetModel(ctx, &ckdv1.GetModelRequest{Model: m})) },
		"Decompose": func(m string) string {
			return text(native.Decompose(ctx, &ckdv1.DecomposeRequest{Model: m, Layout: ckdv1.Layout_LAYOUT_NSK}))
		},
		"DecomposeStream": func(m string) string {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := native.DecomposeStream(ctx)
			if err != nil {
				return text(nil, err)
			}
			_ = stream.Send(streamOf(m)) // Recv returns the error
			return text(stream.Recv())
		},
		"ModelMetadata": func(m string) string {
			return text(infer.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: m}))
		},
		"ModelConfig": func(m string) string { return text(infer.ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: m})) },
		"ModelInfer": func(m string) string {
			return text(infer.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: m}))
		},
		"ModelReady, ready": func(m string) string {
			return text(infer.ModelReady(ctx, &inferencepb.ModelReadyRequest{Name: m}))
		},
		"ModelStreamInfer": func(m string) string {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := infer.ModelStreamInfer(ctx)
			if err != nil {
				return text(nil, err)
			}
			_ = stream.Send(&inferencepb.ModelInferRequest{ModelName: m}) // Recv returns the error
			return text(stream.Recv())
		},
	}
	for path, body := range map[string]string{
		"GET /v1/models/%s":            "",
		"POST /v1/models/%s:decompose": `{"layout": "LAYOUT_NSK"}`,
		"GET /v2/models/%s":            "",
		"GET /v2/models/%s/ready":      "",
		"GET /v2/models/%s/config":     "",
		"POST /v2/models/%s/infer":     `{"inputs": [{"name": "passes", "datatype": "FP32", "shape": [0, 0, 3], "data": []}]}`,
	} {
		method, path, _ := strings.Cut(path, " ")
		calls[method+" "+path] = func(m string) string {
			named := func(text string) string { return strings.Replace(text, "%s", m, 1) }
			r, err := ask(ctx, web, method, url+named(path), named(body), "Authorization", "Bearer "+token)
			if err != nil {
				return err.Error()
			}
			for _, varies := range []string{"Date", "X-Request-Id", "Content-Length"} {
				r.header.Del(varies)
			}
			names := slices.Sorted(maps.Keys(r.header))
			return fmt.Sprint(r.code, names, r.body)
		}
	}
	return calls
}

// TestTokenRevoked withdraws a token, then a model, while streams are open. The streams must end
// undecided, with UNAUTHENTICATED or NOT_ALLOWED.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	old, oldSum := v.token("old")
	_, nextSum := v.token("next")
	steady, steadySum := v.token("steady")
	write := func(ann, models string) string {
		return v.put("access.yaml", fmt.Appendf(nil, "identities:\n"+
			"  - {name: ann, tokens: [{sha256: %s}], models: [fetal-health]}\n"+
			"  - {name: ben, tokens: [{sha256: %s}], models: [%s]}\n", ann, steadySum, models))
	}
	s := serveSite(t, "--access", write(oldSum, "fetal-health"), "--log-level", "debug")
	ann := arrive(t, s.dial(), old)
	ben := arrive(t, s.dial(), steady)
	eventually(t, "inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 2*guestInputs })
	for _, c := range []struct {
		what, token, models string
		gone                *guest
		code                codes.Code
		reason              ckdv1.ErrorReason
		open                float64 // inputs that stay open
	}{
		{"a token", nextSum, "fetal-health", ann, codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, guestInputs},
		{"a model", nextSum, "retina", ben, codes.PermissionDenied, ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, 0},
	} {
		write(c.token, c.models)
		if err := c.gone.receive(); !isRefusal(err, c.code, c.reason) {
			t.Errorf("%s is withdrawn: the stream ends with %v", c.what, err)
		}
		eventually(t, "the inputs are given up", func() bool { return s.gauge("ckd_inputs_open") == c.open })
	}
	if r := s.mustAsk(http.MethodGet, "/v1/models", "", "Authorization", "Bearer "+old); r.code != http.StatusUnauthorized {
		t.Errorf("a call: %d %s", r.code, r.body)
	}
	s.fallsTo("ckd_in_use", 0, "resource", "streams")
	if decided := s.gauge("ckd_decisions_total"); decided != 0 {
		t.Errorf("%v inputs are decided", decided)
	}
	v.checkSecrets(s)
}
