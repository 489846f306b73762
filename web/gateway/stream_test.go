package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// lineStream is a client's stream over HTTP.
type lineStream struct {
	t        *testing.T
	up       *io.PipeWriter
	response *http.Response
	answers  *bufio.Reader
	cancel   context.CancelFunc
}

// open begins a stream and sends its first line: answers begin after it.
func (h *harness) open(t *testing.T, client *http.Client, first string) *lineStream {
	t.Helper()
	body, up := io.Pipe()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/stream", body)
	ok(t, err)
	r.Header.Set("Content-Type", "application/x-ndjson")
	s := &lineStream{t: t, up: up, cancel: cancel}
	t.Cleanup(func() { up.CloseWithError(io.ErrClosedPipe) })
	go func() { _, _ = io.WriteString(up, first+"\n") }() // fails only with the request, which says so
	if s.response, err = client.Do(r); err != nil {       //nolint:bodyclose // it is, by Cleanup
		t.Fatal(err)
	}
	t.Cleanup(func() { s.response.Body.Close() })
	s.answers = bufio.NewReader(s.response.Body)
	return s
}

func (s *lineStream) send(text string) {
	s.t.Helper()
	write(s.t, s.up, text+"\n")
}

func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	ok(t, err)
}

// receive returns the next line, an answer or an error. It returns neither at the end.
func (s *lineStream) receive() (*ckdv1.DecomposeStreamResponse, *rpcstatus.Status) {
	s.t.Helper()
	line, err := s.answers.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 || err != io.EOF {
			s.t.Fatalf("%v after %q", err, line)
		}
		return nil, nil
	}
	var both struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(line, &both); err != nil {
		s.t.Fatalf("%v: %s", err, line)
	}
	if both.Error != nil {
		var st rpcstatus.Status
		fromJSON(s.t, string(both.Error), &st)
		return nil, &st
	}
	var m ckdv1.DecomposeStreamResponse
	fromJSON(s.t, string(both.Result), &m)
	return &m, nil
}

func (s *lineStream) answer() *ckdv1.DecomposeStreamResponse {
	s.t.Helper()
	m, st := s.receive()
	if m == nil {
		s.t.Fatalf("no answer, but %v", st)
	}
	return m
}

// fails reads up to the error that ends the stream.
func (s *lineStream) fails(code codes.Code, fragment string) {
	s.t.Helper()
	for {
		m, st := s.receive()
		if m != nil {
			for _, r := range m.GetResults() {
				s.t.Errorf("a result before the error: %v", r)
			}
			continue
		}
		if st == nil || codes.Code(st.GetCode()) != code || !strings.Contains(st.GetMessage(), fragment) {
			s.t.Errorf("the stream ends with %v, want %v with %q", st, code, fragment)
		}
		return
	}
}

const header = `{"header":{"model":"fetal-health","detail":"DETAIL_VECTORS"}}`

