package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/app"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestHTTPWhileStopping: while open inputs have their grace the daemon says over
// HTTP that it is alive and wants no traffic, and refuses calls as gRPC does.
func TestHTTPWhileStopping(t *testing.T) {
	c := settings(t, time.Minute)
	c.HTTP = "127.0.0.1:0"
	a, err := app.NewFixed(c, zap.NewNop(), policies(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stream, err := ckdv1.NewUncertaintyServiceClient(dial(t, a.Targets()[0])).DecomposeStream(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*ckdv1.DecomposeStreamRequest{
		{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "m"}}},
		{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{InputIds: []string{"a"}, Values: []float32{0.5, 0.5}}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		answer, err := http.Get(a.HTTPURL() + path)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, strings.TrimSpace(string(body))
	}
	if code, body := get("/v2/health/ready"); code != 200 || body != `{"ready":true}` {
		t.Errorf("before: %d %s", code, body)
	}
	stop()
	for deadline := time.Now().Add(time.Minute); a.Serving() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/v2/health/live":  {200, `{"live":true}`},
		"/v2/health/ready": {503, `{"ready":false}`},
		"/v2/models/m":     {503, "the daemon is stopping"},
		"/v1/models/m":     {503, `"reason":"DRAINING"`},
	} {
		if code, body := get(path); code != want.code || !strings.Contains(body, want.body) {
			t.Errorf("%s: %d %s, want %d %s", path, code, body, want.code, want.body)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestHTTPRefused: requests that are refused before they are calls are counted, the first is logged
// without the client's words; and one with two lengths is the last of its connection.
func TestHTTPRefused(t *testing.T) {
	c := settings(t, time.Minute)
	c.HTTP = "127.0.0.1:0"
	core, logs := observer.New(zap.WarnLevel)
	a, err := app.NewFixed(c, zap.New(core), policies(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r, err := http.NewRequest(http.MethodGet, a.HTTPURL()+"/v1/models/%ff", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Request-Id", "mine")
	for range 3 {
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("a path that is not UTF-8: %s", answer.Status)
		}
	}
	told := logs.FilterMessageSnippet("HTTP requests were refused").AllUntimed()
	if len(told) != 1 || told[0].Level != zap.WarnLevel || fmt.Sprint(told[0].ContextMap()) != "map[count:1 reason:400 request_id:mine]" {
		t.Errorf("the log has %v", told)
	}
	answer, err := http.Get(a.AdminURL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(text), `ckd_http_requests_refused_total{code="400"} 3`) {
		t.Errorf("it is not counted: %v", err)
	}

	for url, path := range map[string]string{a.HTTPURL(): "/v1/models", a.AdminURL(): "/readyz"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", path)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute)) // against hanging
		if text, err := io.ReadAll(conn); strings.Count(string(text), "HTTP/1.1 200 ") != 1 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v after %q", path, err, text)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestScrapedByName: a page may not make its name mean this machine to read the metrics; where the
// admin address is not loopback's alone, scrapes by the name of a service go on, also from a
// proxy on the same machine. Probes are answered in any case.
func TestScrapedByName(t *testing.T) {
	for admin, want := range map[string]int{"127.0.0.1:0": http.StatusForbidden, "0.0.0.0:0": http.StatusOK} {
		c := settings(t, time.Minute)
		c.Admin = admin
		a, err := app.NewFixed(c, zap.NewNop(), policies(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		_, port, err := net.SplitHostPort(strings.TrimPrefix(a.AdminURL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []struct {
			path, host string
			want       int
		}{
			{"/metrics", "ckd.serving.svc:9590", want}, {"/metrics", "localhost:9590", 200}, {"/metrics", "10.0.0.1", 200},
			{"/healthz", "ckd.serving.svc:9590", 200}, {"/readyz", "ckd.serving.svc", 200},
		} {
			request, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+r.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = r.host
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != r.want {
				t.Errorf("%s at %s as %s: %s, want %d", r.path, admin, r.host, answer.Status, r.want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestPageInPlaintext: nobody is asked for a token where it could be read on the way.
func TestPageInPlaintext(t *testing.T) {
	for admin, want := range map[string]int{"0.0.0.0:0": http.StatusForbidden, "127.0.0.1:0": http.StatusUnauthorized} {
		c := settings(t, time.Minute)
		c.Admin, c.Access = admin, filepath.Join(t.TempDir(), "access.yaml")
		if err := os.WriteFile(c.Access, []byte("identities: []"), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := app.NewFixed(c, zap.NewNop(), policies(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
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
			asked := len(answer.Header.Values("WWW-Authenticate")) > 1 // beside Bearer
			if asked != (answer.StatusCode == 401 && admin != "0.0.0.0:0") {
				t.Errorf("%s%s asks for a password: %v", admin, path, asked)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
