package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/oip"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPolicies = `
models:
  - name: fetal-health
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 30}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
  - name: two.v1
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
`

// harness runs a daemon's server behind the gateway, over real HTTP.
type harness struct {
	url      string
	grpc     ckdv1.UncertaintyServiceClient
	oip      inferencepb.GRPCInferenceServiceClient
	server   *server.Server
	handler  http.Handler
	registry *prometheus.Registry
	http     *http.Client
	budget   budget

	mu      sync.Mutex
	refused []int
}

// budget is the Holder of all bodies.
type budget struct {
	limit int64 // 0 for none
	held  atomic.Int64
}

func (b *budget) Reserve(bytes int64) error {
	if b.held.Add(bytes) > b.limit && b.limit > 0 {
		b.held.Add(-bytes)
		return status.Error(codes.ResourceExhausted, "no room")
	}
	return nil
}

func (b *budget) Release(bytes int64) { b.held.Add(-bytes) }

// bodyTime bounds how long a body may take in tests of slow bodies.
const bodyTime = 300 * time.Millisecond

func newHarness(t testing.TB, limits server.Limits, bodyTime time.Duration) *harness {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(testPolicies)})
	ok(t, err)
	h := &harness{registry: prometheus.NewRegistry()}
	m, err := metrics.New(h.registry, metrics.Options{ClassLabels: 32, RejectReasons: server.RejectReasons()})
	ok(t, err)
	h.server, err = server.New(server.Options{Limits: limits, Logger: zap.NewNop(), Metrics: m, Registry: h.registry})
	ok(t, err)
	ok(t, h.server.SetPolicies(set))
	oip.Register(h.server, h.server)
	pipe, conn, err := Pipe(func(ctx context.Context) context.Context { return ctx })
	ok(t, err)
	served := make(chan error, 1)
	go func() { served <- h.server.GRPC().Serve(pipe) }()
	h.grpc, h.oip = ckdv1.NewUncertaintyServiceClient(conn), inferencepb.NewGRPCInferenceServiceClient(conn)
	h.handler = New(conn, Options{
		MessageBytes: h.server.MessageBytes, Tensor: h.server.Tensor, Holder: func(context.Context) Holder { return &h.budget },
		Refused: func(code int, id string) {
			if id == "" {
				t.Error("a request without an id is refused")
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.refused = append(h.refused, code)
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	web := NewServer(h.handler, nil, bodyTime, bodyTime)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(listener) // until it is closed
	}()
	h.url = "http://" + listener.Addr().String()
	transport := &http.Transport{}
	h.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		<-done
		h.eventually(t, "no body is held", func() bool { return h.budget.held.Load() == 0 })
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		h.server.GRPC().Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		h.eventually(t, "the server is idle", h.server.Idle)
	})
	return h
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *harness) eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if is() {
			return
		}
	}
	t.Errorf("not so after a minute: %s", what)
}

// answer is an HTTP answer whose body has been read.
type answer struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// post sends a body and returns the answer.
func (h *harness) post(t testing.TB, path, body string, headers ...string) (answer, string) {
	t.Helper()
	return h.do(t, http.MethodPost, path, strings.NewReader(body), headers...)
}

func (h *harness) do(t testing.TB, method, path string, body io.Reader, headers ...string) (answer, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, body)
	ok(t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := h.http.Do(r)
	ok(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	ok(t, err)
	return answer{response.Status, response.StatusCode, response.Header}, string(text)
}

// request returns the passes of some inputs of a recording.
func request(t testing.TB, inputs int, detail ckdv1.Detail) *ckdv1.DecomposeRequest {
	t.Helper()
	p := recording(t)
	r := &ckdv1.DecomposeRequest{
		Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(p.S), Inputs: uint32(inputs), Detail: detail,
	}
	for s := range p.S {
		r.Values = append(r.Values, p.Float32[p.Offset(s, 0):p.Offset(s, 0)+inputs*p.K]...)
	}
	return r
}

func recording(t testing.TB) *record.Passes {
	t.Helper()
	p, err := record.ReadPasses("../../internal/recordings/ctg-mcdropout.passes.npy", record.Options{})
	ok(t, err)
	return p
}

func toJSON(t testing.TB, m proto.Message) string {
	t.Helper()
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	ok(t, err)
	return string(data)
}

func fromJSON(t testing.TB, text string, m proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestUnary checks that HTTP returns what gRPC returns.
func TestUnary(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), time.Minute)
	for _, detail := range []ckdv1.Detail{ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_VECTORS, ckdv1.Detail_DETAIL_FULL} {
		in := request(t, 40, detail)
		in.InputIds = make([]string, 40)
		in.InputIds[0], in.InputIds[1], in.InputIds[2] = "a", "a", "\u00e9 \"quoted\"" // the second is refused
		asked := proto.CloneOf(in)
		asked.ClassNames = proto.Bool(true) // the default over HTTP
		want, err := h.grpc.Decompose(t.Context(), asked)
		if err != nil || fmt.Sprint(want.GetClasses()) != "[normal suspect pathologic]" {
			t.Fatal(err, want.GetClasses())
		}
		for name, body := range map[string]string{
			"values": toJSON(t, in),
			"bytes":  toJSON(t, packed(in)),
			"no model in the body": func() string {
				in := proto.CloneOf(in)
				in.Model = ""
				return toJSON(t, in)
			}(),
		} {
			response, text := h.post(t, "/v1/models/fetal-health:decompose", body)
			if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%s: %s, %s: %s", name, response.Status, response.Header.Get("Content-Type"), text)
			}
			var got ckdv1.DecomposeResponse
			fromJSON(t, text, &got)
			if toJSON(t, &got) != toJSON(t, want) { // compare as JSON: the details of errors are encoded maps, in any order
				t.Errorf("%s, %v: got %.300v, want %.300v", name, detail, &got, want)
			}
		}
	}
	_, text := h.post(t, "/v1/models/fetal-health:decompose", toJSON(t, request(t, 1, ckdv1.Detail_DETAIL_VECTORS)))
	for _, fragment := range []string{`"decision":{"action":"ACTION_`, `"score":"SCORE_`, `"sum_c":`, `"input_id"`} {
		if has := strings.Contains(text, fragment); has == (fragment == `"input_id"`) {
			t.Errorf("%s in %s: %v", fragment, text, has)
		}
	}
	if len(h.refused) != 0 {
		t.Errorf("refused: %v", h.refused)
	}
}

// TestZeros checks that JSON holds zeros that were computed, and no others.
func TestZeros(t *testing.T) {
	h := newHarness(t, server.DefaultLimits(), time.Minute)
	const passes = `"passes":2,"inputs":2,"input_ids":["a","bad"],"values":[1,0,2,2,1,0,2,2]`
	const decision = `"decision":{"action":"ACTION_OBSERVE","score":"SCORE_C_CRIT_MAX","value":0,"gate":"GATE_OUTCOME_PRIMARY","reason":"DECISION_REASON_OBSERVING"}`
	const always = `"predicted":0,"passes":2,"degenerate":true,"saturated":true`
	const vectors = `"c":[0,0],"skewness":[0,0],"mean":[1,0],"mi":0,"entropy":0,"sum_c":0`
	for detail, want := range map[string]string{
		"DECISION": `{` + decision + `,` + always + `,"settled":false}`,
		"VECTORS":  `{` + decision + `,` + always + `,` + vectors + `,"settled":false}`,
	} {
		_, text := h.post(t, "/v1/models/two.v1:decompose", `{"layout":"LAYOUT_SNK","detail":"DETAIL_`+detail+`",`+passes+`}`)
		var got struct{ Results []map[string]any }
		var decomposition any
		ok(t, json.Unmarshal([]byte(text), &got))
		ok(t, json.Unmarshal([]byte(want), &decomposition))
		first := map[string]any{"input_id": "a", "row": 0.0, "decomposition": decomposition}
		if diff := cmp.Diff(first, got.Results[0]); diff != "" || got.Results[1]["row"] != 1.0 || got.Results[1]["error"] == nil {
			t.Errorf("%s: %s\n%s", detail, text, diff)
		}
		if !strings.Contains(text, `"classes":["safe","critical"]`) || strings.Count(text, `"predicted"`) != 1 {
			t.Errorf("%s: %s", detail, text)
		}
	}
	_, text := h.post(t, "/v1/models/two.v1:decompose", `{"layout":"LAYOUT_SNK","detail":"DETAIL_FULL","class_names":false,`+passes+`}`)
	for fragment, want := range map[string]bool{`"expected_entropy":0`: true, `"sum_c_weighted":0`: true, `"confusion":0`: true, `"class_a":0`: true, `[]`: false, `"dominant"`: false, `"threshold"`: false, `"classes"`: false} {
		if strings.Contains(text, fragment) != want {
			t.Errorf("%s is there: %v in %s", fragment, !want, text)
		}
	}
}

// packed returns the request with its values as bytes.
func packed(r *ckdv1.DecomposeRequest) *ckdv1.DecomposeRequest {
	r = proto.CloneOf(r)
	for _, v := range r.GetValues() {
		r.ValuesLe = binary.LittleEndian.AppendUint32(r.ValuesLe, math.Float32bits(v))
	}
	r.Values = nil
	return r
}

// TestModels checks GET of all models and of one.
func TestModels(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), time.Minute)
	all, err := h.grpc.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
	ok(t, err)
	_, text := h.do(t, http.MethodGet, "/v1/models", nil)
	var got ckdv1.ListModelsResponse
	if fromJSON(t, text, &got); !proto.Equal(&got, all) {
		t.Errorf("got %s", text)
	}
	for _, path := range []string{"/v1/models/two.v1", "/v1/models/two%2Ev1"} {
		_, text = h.do(t, http.MethodGet, path, nil)
		var one ckdv1.GetModelResponse
		if fromJSON(t, text, &one); !proto.Equal(one.GetModel(), all.GetModels()[1]) {
			t.Errorf("%s: got %s", path, text)
		}
	}
}

// TestErrors checks that every error is a google.rpc.Status with a matching HTTP status.
func TestErrors(t *testing.T) {
	t.Parallel()
	limits := server.DefaultLimits()
	limits.MessageBytes, limits.InputsPerRequest = 4096, 20
	h := newHarness(t, limits, time.Minute)
	good := toJSON(t, request(t, 1, 0))
	decompose := "/v1/models/fetal-health:decompose"
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               string // gRPC code as a number; /v2 has none
		fragments          []string
		refused            bool // without any call
	}{
		"unknown model":    {"POST", "/v1/models/nobody:decompose", good[:1] + good[strings.Index(good, `,`)+1:], nil, 404, "5", []string{`"reason":"UNKNOWN_MODEL"`, `"domain":"ckd.v1"`, `google.rpc.BadRequest`, `\"nobody\"`}, false},
		"get unknown":      {"GET", "/v1/models/nobody", "", nil, 404, "5", []string{`UNKNOWN_MODEL`}, false},
		"two models":       {"POST", "/v1/models/two.v1:decompose", good, nil, 400, "3", []string{`the body says \"fetal-health\", the path \"two.v1\"`}, true},
		"no layout":        {"POST", decompose, `{}`, nil, 400, "3", []string{`WRONG_LAYOUT`, `LAYOUT_SNK or LAYOUT_NSK`}, false},
		"too many inputs":  {"POST", decompose, `{"layout":"LAYOUT_SNK","inputs":21}`, nil, 429, "8", []string{`TOO_MANY_INPUTS`}, false},
		"unknown field":    {"POST", decompose, `{"layout":"LAYOUT_SNK",` + "\n" + `  "valeus":[1]}`, nil, 400, "3", []string{`(line 2:3): unknown field \"valeus\"`}, true},
		"twice":            {"POST", decompose, `{"passes":1,"passes":2}`, nil, 400, "3", []string{`duplicate`}, true},
		"no JSON":          {"POST", decompose, `{"passes":`, nil, 400, "3", []string{`the body: `, `unexpected`}, true},
		"two texts":        {"POST", decompose, `{} {}`, nil, 400, "3", []string{`(line 1:4): `}, true},
		"empty":            {"POST", decompose, ` `, nil, 400, "3", []string{`the body: `}, true},
		"no UTF-8":         {"POST", decompose, "{\"posterior\":\"\xff\"}", nil, 400, "3", []string{`UTF-8`}, true},
		"oversize":         {"POST", decompose, `{"posterior":"` + strings.Repeat("x", 30000) + `"}`, nil, 413, "8", []string{`over the limit of 24576 bytes`}, true},
		"many elements":    {"POST", decompose, `{"values":[` + strings.Repeat("0,", 1100) + `0]}`, nil, 413, "8", []string{`over 1024 elements`, `4096 bytes`}, true},
		"large message":    {"POST", decompose, `{"values_le":"` + base64.StdEncoding.EncodeToString(make([]byte, 5000)) + `"}`, nil, 413, "8", []string{`a message of 50`, `over max-message-bytes, 4096`}, true},
		"large inference":  {"POST", "/v2/models/fetal-health/infer", `{"id":"` + strings.Repeat("x", 5000) + `","inputs":[]}`, nil, 413, "", []string{`a message of 50`, `over max-message-bytes, 4096`}, true},
		"another page":     {"POST", decompose, good, []string{"Sec-Fetch-Site", "cross-site"}, 403, "7", []string{`CORS`}, true},
		"query":            {"POST", decompose + "?detail=DETAIL_FULL", good, nil, 400, "3", []string{`query`}, true},
		"timeout":          {"POST", decompose, good, []string{"Grpc-Timeout", "soon"}, 400, "3", []string{`grpc-timeout: soon`}, true},
		"over":             {"POST", decompose, good, []string{"Grpc-Timeout", "1n"}, 504, "4", nil, false},
		"path":             {"GET", "/v1/models/%ff", "", nil, 400, "3", []string{`the path`, `UTF-8`}, true},
		"path, escaped":    {"GET", "/v1/models/%25ff", "", nil, 404, "5", []string{`\"%ff\"`}, false},
		"path of /v2":      {"GET", "/v2/models/%ff/ready", "", nil, 400, "", []string{`the path`, `UTF-8`}, true},
		"version of /v2":   {"POST", "/v2/models/fetal-health/versions/%ff/infer", "{}", nil, 400, "", []string{`the path`, `UTF-8`}, true},
		"query of /v1":     {"GET", "/v1/models?a=%ff", "", nil, 400, "3", []string{`query`}, true},
		"query of /v2":     {"GET", "/v2?a=%ff", "", nil, 400, "", []string{`the query`, `UTF-8`}, true},
		"nothing there":    {"GET", "/v1/model", "", nil, 404, "5", []string{`nothing answers GET \"/v1/model\"`, `/v1/models`}, true},
		"method of models": {"DELETE", "/v1/models/two.v1", "", nil, 405, "12", []string{`expected one of GET /v1/models`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h.refused = nil
			response, text := h.do(t, c.method, c.path, strings.NewReader(c.body), c.headers...)
			if response.StatusCode != c.status {
				t.Errorf("%s, want %d: %s", response.Status, c.status, text)
			}
			var st struct {
				Code    json.Number
				Message string
				Details []any
			}
			if err := json.Unmarshal([]byte(text), &st); err != nil || st.Code.String() != c.code || (st.Message == "") != (c.code == "") {
				t.Errorf("%v: %s, want the code %s", err, text, c.code)
			}
			for _, fragment := range c.fragments {
				if !strings.Contains(strings.ReplaceAll(text, "\u00a0", " "), fragment) {
					t.Errorf("no %q in %s", fragment, text)
				}
			}
			for header := range response.Header {
				if strings.HasPrefix(header, "Access-Control") || strings.HasPrefix(header, "Grpc-") {
					t.Errorf("a header %s: %s", header, response.Header.Get(header))
				}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if (len(h.refused) == 1 && h.refused[0] == c.status) != c.refused || len(h.refused) > 1 {
				t.Errorf("reported as refused: %v", h.refused)
			}
		})
	}
}

