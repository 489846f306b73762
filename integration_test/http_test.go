package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// serveSite starts a daemon on free ports, with policyText unless a policy is among the arguments, and waits until it
// listens. It is stopped at the end of the test.
func serveSite(t *testing.T, args ...string) *daemon {
	t.Helper()
	all := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	if !strings.Contains(strings.Join(args, " "), "--policy") {
		all = append(all, "--policy", writePolicy(t, policyText))
	}
	addresses := strings.Count(strings.Join(args, " "), "--listen ") + 1
	return &daemon{testbed.StartUntil(t, exec.Command(ckd, append(all, args...)...), func(d *testbed.Daemon) bool {
		return len(d.GRPC) == addresses && d.Admin != "" && d.HTTP != ""
	}), t}
}

// says waits until the log has a text.
func (d *daemon) says(text string) {
	d.t.Helper()
	eventually(d.t, "the log says "+strconv.Quote(text), func() bool { return strings.Contains(d.Log(), text) })
}

// hang is how long anything may take before it is taken to hang: far more than it needs
// on a machine with much else to do.
const hang = 3 * time.Minute

// eventually waits until something is so.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if isSo() {
			return
		}
	}
	t.Fatalf("it does not come to that: %s", what)
}

// inTime is the test's context for as long as anything may take, so that what hangs fails.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// overHTTP1 and overHTTP2 are clients in plaintext that speak one version alone. The connections are their own.
func overHTTP1(t *testing.T) *http.Client {
	return newClient(t, func(p *http.Protocols) { p.SetHTTP1(true) })
}

func overHTTP2(t *testing.T) *http.Client {
	return newClient(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
}

func newClient(t *testing.T, choose func(*http.Protocols)) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	choose(transport.Protocols)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// reply is an answer over HTTP.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request with pairs of headers, and reads the answer.
func ask(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, answer.Header, string(text)}, err
}

