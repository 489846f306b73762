package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// overHTTP1 and overHTTP2 return clients that speak one version of HTTP in plaintext, over
// connections of their own.
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

// reply holds an answer over HTTP.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request with pairs of header and value, and reads the whole answer.
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

// mustAsk sends a request to the daemon's HTTP address, which must answer.
func (d *daemon) mustAsk(method, path, body string, headers ...string) reply {
	d.t.Helper()
	r, err := ask(inTime(d.t), http.DefaultClient, method, d.HTTP+path, body, headers...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// lineStream sends and receives a stream over HTTP, with one JSON message on each line.
type lineStream struct {
	body   *io.PipeWriter
	answer *http.Response
	lines  *bufio.Reader
}

// openLines opens a stream and reads the first reply. The context ends the whole stream.
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
	go func() { _, _ = io.WriteString(write, streamHeader+"\n") }() // the answer shows a failure
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

// receive returns the next message, or the error that ended the stream. A clean end is io.EOF.
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

// close abandons the stream at any point.
func (s *lineStream) close() {
	_ = s.body.CloseWithError(errors.New("let go"))
	_ = s.answer.Body.Close()
}
