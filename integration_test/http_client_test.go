package integration_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// overHTTP1 returns a client that speaks HTTP/1.1, over connections of its own.
func overHTTP1(t *testing.T) *http.Client {
	transport := &http.Transport{}
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
