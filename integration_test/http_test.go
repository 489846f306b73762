package integration_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestSlowClients waits for half a minute. A body that does not come is refused with 408, silent
// connections are closed, and other clients are answered all the while.
func TestSlowClients(t *testing.T) {
	timed.Long(t)
	v := newVault(t)
	s, secure := serveSite(t), serveSite(t, v.tls(v.servers.Issue(t))...)
	var clients sync.WaitGroup
	defer clients.Wait()
	const body = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"inputs\": "
	for name, c := range map[string]struct{ address, sends, want string }{
		"a body of /v1":        {s.HTTP, fmt.Sprintf(body, "/v1/models/fetal-health:decompose"), "HTTP/1.1 408 "},
		"a body of /v2":        {s.HTTP, fmt.Sprintf(body, "/v2/models/fetal-health/infer"), "HTTP/1.1 408 "},
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
			_ = conn.SetReadDeadline(time.Now().Add(hang)) // TCP connections take deadlines
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