// block returns one pass of some inputs as a line.
func block(t testing.TB, group, pass, inputs int) string {
	t.Helper()
	p := recording(t)
	b := &ckdv1.Block{Group: uint64(group), Values: p.Float32[p.Offset(pass, 0) : p.Offset(pass, 0)+inputs*p.K]}
	if pass == 0 {
		for i := range inputs {
			b.InputIds = append(b.InputIds, fmt.Sprintf("%d/%d", group, i))
		}
	}
	return toJSON(t, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
}

// connect returns a connection for requests that no HTTP client would send.
func connect(t *testing.T, url string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	ok(t, err)
	t.Cleanup(func() { c.Close() })
	ok(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c.(*net.TCPConn)
}

// clients returns clients for each version of HTTP.
func clients(t *testing.T) map[string]*http.Client {
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	all := map[string]*http.Client{
		"HTTP/1.1": {Transport: &http.Transport{}},
		"HTTP/2.0": {Transport: &http.Transport{Protocols: two}},
	}
	for _, c := range all {
		t.Cleanup(c.CloseIdleConnections)
	}
	return all
}

// TestStream checks that each of many groups is answered as over gRPC while the body is still being
// sent.
func TestStream(t *testing.T) {
	t.Parallel()
	const groups, inputs, passes = 12, 5, 30
	for version, client := range clients(t) {
		t.Run(version, func(t *testing.T) {
			h := newHarness(t, server.DefaultLimits(), Options{})
			want, err := h.grpc.Decompose(t.Context(), request(t, inputs, ckdv1.Detail_DETAIL_VECTORS))
			ok(t, err)
			s := h.open(t, client, header)
			if s.response.Proto != version || s.response.StatusCode != http.StatusOK || s.response.Header.Get("Content-Type") != lineMedia {
				t.Fatalf("%s %s, %s", s.response.Proto, s.response.Status, s.response.Header)
			}
			if info := s.answer().GetInfo(); len(info.GetClasses()) != 3 {
				t.Errorf("info is %v", info)
			}
			for group := range groups {
				for pass := range passes {
					s.send(block(t, group, pass, inputs))
					if pass == 3 {
						s.send("  \r") // a blank line is none
					}
				}
				// The answer comes before the client sends anything else.
				results := s.answer().GetResults()
				if len(results) != inputs {
					t.Fatalf("group %d: %d results", group, len(results))
				}
				for i, r := range results {
					if r.GetInputId() != fmt.Sprintf("%d/%d", group, i) || !proto.Equal(r.GetDecomposition(), want.GetResults()[i].GetDecomposition()) {
						t.Errorf("group %d, input %d: got %v, want %v", group, i, r, want.GetResults()[i])
					}
				}
			}
			for pass := range 7 { // enough to be finished by the half-close
				s.send(block(t, groups, pass, 2))
			}
			write(t, s.up, strings.TrimSpace(block(t, groups, 7, 2))) // the last line needs no end
			ok(t, s.up.Close())
			left := s.answer()
			if len(left.GetResults()) != 2 || left.GetResults()[0].GetDecomposition().GetPasses() != 8 {
				t.Errorf("after the half-close: %v", left)
			}
			if m, st := s.receive(); m != nil || st != nil {
				t.Errorf("at the end: %v, %v", m, st)
			}
			h.eventually(t, "all are counted", func() bool { return h.metric(t, "ckd_decisions_total") == groups*inputs+2+inputs })
		})
	}
}

// TestStreamFaults checks that a fault of a line or of the body ends the stream with an error, and
// that open inputs are then not decided: only a body that ends well is half-closed.
func TestStreamFaults(t *testing.T) {
	t.Parallel()
	limits := server.DefaultLimits()
	limits.MessageBytes = 4096
	for version, client := range clients(t) {
		for name, c := range map[string]struct {
			line     string
			code     codes.Code
			fragment string
		}{
			"unknown field": {`{"block":{"group":"1","valus":[1]}}`, codes.InvalidArgument, `line 10, column 23: unknown field "valus"`},
			"no JSON":       {`{"block":`, codes.InvalidArgument, "line 10: unexpected EOF"},
			"two texts":     {`{}{}`, codes.InvalidArgument, "line 10, column 3: "},
			"long line":     {`{"block":{"values_le":"` + strings.Repeat("A", 30000), codes.ResourceExhausted, "line 10 is over the limit of 24576 bytes"},
			"large message": {`{"block":{"values_le":"` + strings.Repeat("A", 6668) + `"}}`, codes.ResourceExhausted, "line 10 is a message of 5007 bytes, over max-message-bytes, 4096"},
			"slow line":     {"slow", codes.DeadlineExceeded, "too slow"},
			"broken off":    {"broken", codes.Canceled, ""},
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				var o Options
				if c.line == "slow" {
					o.ReadTimeout = 300 * time.Millisecond
				}
				h := newHarness(t, limits, o)
				s := h.open(t, client, header)
				s.answer()
				for pass := range 8 { // the policy would decide on four
					s.send(block(t, 0, pass, 3))
				}
				h.eventually(t, "the inputs are open", func() bool {
					return h.metric(t, "ckd_inputs_open") == 3
				})
				switch c.line {
				case "slow":
					time.Sleep(400 * time.Millisecond) // between lines there is time
					write(t, s.up, `{"block":`)
					s.fails(c.code, c.fragment)
				case "broken":
					s.cancel()
					s.response.Body.Close() // Go's client of HTTP/2 does not look at the context while it sends
				default:
					s.send(c.line)
					s.fails(c.code, c.fragment)
				}
				h.eventually(t, "what was open is given up", func() bool {
					return h.server.Idle() && h.metric(t, "ckd_inputs_abandoned_total") == 3
				})
				if n := h.metric(t, "ckd_decisions_total"); n != 0 {
					t.Errorf("%v inputs were decided", n)
				}
			})
		}
	}
}

