package daemon_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ckd-project/ckd/internal/config"
)

// TestConnections checks on real sockets that mute connections beyond a limit are closed as they come,
// over gRPC and HTTP together, that a client that is connected is served meanwhile, that the admin
// address answers, and that there is room again when they are gone.
func TestConnections(t *testing.T) {
	for limit, change := range map[string]func(*config.Config){
		"all":     func(c *config.Config) { c.MaxConnections = 8 },
		"address": func(c *config.Config) { c.MaxConnectionsPerAddress = 8 },
	} {
		t.Run(limit, func(t *testing.T) {
			d := start(t, withHTTP, change)
			health := healthv1.NewHealthClient(dial(t, d.Targets()[0]))
			if _, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			var mute []net.Conn
			for i := range 20 {
				at := []string{d.Targets()[0], strings.TrimPrefix(d.HTTPURL(), "http://")}[i%2]
				c, err := net.Dial("tcp", at)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				mute = append(mute, c)
			}
			refused := `ckd_refused_total{reason="` + limit + `",resource="connections"} 13` // of 20: one of 8 is the client's
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				_, text := request(t, http.MethodGet, d.AdminURL()+"/metrics", func(r *http.Request) { r.Header.Set("Cache-Control", "no-cache") })
				if strings.Contains(text, refused) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("not %s", refused)
				}
			}
			if _, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Errorf("a client that is connected: %v", err)
			}
			d.expectAlive()
			for _, c := range mute {
				c.Close()
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if code, _ := get(t, d.HTTPURL()+"/v2/health/live"); code == http.StatusOK {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("there is no room for another client")
				}
			}
		})
	}
}

// TestAdminConnections checks that probes are answered while others open connections to the admin address
// and say nothing, and that these are closed beyond a number.
func TestAdminConnections(t *testing.T) {
	d := start(t, withHTTP)
	admin := strings.TrimPrefix(d.AdminURL(), "http://")
	var closed atomic.Int64
	for range 200 {
		c, err := net.Dial("tcp", admin)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Read(make([]byte, 1)) // until the end
			closed.Add(1)
		}()
		d.expectAlive()
	}
	for deadline := time.Now().Add(time.Minute); closed.Load() < 200-64; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are closed", closed.Load())
		}
	}
}