// mustAsk is ask in plaintext, which must be answered.
func (d *daemon) mustAsk(method, path, body string, headers ...string) reply {
	d.t.Helper()
	r, err := ask(inTime(d.t), http.DefaultClient, method, d.HTTP+path, body, headers...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// lineStream is a stream over HTTP: a message on each line.
type lineStream struct {
	body   *io.PipeWriter
	answer *http.Response
	lines  *bufio.Reader
}

// openLines opens a stream and reads its first answer. The context is the whole stream's.
func openLines(ctx context.Context, client *http.Client, url string, headers ...string) (*lineStream, error) {
	read, write := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/stream", read)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	go func() { _, _ = io.WriteString(write, streamHeader+"\n") }() // the answer tells
	answer, err := client.Do(request)                               //nolint:bodyclose // lineStream.close does it
	if err != nil {
		return nil, err
	}
	s := &lineStream{write, answer, bufio.NewReader(answer.Body)}
	if answer.StatusCode == http.StatusOK {
		_, err = s.receive()
	}
	return s, err
}

const streamHeader = `{"header": {"model": "fetal-health", "detail": "DETAIL_FULL"}}`

func (s *lineStream) send(m proto.Message) error {
	line, err := protojson.Marshal(m)
	if err == nil {
		_, err = s.body.Write(append(line, '\n'))
	}
	return err
}

// receive a message, or the error that the stream ends with, io.EOF if that is none.
func (s *lineStream) receive() (*ckdv1.DecomposeStreamResponse, error) {
	text, err := s.lines.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var line struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(text, &line); err != nil {
		return nil, err
	}
	if line.Error != nil {
		failed := &spb.Status{}
		if err := protojson.Unmarshal(line.Error, failed); err != nil {
			return nil, err
		}
		return nil, status.ErrorProto(failed)
	}
	m := &ckdv1.DecomposeStreamResponse{}
	return m, protojson.Unmarshal(line.Result, m)
}

// close lets go of the stream, whatever it is at.
func (s *lineStream) close() {
	_ = s.body.CloseWithError(errors.New("let go"))
	_ = s.answer.Body.Close()
}

// TestStreamOverHTTP: what is sent line by line, until the half-close, has the same answers as over gRPC, field by field.
func TestStreamOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveSite(t)
	var messages []*ckdv1.DecomposeStreamRequest
	for g := range uint64(12) {
		messages = append(messages, block(2*g+1, 5, 8, true), block(2*g+2, 3, 6+int(g), false)) // the half-close finishes the latter
	}
	spoilt := block(1000, 1, 5, true)
	spoilt.GetBlock().Values[4] = -1
	unknown := &ckdv1.Block{Group: 5000}
	messages = append(messages, spoilt, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: unknown}})

	type place struct {
		group uint64
		row   uint32
	}
	// collect reads a stream to its end.
	collect := func(receive func() (*ckdv1.DecomposeStreamResponse, error)) (map[place]*ckdv1.Result, int) {
		t.Helper()
		results, faults := map[place]*ckdv1.Result{}, 0
		for {
			m, err := receive()
			if errors.Is(err, io.EOF) {
				return results, faults
			}
			if err != nil {
				t.Fatal(err)
			}
			faults += len(m.GetFaults())
			for _, r := range m.GetResults() {
				at := place{r.GetGroup(), r.GetRow()}
				if results[at] != nil {
					t.Errorf("%v is answered twice", at)
				}
				results[at] = r
			}
		}
	}
	stream, err := openStream(inTime(t), s.dial())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	want, wantFaults := collect(stream.Recv)
	if len(want) != 12*8+1 || want[place{1000, 0}].GetError() == nil || want[place{2, 0}].GetDecomposition() == nil || wantFaults != 1 {
		t.Fatalf("over gRPC: %d results, %d faults", len(want), wantFaults)
	}
	for name, client := range map[string]*http.Client{"HTTP/1.1": overHTTP1(t), "HTTP/2.0": overHTTP2(t)} {
		lines, err := openLines(inTime(t), client, s.HTTP)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer lines.close()
		if lines.answer.Proto != name {
			t.Errorf("%s: the answer is %s", name, lines.answer.Proto)
		}
		// What is final is answered while the body is still open.
		if err := lines.send(messages[0]); err != nil {
			t.Fatal(err)
		}
		early, err := lines.receive()
		if err != nil || len(early.GetResults()) != 5 {
			t.Fatalf("%s: before the half-close: %v, %v", name, early, err)
		}
		for _, m := range messages[1:] {
			if err := lines.send(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := lines.body.Close(); err != nil {
			t.Fatal(err)
		}
		got, faults := collect(lines.receive)
		for _, r := range early.GetResults() {
			got[place{r.GetGroup(), r.GetRow()}] = r
		}
		if len(got) != len(want) || faults != wantFaults {
			t.Errorf("%s: %d results and %d faults, want %d and %d", name, len(got), faults, len(want), wantFaults)
		}
		for at, r := range want {
			if !equalResults(got[at], r) {
				t.Errorf("%s: %v: got %v, want %v", name, at, got[at], r)
			}
		}
	}
}

// equalResults also where they are errors, whose details may be encoded in another order.
func equalResults(a, b *ckdv1.Result) bool {
	details := func(r *ckdv1.Result) []any { return status.FromProto(r.GetError()).Details() }
	isEqual := func(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) }
	if a.GetError() == nil || !slices.EqualFunc(details(a), details(b), isEqual) || len(details(a)) == 0 {
		return proto.Equal(a, b)
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.GetError().Details, b.GetError().Details = nil, nil
	return proto.Equal(a, b)
}

// TestOversize: bodies and lines that are longer than any message may be are refused with 413, before they are a call,
// and so is what is in bounds for HTTP, and not for a message.
func TestOversize(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--max-message-bytes", "2048")
	long := strings.Repeat(" ", 6*2048)
	for path, body := range map[string]string{
		"/v1/models/fetal-health:decompose": `{"layout": "LAYOUT_NSK"` + long + `}`,
		"/v2/models/fetal-health/infer":     `{"inputs": []` + long + `}`,
		"/v1/stream":                        streamHeader + long + "\n",
	} {
		r := s.mustAsk(http.MethodPost, path, body)
		if r.code != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, "over the limit of 12288 bytes") {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
	if got := s.gauge("ckd_http_requests_refused_total", "code", "413"); got != 2 { // a stream is a call from its headers on
		t.Errorf("%v requests are counted as refused with 413", got)
	}
	many := strings.Repeat("0.5,0.2,0.3,", 169) + "0.5,0.2,0.3" // 510 float32 of 4 bytes, and what is about them
	for path, body := range map[string]string{
		"/v1/models/fetal-health:decompose": `{"layout": "LAYOUT_NSK", "inputs": 1, "passes": 170, "values": [` + many + `]}`,
		"/v2/models/fetal-health/infer":     `{"inputs": [{"name": "passes", "datatype": "FP32", "shape": [1, 170, 3], "data": [` + many + `]}]}`,
	} {
		if r := s.mustAsk(http.MethodPost, path, body); r.code != http.StatusRequestEntityTooLarge || r.header.Get("Retry-After") != "" ||
			!strings.Contains(r.body, "over the limit of 2048") {
			t.Errorf("a message over the limit: %d %v %s", r.code, r.header, r.body)
		}
	}
	// The stream may be longer than any of its lines.
	lines, err := openLines(inTime(t), overHTTP1(t), s.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.close()
	for g := range uint64(100) {
		if err := lines.send(block(g, 1, 5, true)); err != nil {
			t.Fatal(err)
		}
		if m, err := lines.receive(); err != nil || len(m.GetResults()) != 1 {
			t.Fatalf("group %d: %v, %v", g, m, err)
		}
	}
	if s.gauge("ckd_decisions_total") != 100 {
		t.Error("what was refused was decided")
	}
}

// TestSlowClients waits for half a minute: a body that does not come is refused with 408, and who says nothing is
// sent away, while others are answered.
func TestSlowClients(t *testing.T) {
	timed.Only(t)
	v := newVault(t)
	s, secure := serveSite(t), serveSite(t, v.tls(v.servers.Issue(t))...)
	var clients sync.WaitGroup
	defer clients.Wait()
	const body = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"inputs\": "
	for name, c := range map[string]struct{ address, sends, want string }{
		"a body of /v1":        {s.HTTP, fmt.Sprintf(body, "/v1/models/fetal-health:decompose"), "HTTP/1.1 408 "},
		"a body of /v2":        {s.HTTP, fmt.Sprintf(body, "/v2/models/fetal-health/infer"), "HTTP/1.1 408 "},
		"a line":               {s.HTTP, fmt.Sprintf(body, "/v1/stream"), "HTTP/1.1 408 "},
		"headers":              {s.HTTP, "GET /v2 HTTP/1.1\r\nHost", ""},
		"nothing":              {s.HTTP, "", ""},
		"a handshake of HTTP":  {secure.HTTP, "\x16\x03\x01", ""},
		"a handshake of gRPC":  {"//" + secure.GRPC[0], "\x16\x03\x01", ""},
		"a greeting of gRPC":   {"//" + s.GRPC[0], "PRI * HTTP/2.0\r\n", ""},
		"headers of the admin": {s.Admin, "GET /metrics HTTP/1.1\r\n", ""},
	} {
		clients.Go(func() {
			conn, err := net.Dial("tcp", c.address[strings.Index(c.address, "//")+2:])
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.sends); err != nil {
				t.Error(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(hang)) // a connection takes deadlines
			text, err := io.ReadAll(conn)
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("%s: it is waited for without end", name)
			}
			if !strings.HasPrefix(string(text), c.want) {
				t.Errorf("%s: answered with %q, want %q", name, text, c.want)
			}
		})
	}
	for range 20 {
		if r := s.mustAsk(http.MethodGet, "/v1/models", ""); r.code != http.StatusOK {
			t.Errorf("meanwhile, another: %d %s", r.code, r.body)
		}
		time.Sleep(10 * time.Millisecond)
	}
	clients.Wait()
	if got := s.gauge("ckd_decisions_total"); got != 0 {
		t.Errorf("%v inputs were decided", got)
	}
}

// TestAnswersUnread: a client that sends, and never reads, is let go of, and holds nothing then.
func TestAnswersUnread(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--send-stall-timeout", "300ms")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096) // the kernel is to hold little
	_, err = io.WriteString(conn, "POST /v1/stream HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := func(text string) {
		if err == nil {
			_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(text), text)
		}
	}
	chunk(streamHeader + "\n")
	chunk(`{"block": {"group": 1, "input_ids": ["stays open"], "passes": 1, "values": [1, 0, 0]}}` + "\n")
	_ = conn.SetWriteDeadline(time.Now().Add(hang)) // a connection takes deadlines
	for g := uint64(2); err == nil; g++ {
		line, jsonErr := protojson.Marshal(block(g, 20, 5, true))
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		chunk(string(line) + "\n")
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("it is still connected, long after the timeout")
	}
	s.settles("ckd_streams_open", 0)
	s.settles("ckd_inputs_open", 0)
	if got := s.gauge("ckd_inputs_abandoned_total"); got < 1 {
		t.Errorf("%v inputs are abandoned", got)
	}
	if r := s.mustAsk(http.MethodGet, "/v1/models", ""); r.code != http.StatusOK {
		t.Errorf("after it: %d %s", r.code, r.body)
	}
}

// TestManyConnections opens hundreds of connections at once: all are answered, and kept
// open for further requests.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--policy", "../deploy/policy/fetal-health.yaml", "--max-calls", "1000")
	body, err := os.ReadFile("../deploy/ghz/decompose.json")
	if err != nil {
		t.Fatal(err)
	}
	const connections, requests = 300, 3
	var calls sync.WaitGroup
	answered := make(chan reply, connections*requests)
	var opened atomic.Int64
	together := make(chan struct{})
	for range connections {
		client := overHTTP1(t)
		calls.Go(func() {
			for range requests {
				ctx := httptrace.WithClientTrace(inTime(t), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
					if !got.Reused {
						opened.Add(1)
					}
				}})
				r, err := ask(ctx, client, http.MethodPost, s.HTTP+"/v1/models/fetal-health:decompose", string(body))
				if err != nil {
					t.Error(err)
					return
				}
				answered <- r
				<-together // so that all are open
			}
		})
	}
	eventually(t, "all connections are open", func() bool { return t.Failed() || len(answered) == connections })
	close(together)
	calls.Wait()
	if got := opened.Load(); got != connections {
		t.Errorf("%d connections for %d clients: some were closed between two requests", got, connections)
	}
	close(answered)
	for r := range answered {
		if r.code != http.StatusOK || !strings.Contains(r.body, "ACTION_") {
			t.Errorf("%d %s", r.code, r.body)
		}
	}
	if got := s.gauge("ckd_decisions_total"); got != connections*requests {
		t.Errorf("%v decisions", got)
	}
}