// TestStreamRefused checks that an error before the first answer has its own HTTP status, and comes
// while the body is open.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	limits := server.DefaultLimits()
	limits.MessageBytes = 4096
	for version, client := range clients(t) {
		for name, c := range map[string]struct {
			line   string
			status int
			code   codes.Code
		}{
			"unknown model": {`{"header":{"model":"nobody"}}`, http.StatusNotFound, codes.NotFound},
			"no header":     {`{"block":{}}`, http.StatusBadRequest, codes.InvalidArgument},
			"no JSON":       {`nonsense`, http.StatusBadRequest, codes.InvalidArgument},
			"large message": {`{"header":{"model":"` + strings.Repeat("m", 4096) + `"}}`, http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				h := newHarness(t, limits, Options{})
				s := h.open(t, client, c.line)
				if s.response.StatusCode != c.status {
					t.Errorf("%s, want %d", s.response.Status, c.status)
				}
				s.fails(c.code, "")
			})
		}
	}
}

// TestStreamWithdrawn checks that a stream says that access was withdrawn, whatever its client had
// sent, and decides nothing.
func TestStreamWithdrawn(t *testing.T) {
	t.Parallel()
	for version, client := range clients(t) {
		for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
			t.Run(version+"/"+code.String(), func(t *testing.T) {
				h := newHarness(t, server.DefaultLimits(), Options{})
				s := h.open(t, client, header)
				s.answer()
				for pass := range 8 {
					s.send(block(t, 0, pass, 3))
				}
				write(t, s.up, `{"block":`)
				(*h.withdraw.Load())(status.Error(code, "withdrawn"))
				s.fails(code, "withdrawn")
				h.eventually(t, "what was open is given up", h.server.Idle)
				if n := h.metric(t, "ckd_decisions_total"); n != 0 {
					t.Errorf("%v inputs were decided", n)
				}
			})
		}
	}
}

// TestQuietStream checks that a stream may pause before its first line, and between lines, for
// longer than a body may.
func TestQuietStream(t *testing.T) {
	t.Parallel()
	const wait = 200 * time.Millisecond
	for version, client := range clients(t) {
		t.Run(version, func(t *testing.T) {
			h := newHarness(t, server.DefaultLimits(), Options{ReadTimeout: wait})
			body, up := io.Pipe()
			parts := []string{header + "\n", block(t, 0, 0, 3) + "\n", ""}
			for pass := range 7 {
				parts[2] += block(t, 0, pass+1, 3) + "\n"
			}
			go func() {
				for _, part := range parts {
					time.Sleep(2 * wait)
					_, _ = io.WriteString(up, part) // fails only with the request
				}
				_ = up.Close()
			}()
			response, err := client.Post(h.url+"/v1/stream", lineMedia, body)
			ok(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusOK || strings.Count(string(text), `"input_id"`) != 3 || bytes.Contains(text, []byte(`"error"`)) {
				t.Errorf("%v: %s %s", err, response.Status, text)
			}
		})
	}
}

// TestStreamEmpty checks that a stream without lines is not an error.
func TestStreamEmpty(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), Options{})
	if response, text := h.post(t, "/v1/stream", "\n\n"); response.StatusCode != http.StatusOK || text != "" {
		t.Errorf("%s %q", response.Status, text)
	}
}

// TestOneRequest checks that bytes sent after the end of a stream are never taken for a request.
func TestOneRequest(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), Options{})
	c := connect(t, h.url)
	fmt.Fprint(c, "POST /v1/stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nnonsense\n\r\n")
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, " 400 ") {
		t.Fatalf("%v: %s", err, line)
	}
	time.Sleep(2 * lingerTime)
	fmt.Fprint(c, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n") // fails if the connection is closed, as it should be
	if text, _ := io.ReadAll(answers); bytes.Contains(text, []byte("HTTP/1.1")) {
		t.Errorf("another answer: %s", text)
	}
}

// slow is a server that answers late, unless the call ends before.
type slow struct{ grpc.ClientConnInterface }

func (slow) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(400 * time.Millisecond):
		return nil
	}
}

