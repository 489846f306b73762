package integration_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestCertificateRotation replaces the certificate again and again under load, as Kubernetes updates
// a Secret. No call may fail, on open streams or on new connections. New handshakes must show the
// new certificate, and the metric must follow. An expired certificate must change nothing.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	secret := testbed.Kubelet{Dir: t.TempDir()}
	replace := func(p certtest.Pair) {
		t.Helper()
		v.keep(p)
		secret.MustWrite(t, map[string]string{"tls.crt": string(p.CertPEM), "tls.key": string(p.KeyPEM)})
	}
	issue := func(days int) certtest.Pair { // expiry differs, so that the metric tells them apart
		now := time.Now()
		return v.servers.Issue(t, certtest.Valid(now.AddDate(0, -1, 0), now.AddDate(0, 0, days)))
	}
	replace(issue(30))
	s := serveSite(t, "--tls-cert", secret.Path("tls.crt"), "--tls-key", secret.Path("tls.key"),
		"--tls-client-ca", v.put("clients.crt", v.clients.PEM), "--log-level", "debug")
	own := v.clients.Client(t, "CN=somebody")
	v.keep(own)
	config := trusting(v.servers, own.TLS(t))

	const rotations = 4
	stopLoad := loadDuringRotation(t, s, v, own, rotations)
	defer stopLoad()
	for n := range rotations {
		next := issue(31 + n)
		replace(next)
		for address, protocol := range map[string]string{s.GRPC[0]: "h2", strings.TrimPrefix(s.HTTP, "https://"): "http/1.1"} {
			eventually(t, "new handshakes show the new certificate", func() bool {
				state, err := shake(address, config, protocol)
				if err != nil {
					t.Fatalf("a handshake: %v", err)
				}
				return state.PeerCertificates[0].Equal(next.Cert)
			})
		}
		eventually(t, "the metric follows", func() bool {
			return s.gauge("ckd_certificate_not_after_timestamp_seconds") == float64(next.Cert.NotAfter.Unix())
		})
	}
	replace(issue(-1))
	eventually(t, "the fault is counted", func() bool { return s.gauge("ckd_security_reloads_failed_total", "files", "certificates") > 0 })
	stopLoad()
	v.checkSecrets(s)
}

// loadDuringRotation keeps calling the daemon over one session and over new connections. The
// returned function stops that, and fails the test unless each kind has called often enough.
func loadDuringRotation(t *testing.T, s *daemon, v *vault, own certtest.Pair, atLeast int64) func() {
	t.Helper()
	ctx, config := inTime(t), trusting(v.servers, own.TLS(t))
	loading, cancel := context.WithCancel(ctx)
	var load sync.WaitGroup
	var calls [3]atomic.Int64
	again := func(kind int, call func()) {
		load.Go(func() {
			for loading.Err() == nil && !t.Failed() {
				call()
				calls[kind].Add(1)
			}
		})
	}
	stream := openSession(t, s, v, own)
	again(0, func() {
		values := block(0, 32, 1, false).GetBlock().GetValues()
		results, err := stream.Do(ctx, make([]string, 32), slices.Values([][]float32{values, values, values, values, values}))
		if err != nil || len(results) != 32 || results[31].Err != nil {
			t.Errorf("the session is dropped: %v", err)
		}
	})
	again(1, func() {
		conn := dialTLS(t, s.GRPC[0], config)
		if _, err := modelsOf(ctx, conn); err != nil {
			t.Errorf("a new connection: %v", err)
		}
		_ = conn.Close()
	})
	again(2, func() {
		c := secured(t, config, 1+int(calls[2].Load()%2))
		if r, err := ask(ctx, c, http.MethodGet, s.HTTP+"/v1/models", ""); err != nil || r.code != http.StatusOK {
			t.Errorf("a new connection over HTTP: %v, %v", r, err)
		}
		c.CloseIdleConnections()
	})
	return sync.OnceFunc(func() {
		cancel()
		load.Wait()
		if err := stream.Close(); err != nil {
			t.Errorf("the session ends with %v", err)
		}
		for kind := range calls {
			if n := calls[kind].Load(); n < atLeast {
				t.Errorf("%d calls of kind %d, want at least %d", n, kind, atLeast)
			}
		}
	})
}

// openSession opens a session that does not reconnect.
func openSession(t *testing.T, s *daemon, v *vault, own certtest.Pair) *client.Session {
	t.Helper()
	c, err := client.Dial(s.GRPC[0], client.WithTLS(client.TLSFiles{
		CA: v.put("servers.crt", v.servers.PEM), Cert: v.put("own.crt", own.CertPEM), Key: v.put("own.key", own.KeyPEM),
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	stream, err := c.Session(inTime(t), client.SessionConfig{Model: "fetal-health", Reconnect: client.Reconnect{Disabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}