// TestOverload: with as many calls under way as there may be, further ones are told when to try again, over each
// protocol; then they are let in.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--max-calls", "1")
	conn := s.dial()
	release := holdCall(inTime(t), t, conn)
	list := func() error {
		_, err := ckdv1.NewUncertaintyServiceClient(conn).ListModels(inTime(t), &ckdv1.ListModelsRequest{})
		return err
	}
	eventually(t, "calls are refused", func() bool { return list() != nil })
	err := list()
	if status.Code(err) != codes.ResourceExhausted || client.Reason(err) != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED || retryDelay(err) <= 0 {
		t.Errorf("gRPC: %v, to be tried again after %v", err, retryDelay(err))
	}
	for path, body := range map[string]string{
		"/v1/models":                        "",
		"/v1/models/fetal-health:decompose": `{"layout": "LAYOUT_NSK", "inputs": 1, "passes": 1, "values": [1, 0, 0]}`,
		"/v2/models/fetal-health/infer":     `{"inputs": [{"name": "passes", "datatype": "FP32", "shape": [1, 1, 3], "data": [1, 0, 0]}]}`,
	} {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		if r := s.mustAsk(method, path, body); r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d, Retry-After %q: %s", path, r.code, r.header.Get("Retry-After"), r.body)
		}
	}
	if r := s.mustAsk(http.MethodGet, "/v2/health/ready", ""); r.code != http.StatusOK {
		t.Errorf("a probe: %d %s", r.code, r.body)
	}
	if got := s.gauge("ckd_inputs_rejected_total", "reason", "overloaded"); got < 4 {
		t.Errorf("%v calls are counted as too many", got)
	}
	release()
	eventually(t, "calls are let in again", func() bool { return list() == nil })
	eventually(t, "so over HTTP", func() bool { return s.mustAsk(http.MethodGet, "/v1/models", "").code == http.StatusOK })
}