// echo is a server that returns the metadata it received, and fails on demand.
type echo struct {
	grpc.ClientConnInterface
	wait time.Duration
	got  metadata.MD
	err  error
}

func (e *echo) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	e.got, _ = metadata.FromOutgoingContext(ctx)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.wait):
		return e.err
	}
}

// TestHeaders checks which headers reach the server, and which the answer has.
func TestHeaders(t *testing.T) {
	t.Parallel()
	e := &echo{}
	handler := New(e, Options{MessageBytes: func() int { return 1 << 20 }})
	send := func(path string, headers ...string) http.Header {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Header()
	}
	for _, path := range []string{"/v1/models", "/v2"} {
		header := send(path, "X-Request-Id", "mine", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"Ckd-Identity", "admin", "Grpc-Metadata-Ckd-Identity", "admin", "Cookie", "c=1",
			"Grpc-Metadata-X", "y", "Ckd-Connection", "1")
		want := metadata.Pairs("x-request-id", "mine", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		e.got.Delete("x-forwarded-for") // the server does not read these
		e.got.Delete("x-forwarded-host")
		if got, want := fmt.Sprint(map[string][]string(e.got)), fmt.Sprint(map[string][]string(want)); got != want {
			t.Errorf("%s: the server got %s, want %s", path, got, want)
		}
		if id := header.Get("X-Request-Id"); id != "mine" {
			t.Errorf("%s: the answer's id is %q", path, id)
		}
	}
	for _, sent := range []string{"", "a\tb", strings.Repeat("x", 129)} {
		if id := send("/v1/models", "X-Request-Id", sent).Get("X-Request-Id"); len(id) != 16 || id != e.got.Get("x-request-id")[0] {
			t.Errorf("instead of %q the id is %q, the server got %q", sent, id, e.got)
		}
	}
}

// TestServerErrors checks the HTTP form of the server's errors.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	e := &echo{}
	handler := New(e, Options{MessageBytes: func() int { return 1 << 20 }})
	retry, err := status.New(codes.ResourceExhausted, "too much").WithDetails(
		&errdetails.ErrorInfo{Reason: "OVERLOADED", Domain: "ckd.v1"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(1200 * time.Millisecond)})
	ok(t, err)
	for name, c := range map[string]struct {
		err       error
		status    int
		fragment  string
		header    string
		wantValue string
	}{
		"retry":           {retry.Err(), 429, `"reason":"OVERLOADED"`, "Retry-After", "2"},
		"retry in detail": {retry.Err(), 429, `"retry_delay":"1.200s"`, "Retry-After", "2"},
		"unauthenticated": {status.Error(codes.Unauthenticated, "who?"), 401, `"code":16,"message":"who?"`, "WWW-Authenticate", "Bearer"},
		"not allowed":     {status.Error(codes.PermissionDenied, "no"), 403, `"code":7`, "WWW-Authenticate", ""},
		"unavailable":     {status.Error(codes.Unavailable, "away"), 503, `"code":14`, "Retry-After", ""},
	} {
		for _, path := range []string{"/v1/models", "/v2/health/ready"} {
			t.Run(name+path, func(t *testing.T) {
				e.err = c.err
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				text := w.Body.String()
				if w.Code != c.status || w.Header().Get(c.header) != c.wantValue {
					t.Errorf("%d, %s %q: %s", w.Code, c.header, w.Header().Get(c.header), text)
				}
				if path == "/v2/health/ready" {
					c.fragment = `{"error":"` + status.Convert(c.err).Message() + `"}` + "\n"
				}
				if !strings.Contains(text, c.fragment) {
					t.Errorf("no %s in %s", c.fragment, text)
				}
			})
		}
	}
}