// TestSlowAnswer checks that the time for a body does not limit the answer.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	for version, client := range clients(t) {
		web := httptest.NewUnstartedServer(nil)
		web.Config = newServer(New(slow{}, Options{ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond}), nil, 100*time.Millisecond)
		web.Start()
		t.Cleanup(func() {
			client.CloseIdleConnections()
			web.Close()
		})
		for _, c := range []struct{ method, path, body string }{
			{http.MethodGet, "/v1/models", ""},
			{http.MethodGet, "/v1/models", "unread"},
			{http.MethodPost, "/v1/models/m:decompose", `{"inputs":1}`},
			{http.MethodPost, "/v2/models/m/infer", `{"inputs":[]}`},
		} {
			t.Run(fmt.Sprintf("%s %s %s with %d bytes", version, c.method, c.path, len(c.body)), func(t *testing.T) {
				t.Parallel()
				r, err := http.NewRequest(c.method, web.URL+c.path, strings.NewReader(c.body))
				ok(t, err)
				response, err := client.Do(r)
				ok(t, err)
				if response.Body.Close(); response.StatusCode != http.StatusOK {
					t.Error(response.Status)
				}
			})
		}
	}
}

// TestDrain checks that a stopping daemon ends streams whose clients are silent.
func TestDrain(t *testing.T) {
	t.Parallel()
	for version, client := range clients(t) {
		t.Run(version, func(t *testing.T) {
			h := newHarness(t, server.DefaultLimits(), Options{})
			s := h.open(t, client, header)
			s.answer()
			h.server.Drain()
			s.fails(codes.Unavailable, "stopping")
		})
	}
}

// TestUnread checks that the daemon drops a client that sends and never reads, and that such a
// client holds little memory.
func TestUnread(t *testing.T) {
	t.Parallel()
	limits := server.DefaultLimits()
	limits.SendStall = time.Hour // the gateway is on its own
	options := Options{WriteTimeout: 300 * time.Millisecond, ReadTimeout: time.Minute}
	t.Run("HTTP/1.1", func(t *testing.T) {
		h := newHarness(t, limits, options)
		c := connect(t, h.url)
		send := func(line string) error {
			_, err := fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(line)+1, line)
			return err
		}
		fmt.Fprint(c, "POST /v1/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
		ok(t, send(fullHeader))
		flood(t, send)
		h.eventually(t, "the stream is over", h.server.Idle)
	})
	t.Run("HTTP/2.0", func(t *testing.T) { // streams share a connection
		h := newHarness(t, limits, options)
		client := clients(t)["HTTP/2.0"]
		s := h.open(t, client, fullHeader)
		flood(t, func(line string) error {
			_, err := io.WriteString(s.up, line+"\n")
			return err
		})
		h.eventually(t, "the stream is over", h.server.Idle)
		response, err := client.Get(h.url + "/v1/models")
		ok(t, err)
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("the connection's other requests: %s", response.Status)
		}
	})
}

var fullHeader = strings.Replace(header, "VECTORS", "FULL", 1)

// flood sends blocks of few values with large answers, until that fails.
func flood(t *testing.T, send func(line string) error) {
	t.Helper()
	p := recording(t)
	rows := &ckdv1.Block{InputIds: make([]string, 50), Passes: 4, Final: true}
	for s := range 4 {
		rows.Values = append(rows.Values, p.Float32[p.Offset(s, 0):p.Offset(s, 0)+50*p.K]...)
	}
	line := toJSON(t, &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: rows}})
	for i := range 100_000 {
		if send(strings.Replace(line, `"block":{`, fmt.Sprintf(`"block":{"group":"%d",`, i), 1)) != nil {
			return
		}
	}
	t.Fatal("nothing stops a client that does not read")
}