// holdCall has a unary call under way until it is released, as a client does whose request does not come.
func holdCall(ctx context.Context, t *testing.T, conn *grpc.ClientConn) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	if _, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, ckdv1.UncertaintyService_Decompose_FullMethodName); err != nil {
		t.Fatal(err)
	}
	return cancel
}

// retryDelay is after how long an error may be tried again; 0 if it does not say.
func retryDelay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// TestShutdownOverHTTP: streams over HTTP are let come to their end, like those of gRPC, and nothing else is let in.
func TestShutdownOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveSite(t)
	streams := map[string]*lineStream{}
	for name, client := range map[string]*http.Client{"HTTP/1.1": overHTTP1(t), "HTTP/2.0": overHTTP2(t)} {
		lines, err := openLines(inTime(t), client, s.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer lines.close()
		if err := lines.send(block(1, 2, 5, false)); err != nil {
			t.Fatal(err)
		}
		streams[name] = lines
	}
	eventually(t, "the inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 4 })
	if err := s.Process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not ready", func() bool {
		return s.mustAsk(http.MethodGet, "/v2/health/ready", "").code == http.StatusServiceUnavailable
	})
	if r := s.mustAsk(http.MethodGet, "/v1/models", ""); r.code != http.StatusServiceUnavailable {
		t.Errorf("a call while it is stopping: %d %s", r.code, r.body)
	}
	for name, lines := range streams {
		late := block(2, 1, 5, true)
		if err := lines.send(late); err != nil {
			t.Fatal(err)
		}
		m, err := lines.receive()
		if err != nil || m.GetResults()[0].GetError() == nil {
			t.Errorf("%s: an input that came too late: %v, %v", name, m, err)
		}
		last := block(1, 2, 1, true)
		last.GetBlock().InputIds = nil
		if err := lines.send(last); err != nil {
			t.Fatal(err)
		}
		m, err = lines.receive()
		if err != nil || len(m.GetResults()) != 2 || m.GetResults()[1].GetDecomposition().GetPasses() != 6 {
			t.Errorf("%s: what was open: %v, %v", name, m, err)
		}
		if _, err := lines.receive(); !isRefusal(err, codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING) {
			t.Errorf("%s: the stream ends with %v", name, err)
		}
		if _, err := lines.receive(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after its end: %v", name, err)
		}
	}
	<-s.Exited
	if code := s.Process.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestShutdownCutsOverHTTP: a stream over HTTP that does not come to its end has one when the grace is over, and says so.