// TestHandedThrough checks that the answer of another model is accepted as a request, and that its
// other tensors come back as they were, in JSON letter by letter. A tensor with the name of an
// output of ckd does not.
func TestHandedThrough(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), time.Minute)
	native := request(t, 2, ckdv1.Detail_DETAIL_DECISION)
	values, err := json.Marshal(native.GetValues())
	ok(t, err)
	answer := func(tensors ...string) string {
		return `{"model_name":"classifier","model_version":null,"id":"7","parameters":{"layout":"SNK"},"outputs":[` + strings.Join(tensors, ",") + `]}`
	}
	passes := `{"name":"passes","shape":[30,2,3],"datatype":"FP32","parameters":null,"data":` + string(values) + `}`
	label := `{"name":"label","datatype":"BYTES","shape":[2],"parameters":{"content_type":"str"},"data":["norm\u00e4l","a\"b<"]}`
	half := `{"name":"half","datatype":"FP16","shape":[2,1],"data":[[1.50],[-2e-3]]}`
	odd := `{"name":"odd","datatype":"json:FP8","shape":[3],"data":[null,{"a":[1]},1e999]}`
	empty := `{"name":"empty","datatype":"binary:X","shape":[0],"data":[]}`
	score := `{"name":"score","datatype":"FP32","shape":[2],"data":[7,7]}`
	_, plain := h.post(t, "/v2/models/fetal-health/infer", answer(passes))
	ours, _ := strings.CutSuffix(strings.TrimSpace(plain), "]}")
	if !strings.Contains(ours, `{"name":"predicted_class","datatype":"BYTES","shape":[2],"data":["`) {
		t.Fatalf("got %s", plain)
	}
	want := ours + "," + strings.Join([]string{label, half, odd, empty}, ",") + "]}\n"
	if response, got := h.post(t, "/v2/models/fetal-health/infer", answer(label, half, score, passes, odd, empty)); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", response.Status, got, want)
	}

	// Binary data comes back as binary data, even if the request asks for no other output in that form.
	bf16 := `{"name":"bf16","datatype":"BF16","shape":[9],"parameters":{"binary_data_size":3}}`
	scoreToo := `{"name":"score","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":1}}`
	text := answer(bf16, label, scoreToo, passes)
	response, got := h.post(t, "/v2/models/fetal-health/infer", text+"\x00\xffxy", "Inference-Header-Content-Length", fmt.Sprint(len(text)),
		"Content-Type", "application/octet-stream")
	want = ours + "," + bf16 + "," + label + "]}"
	if got != want+"\x00\xffx" || response.Header.Get("Inference-Header-Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("%s: got\n%s\nwant\n%s", response.Status, got, want)
	}

	// The request may name such tensors, and may ask for outputs of ckd alone as binary data.
	text = `{"parameters":{"layout":"SNK","binary_data_output":true},"inputs":[` + label + "," + half + "," + passes + `],"outputs":[{"name":"label"},{"name":"defer"}]}`
	_, got = h.post(t, "/v2/models/fetal-health/infer", text)
	if !strings.Contains(got, `"outputs":[`+label+`,{"name":"defer","datatype":"BOOL","shape":[2],"parameters":{"binary_data_size":2}}]}`) {
		t.Errorf("by name: %q", got)
	}

	for fragment, body := range map[string]string{
		`the input \"x\" has data that is no array`:           answer(passes, `{"name":"x","datatype":"FP32","shape":[1],"data":1}`),
		`\"x\" has no data`:                                   answer(passes, `{"name":"x","datatype":"FP32","shape":[1]}`),
		`2 tensors, \"label\" \"half\", expected one of them`: answer(label, half),
	} {
		if response, got := h.post(t, "/v2/models/fetal-health/infer", body); response.StatusCode != http.StatusBadRequest || !strings.Contains(got, fragment) {
			t.Errorf("%s: %s %s", fragment, response.Status, got)
		}
	}
}