// TestSlowBody checks that a body which stalls is given up, and that a body which never comes
// delays nothing.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		path    string
		sent    string
	}{
		"no part":              {Options{ReadTimeout: 200 * time.Millisecond}, "/v1/models/fetal-health:decompose", ""},
		"a part":               {Options{ReadTimeout: 200 * time.Millisecond}, "/v1/models/fetal-health:decompose", `{"layout":`},
		"not whole":            {Options{BodyTimeout: 200 * time.Millisecond}, "/v1/models/fetal-health:decompose", `{"layout":`},
		"not whole, inference": {Options{BodyTimeout: 200 * time.Millisecond}, "/v2/models/fetal-health/infer", `{"inputs":`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, server.DefaultLimits(), c.options)
			conn := connect(t, h.url)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n%s", c.path, c.sent)
			text, err := io.ReadAll(conn) // up to the end: the connection is closed
			if err != nil || !bytes.HasPrefix(text, []byte("HTTP/1.1 408 ")) || !bytes.Contains(text, []byte("too slow")) {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

// TestWithheldBody checks that a request refused before its body is answered, and that its
// connection ends although the body never comes.
func TestWithheldBody(t *testing.T) {
	t.Parallel()
	handler := New(slow{}, Options{})
	web := httptest.NewUnstartedServer(nil)
	web.Config = newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			answerError(w, r, status.Error(codes.Unauthenticated, "who?"))
			return
		}
		handler.ServeHTTP(w, r)
	}), nil, 200*time.Millisecond)
	web.Start()
	defer web.Close()
	var clients sync.WaitGroup
	defer clients.Wait()
	for request, code := range map[string]int{
		"POST /v2/models/x/infer HTTP/1.1\r\n":                                          401,
		"POST /v1/nothing HTTP/1.1\r\nAuthorization: x\r\n":                             404,
		"POST /v2/nothing HTTP/1.1\r\nAuthorization: x\r\n":                             404,
		"PUT /v2/models/x/infer HTTP/1.1\r\nAuthorization: x\r\n":                       405,
		"POST /v1/models HTTP/1.1\r\nAuthorization: x\r\n":                              405,
		"POST /v2/models/x/infer HTTP/1.1\r\nAuthorization: x\r\nContent-Type: a/b\r\n": 415,
		"POST /v1/stream HTTP/1.1\r\nAuthorization: x\r\nContent-Type: a/b\r\n":         415,
	} {
		for _, length := range []string{"Content-Length: 100", "Transfer-Encoding: chunked", "Content-Length: 100\r\nConnection: close"} {
			c := connect(t, web.URL)
			clients.Go(func() {
				fmt.Fprintf(c, "%sHost: localhost\r\n%s\r\n\r\n", request, length)
				text, err := io.ReadAll(c)
				if err != nil || !bytes.HasPrefix(text, fmt.Appendf(nil, "HTTP/1.1 %d ", code)) || !bytes.HasSuffix(text, []byte("}\n")) {
					t.Errorf("%s%s: %v: %s", request, length, err, text)
				}
			})
		}
	}
}

// TestEndedBody checks that no deadline is set after the end of a body: it would limit the answer.
func TestEndedBody(t *testing.T) {
	t.Parallel()
	b := bodyOf(wholeText(strings.Repeat(" ", 2*chunkBytes)))
	if n, err := b.Read(make([]byte, 4*chunkBytes)); n != 2*chunkBytes || !errors.Is(err, io.EOF) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	before := b.deadline
	if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || b.since != 2*chunkBytes || b.deadline != before {
		t.Errorf("%d bytes more, %v, a deadline %v after %v", n, err, b.deadline, before)
	}
}