func TestShutdownCutsOverHTTP(t *testing.T) {
	t.Parallel()
	s := serveSite(t, "--shutdown-grace", "200ms")
	for _, c := range []*http.Client{overHTTP1(t), overHTTP2(t)} {
		lines, err := openLines(inTime(t), c, s.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		defer lines.close()
		if err := lines.send(block(1, 2, 5, false)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if m, err := lines.receive(); status.Code(err) != codes.Unavailable {
				t.Errorf("it ends with %v, %v", m, err)
			}
		}()
	}
	eventually(t, "the inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 4 })
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestCurl runs what docs/http.md shows.
func TestCurl(t *testing.T) {
	programs := strings.NewReplacer("curl ", testbed.Program(t, "curl", "CURL")+" --fail-with-body -sS ", "jq ", testbed.Program(t, "jq", "JQ")+" ")
	t.Parallel()
	s := serveSite(t, "--policy", "../deploy/policy/fetal-health.yaml")
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	wants := [][]string{
		{`"input_id":"ctg-1"`, `"action":"ACTION_`, `"passes":30`, `"c":[`}, {`"fetal-health"`},
		{`{"result":`, `"input_id":"ctg-4"`, `"passes":30`, `"c":[`}, {`"decision"`, `"c"`},
	}
	examples := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) != len(wants) {
		t.Fatalf("docs/http.md shows %d commands", len(examples))
	}
	for i, example := range examples {
		// The addresses are this daemon's; a status that is no success is to be one of curl's.
		script := programs.Replace(strings.ReplaceAll(example[1], "http://127.0.0.1:8591", s.HTTP))
		c := exec.CommandContext(inTime(t), "bash", "-o", "pipefail", "-c", script)
		c.Dir = ".."
		r := testbed.Run(t, c)
		for _, want := range wants[i] {
			if r.Code != 0 || !strings.Contains(r.Stdout, want) {
				t.Errorf("%s: exit %d, without %s: %s%s", example[1], r.Code, want, r.Stdout, r.Stderr)
			}
		}
		if strings.Contains(r.Stdout, `{"error"`) {
			t.Errorf("%s: %s", example[1], r.Stdout)
		}
	}
}