// FuzzDecompose checks that no body breaks the gateway, and that it reads a body as protobuf's own
// JSON decoder does.
func FuzzDecompose(f *testing.F) {
	limits := server.DefaultLimits()
	limits.MessageBytes = 64 << 10
	h := newHarness(f, limits, time.Minute)
	f.Add([]byte(toJSON(f, request(f, 1, ckdv1.Detail_DETAIL_FULL))))
	f.Add([]byte(toJSON(f, packed(request(f, 2, 0)))))
	f.Add([]byte(`{"layout":1,"passes":"4","inputs":1e0,"values":["NaN",1,"Infinity",-0],"inputIds":["\u00e9"],"detail":null}`))
	f.Add([]byte(`{"layout":"LAYOUT_NSK","passes":4294967295,"inputs":4294967295}`))
	f.Add([]byte(`[{"a":[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/models/fetal-health:decompose", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, r)
		var in ckdv1.DecomposeRequest
		undecodable := protojson.Unmarshal(body, &in)
		if w.Code == http.StatusOK {
			if undecodable != nil {
				t.Fatalf("taken: %q", body)
			}
			in.Model = "fetal-health"
			if in.ClassNames == nil {
				in.ClassNames = proto.Bool(true)
			}
			want, err := h.grpc.Decompose(t.Context(), &in)
			var got ckdv1.DecomposeResponse
			if fromJSON(t, w.Body.String(), &got); err != nil || toJSON(t, &got) != toJSON(t, want) {
				t.Fatalf("%q: got %v, want %v, %v", body, &got, want, err)
			}
			return
		}
		var st rpcstatus.Status
		if fromJSON(t, w.Body.String(), &st); st.GetMessage() == "" || w.Code == http.StatusInternalServerError {
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
	})
}

// FuzzRequest checks that no method, path, query, header or body is answered as a fault of the
// daemon.
func FuzzRequest(f *testing.F) {
	limits := server.DefaultLimits()
	limits.MessageBytes = 4096
	h := newHarness(f, limits, time.Minute)
	decompose := toJSON(f, request(f, 1, 0))
	const infer = `{"inputs":[{"name":"passes","datatype":"FP32","shape":[1,4,3],"data":[1,0,0,0,1,0,0,0,1,1,0,0]}]}`
	f.Add("GET", "/v1/models/%ff", "", "", "")
	f.Add("GET", "/v1/models/%25ff", "", "X-Request-Id: \xff\nTraceparent: \xc3(", "")
	f.Add("POST", "/v1/models/fetal-health:decompose", "", "Content-Type: application/json\nGrpc-Timeout: 5S", decompose)
	f.Add("POST", "/v1/models/fetal-health:decompose", "detail=%ff", "Content-Type: \xff/\xff\nContent-Encoding: \xff", decompose)
	f.Add("GET", "/v2/models/%ff/ready", "a=%ff", "", "")
	f.Add("POST", "/v2/models/fetal-health/versions/v1/infer", "", "Content-Type: application/json", infer)
	f.Add("POST", "/v2/models/fetal-health/infer", "a=%", "Inference-Header-Content-Length: 5\nSec-Fetch-Site: \xff", infer)
	f.Add("PATCH", "//v1/../v2/./models", "", "Sec-Fetch-Site: cross-site", "")
	f.Add("OPTIONS", "*", "", "Origin: http://\xff", "")
	f.Fuzz(func(t *testing.T, method, path, query, headers, body string) {
		// Only requests that net/http can read reach a handler.
		text := method + " " + path + "?" + query + " HTTP/1.0\r\n"
		for line := range strings.SplitSeq(headers, "\n") {
			text += strings.TrimSpace(line) + "\r\n"
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimRight(text, "\r\n") + "\r\n\r\n")))
		if err != nil || r.ProtoMajor != 1 || r.ProtoMinor != 0 { // a recorder has no full duplex, which later versions need
			return
		}
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError || w.Code >= 400 && (!json.Valid(w.Body.Bytes()) || !utf8.Valid(w.Body.Bytes())) {
			t.Errorf("%q, %q: %d %s", text, body, w.Code, w.Body)
		}
	})
}

// TestSlowBody checks that a body which stalls is given up, and that one which breaks off, or finds
// no room, is refused.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), bodyTime)
	h.budget.limit = 1 << 20
	for name, c := range map[string]struct {
		length int
		end    bool // the client sends no more
		code   string
		words  string
	}{
		"stalls":     {100, false, "HTTP/1.1 408 ", "too slow"},
		"breaks off": {100, true, "HTTP/1.1 400 ", "breaks off"},
		"no room":    {2 << 20, false, "HTTP/1.1 429 ", "no room"},
	} {
		for _, path := range []string{"/v1/models/fetal-health:decompose", "/v2/models/fetal-health/infer"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
			ok(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				path, c.length, strings.Repeat(" ", min(c.length-1, 1<<20+1)))
			if c.end {
				ok(t, conn.(*net.TCPConn).CloseWrite())
			}
			text, err := io.ReadAll(conn) // up to the end: the connection is closed
			if err != nil || !bytes.HasPrefix(text, []byte(c.code)) || !bytes.Contains(text, []byte(c.words)) {
				t.Errorf("%s, %s: %v: %s", name, path, err, text)
			}
		}
	}
}

// TestSlowAnswer checks that the time for a body limits neither the answer nor the next request of
// the connection.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.Config = NewServer(New(&echo{wait: 2 * bodyTime}, Options{MessageBytes: func() int { return 1 << 20 }}), nil, bodyTime, time.Minute)
	web.Start()
	defer web.Close()
	unencrypted := &http.Transport{Protocols: new(http.Protocols)}
	unencrypted.Protocols.SetUnencryptedHTTP2(true)
	for _, transport := range []*http.Transport{{}, unencrypted} {
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for range 2 {
			for path, body := range map[string]string{"/v1/models/m:decompose": `{"inputs":1}`, "/v2/models/m/infer": `{"inputs":[]}`} {
				response, err := client.Post(web.URL+path, "application/json", strings.NewReader(body))
				ok(t, err)
				if response.Body.Close(); response.StatusCode != http.StatusOK {
					t.Errorf("%s %s: %s", response.Proto, path, response.Status)
				}
			}
		}
	}
}