// TestStrayDeadline checks that a deadline which nobody set for the body does not count as its end:
// the server would decide open inputs.
func TestStrayDeadline(t *testing.T) {
	t.Parallel()
	b := bodyOf(iotest.ErrReader(os.ErrDeadlineExceeded))
	b.quiet = true
	if _, err := b.Read(make([]byte, 1)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

// bodyOf returns a body without a connection.
func bodyOf(from io.Reader) *body {
	return newCall(New(slow{}, Options{}).(*gateway), httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", from)).body
}

// wholeText is a text that one read returns together with io.EOF.
type wholeText string

// Read implements io.Reader.
func (w wholeText) Read(p []byte) (int, error) { return copy(p, w), io.EOF }

// TestLines checks that the budget counts a line while it is used, and that a long line keeps no
// memory.
func TestLines(t *testing.T) {
	t.Parallel()
	long, short := strings.Repeat("x", 2<<20)+"\n", strings.Repeat("y", 99)+"\n"
	text := long + short + "\n \n" + short + "z"
	b := bodyOf(&broken{strings.NewReader(text), len(long) + 2})
	held := &b.call.gateway.bodies.held
	l := lines{from: b}
	for i, want := range []string{long, short, short, "z"} {
		line, err := l.next()
		if err != nil || string(line) != strings.TrimSpace(want) {
			t.Fatalf("line %d: %v, %d bytes", i, err, len(line))
		}
		if after := len(l.buffer) - l.start; int(held.Load()) != len(want)+after {
			t.Errorf("line %d: %d bytes are held, for a line of %d and %d after it", i, held.Load(), len(want), after)
		}
		if i > 0 && cap(l.buffer) > keptLineBytes {
			t.Errorf("line %d: the buffer has %d bytes", i, cap(l.buffer))
		}
	}
	if _, err := l.next(); !errors.Is(err, io.EOF) || l.number != 6 || held.Load() != 0 {
		t.Errorf("at the end: %v after line %d, %d bytes are held", err, l.number, held.Load())
	}
}

// broken is a text whose reads end at a given place.
type broken struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (b *broken) Read(p []byte) (int, error) {
	if b.left > 0 {
		p = p[:min(len(p), b.left)]
	}
	n, err := b.from.Read(p)
	b.left -= n
	return n, err
}

// TestShortBody checks that a body shorter than its stated length is refused.
func TestShortBody(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), Options{})
	c := connect(t, h.url)
	fmt.Fprintf(c, "POST /v1/models/fetal-health:decompose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{}")
	ok(t, c.CloseWrite())
	if text, _ := io.ReadAll(c); !bytes.HasPrefix(text, []byte("HTTP/1.1 400 ")) || !bytes.Contains(text, []byte("breaks off")) {
		t.Errorf("got %s", text)
	}
}

// TestBudget checks that bodies share the budget and return what they held.
func TestBudget(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), Options{BodyBytes: 100_000})
	body, up := io.Pipe()
	first := make(chan int, 1)
	go func() {
		r, err := http.NewRequest(http.MethodPost, h.url+"/v1/models/fetal-health:decompose", body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := h.http.Do(r)
		if err != nil {
			t.Error(err)
			first <- 0
			return
		}
		response.Body.Close()
		first <- response.StatusCode
	}()
	write(t, up, strings.Repeat(" ", 90_000))
	h.eventually(t, "the first body is held", func() bool { return h.gateway.bodies.held.Load() == 90_000 })
	good := toJSON(t, request(t, 20, 0))
	response, text := h.post(t, "/v1/models/fetal-health:decompose", good)
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || !strings.Contains(text, "budget of 100000 bytes") {
		t.Errorf("%s, retry after %q: %s", response.Status, response.Header.Get("Retry-After"), text)
	}
	write(t, up, good[:8000])
	ok(t, up.Close())
	if code := <-first; code != http.StatusBadRequest {
		t.Errorf("the first is answered with %d", code)
	}
	if response, text := h.post(t, "/v1/models/fetal-health:decompose", good); response.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s %s", response.Status, text)
	}
}

// TestKeepAlive checks that the read deadline of one request affects neither the next request nor a
// slow answer.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	h := newHarness(t, server.DefaultLimits(), Options{ReadTimeout: 300 * time.Millisecond, WriteTimeout: 300 * time.Millisecond})
	good := toJSON(t, request(t, 1, 0))
	for range 2 {
		if response, text := h.post(t, "/v1/models/fetal-health:decompose", good); response.StatusCode != http.StatusOK {
			t.Errorf("%s %s", response.Status, text)
		}
		time.Sleep(350 * time.Millisecond)
	}
}

// TestPipe checks that both ends of a connection inside the process are marked, and end with their
// listener.
func TestPipe(t *testing.T) {
	t.Parallel()
	pipe := Pipe()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := pipe.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	near, err := inProcess(pipe.DialContext(t.Context()))
	ok(t, err)
	far := <-accepted
	for _, c := range []net.Conn{near, far} {
		if _, ok := c.(interface{ InProcess() }); !ok {
			t.Errorf("%T does not say that it is in the process", c)
		}
		if a := c.RemoteAddr(); a.Network() != "pipe" || a.String() != "in-process" {
			t.Errorf("the address is %v", a)
		}
	}
	ok(t, pipe.Close())
	if _, err := pipe.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
	if _, err := pipe.DialContext(t.Context()); err == nil {
		t.Error("a closed listener is dialled")
	}
	near.Close()
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its end")
	}
	far.Close()
}
