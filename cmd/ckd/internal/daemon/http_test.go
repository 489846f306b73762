package daemon_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/config"
)

// TestHTTPWhileStopping checks that the daemon answers over HTTP during the grace: it is alive,
// wants no traffic, and refuses calls as gRPC does.
func TestHTTPWhileStopping(t *testing.T) {
	a := start(t, grace(time.Minute), withHTTP)
	stream := openStream(t, a.Targets()[0])
	openInput(t, stream, 0.5, 0.5)
	if code, body := get(t, a.HTTPURL()+"/v2/health/ready"); code != 200 || strings.TrimSpace(body) != `{"ready":true}` {
		t.Errorf("before: %d %s", code, body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	a.untilDraining()
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/v2/health/live":  {200, `{"live":true}`},
		"/v2/health/ready": {503, `{"ready":false}`},
		"/v2/models/m":     {503, "the daemon is stopping"},
		"/v1/models/m":     {503, `"reason":"DRAINING"`},
	} {
		if code, body := get(t, a.HTTPURL()+path); code != want.code || !strings.Contains(body, want.body) {
			t.Errorf("%s: %d %s, want %d %s", path, code, body, want.code, want.body)
		}
	}
	err := stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestHTTPRefused checks that requests refused before they become calls are counted, and that the
// log has the first without the client's words.
func TestHTTPRefused(t *testing.T) {
	a := start(t, withHTTP)
	for range 3 {
		code, _ := request(t, http.MethodGet, a.HTTPURL()+"/v1/models/%ff", func(r *http.Request) { r.Header.Set("X-Request-Id", "mine") })
		if code != http.StatusBadRequest {
			t.Errorf("a path that is not UTF-8: %d", code)
		}
	}
	logged := a.logs.FilterMessageSnippet("HTTP requests were refused").AllUntimed()
	if len(logged) != 1 || logged[0].Level != zap.WarnLevel || fmt.Sprint(logged[0].ContextMap()) != "map[reason:400 request_id:mine]" {
		t.Errorf("the log has %v", logged)
	}
	if _, text := get(t, a.AdminURL()+"/metrics"); !strings.Contains(text, `ckd_refused_total{reason="400",resource="http"} 3`) {
		t.Error("it is not counted")
	}
}

// TestScrapedByName checks that a page cannot read the metrics of a loopback address by making its
// own name mean this machine. Any other admin address is scraped by names of services, also from a
// proxy on the same machine. Probes are always answered.
func TestScrapedByName(t *testing.T) {
	for admin, want := range map[string]int{"127.0.0.1:0": http.StatusForbidden, "0.0.0.0:0": http.StatusOK} {
		a := start(t, func(c *config.Config) { c.Admin = admin })
		_, port, err := net.SplitHostPort(strings.TrimPrefix(a.AdminURL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			path, host string
			want       int
		}{
			{"/metrics", "ckd.serving.svc:9590", want}, {"/metrics", "localhost:9590", 200}, {"/metrics", "10.0.0.1", 200},
			{"/healthz", "ckd.serving.svc:9590", 200}, {"/readyz", "ckd.serving.svc", 200},
		} {
			code, _ := request(t, http.MethodGet, "http://127.0.0.1:"+port+c.path, func(r *http.Request) { r.Host = c.host })
			if code != c.want {
				t.Errorf("%s at %s as %s: %d, want %d", c.path, admin, c.host, code, c.want)
			}
		}
	}
}

// TestPageInPlaintext checks that nobody is asked for a token that could be read on the way.
func TestPageInPlaintext(t *testing.T) {
	access := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(access, []byte("identities: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	for admin, want := range map[string]int{"0.0.0.0:0": http.StatusForbidden, "127.0.0.1:0": http.StatusUnauthorized} {
		a := start(t, func(c *config.Config) { c.Admin, c.Access = admin, access })
		for path, want := range map[string]int{
			"/": want, "/triage/state": want, "/triage/page.js": want, "/livez": 200, "/metrics": 200,
			"//": 401, "/triage": 401, "/x": 401,
		} {
			answer, err := http.Get(a.AdminURL() + path)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != want {
				t.Errorf("%s%s: %s, want %d", admin, path, answer.Status, want)
			}
			asked := len(answer.Header.Values("WWW-Authenticate")) > 1 // a second challenge beside Bearer asks for a password
			if asked != (answer.StatusCode == 401 && admin != "0.0.0.0:0") {
				t.Errorf("%s%s asks for a password: %v", admin, path, asked)
			}
		}
	}
}
