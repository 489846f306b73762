package integration_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
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

// TestCurl runs the commands of docs/http.md.
func TestCurl(t *testing.T) {
	programs := strings.NewReplacer("curl ", testbed.Program(t, "curl", "CURL")+" --fail-with-body -sS ")
	t.Parallel()
	s := serveSite(t, "--policy", "../deploy/policy/fetal-health.yaml")
	text := readPage(t, "http.md")
	wants := [][]string{
		{`"input_id":"ctg-1"`, `"action":"ACTION_`, `"passes":30`, `"c":[`}, {`"fetal-health"`},
		{`"decision"`, `"c"`},
	}
	examples := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(examples) != len(wants) {
		t.Fatalf("docs/http.md shows %d commands", len(examples))
	}
	for i, example := range examples {
		// The addresses are this daemon's.
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
