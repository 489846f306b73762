package integration_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/timed"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestMutualTLS connects over gRPC and HTTP with good and bad certificates. TLS must refuse the bad
// ones. With admin-tls the admin address speaks TLS too, and asks probes for no certificate.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	s := serveSite(t, append(v.mutual(v.servers.Issue(t)), "--admin-tls")...)
	anybody, https := trusting(v.servers), strings.TrimPrefix(s.HTTP, "https://")
	good := trusting(v.servers, v.clients.Client(t, "CN=somebody").TLS(t))
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"no certificate": {anybody, "certificate required"},
		"of another CA":  {trusting(v.servers, v.servers.Client(t, "CN=somebody").TLS(t)), "unknown certificate authority"},
		"TLS 1.2":        {upTo(tls.VersionTLS12, good), "protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for address, protocol := range map[string]string{s.GRPC[0]: "h2", https: "http/1.1"} {
				if err := refusal(address, c.config, protocol); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %q", protocol, err, c.want)
				}
			}
			if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], c.config)); status.Code(err) != codes.Unavailable {
				t.Errorf("gRPC: %v, %v", names, err)
			}
			for version := 1; version <= 2; version++ {
				if r, err := ask(inTime(t), secured(t, c.config, version), http.MethodGet, s.HTTP+"/v1/models", ""); err == nil {
					t.Errorf("HTTP/%d: %d %s", version, r.code, r.body)
				}
			}
		})
	}
	if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], nil)); status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC in plaintext: %v", err)
	}
	for _, url := range []string{s.HTTP + "/v1/models", s.Admin + "/readyz", s.Admin + "/metrics"} {
		if r, err := ask(inTime(t), overHTTP1(t), http.MethodGet, inPlaintext(url), ""); err == nil && r.code != http.StatusBadRequest {
			t.Errorf("%s in plaintext: %d %s", url, r.code, r.body)
		}
	}

	if state, err := shake(s.GRPC[0], good, "h2"); err != nil || state.Version != tls.VersionTLS13 {
		t.Errorf("a good client: %v, version %x", err, state.Version)
	}
	if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], good)); err != nil || len(names) != 1 {
		t.Errorf("a good client: gRPC: %v, %v", names, err)
	}
	for version := 1; version <= 2; version++ {
		r, err := ask(inTime(t), secured(t, good, version), http.MethodGet, s.HTTP+"/v1/models", "")
		if err != nil || r.code != http.StatusOK || !strings.Contains(r.body, "fetal-health") {
			t.Errorf("a good client: HTTP/%d: %v, %v", version, r, err)
		}
	}
	for _, path := range []string{"/readyz", "/metrics"} {
		if r, err := ask(inTime(t), secured(t, anybody, 1), http.MethodGet, s.Admin+path, ""); err != nil || r.code != http.StatusOK {
			t.Errorf("%s: %v, %v", path, r, err)
		}
	}
}

// TestCertificateExpires lets a certificate expire while the daemon runs. The daemon warns of it,
// open streams go on, clients refuse new connections, and a new certificate recovers.
func TestCertificateExpires(t *testing.T) {
	timed.Long(t)
	v := newVault(t)
	end := time.Now().Add(6 * time.Second).Truncate(time.Second)
	brief := v.servers.Issue(t, certtest.Valid(time.Now().Add(-time.Hour), end))
	s := serveSite(t, v.tls(brief)...)
	s.says("the server's certificate expires within a day")
	config, https := trusting(v.servers), strings.TrimPrefix(s.HTTP, "https://")
	if _, err := shake(https, config, "http/1.1"); err != nil {
		t.Errorf("before its end: %v", err)
	}
	stream, err := openStream(inTime(t), dialTLS(t, s.GRPC[0], config))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "clients refuse it", func() bool {
		_, err := shake(https, config, "http/1.1")
		return err != nil && strings.Contains(err.Error(), "certificate has expired")
	})
	if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config)); status.Code(err) != codes.Unavailable {
		t.Errorf("after its end: %v", err)
	}
	if err := stream.Send(block(1, 3, 5, true)); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || len(m.GetResults()) != 3 {
		t.Errorf("a stream that is open: %v, %v", m, err)
	}
	s.signal(syscall.SIGHUP) // otherwise it would say so within a minute
	s.says("the server's certificate has expired at")

	renewed := v.servers.Issue(t)
	v.tls(renewed)
	eventually(t, "the renewed one is taken", func() bool {
		_, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config))
		return err == nil && s.gauge("ckd_certificate_not_after_timestamp_seconds") == float64(renewed.Cert.NotAfter.Unix())
	})
	v.checkSecrets(s)
}

// TestRevokedWhileConnected revokes the certificate of a connected client. Its streams and
// connections must end, its open inputs undecided, while another client goes on.
func TestRevokedWhileConnected(t *testing.T) {
	t.Parallel()
	for name, identities := range map[string]string{
		"with identities": "identities:\n" +
			"  - {name: ann, certificates: [\"spiffe://cluster/ann\"], models: [fetal-health]}\n" +
			"  - {name: ben, certificates: [ben.cluster.svc], models: [fetal-health]}\n",
		"without": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t)
			ann, ben := v.clients.Client(t, "spiffe://cluster/ann"), v.clients.Client(t, "ben.cluster.svc")
			v.keep(ann)
			v.keep(ben)
			list := v.put("crl.pem", v.clients.Revoke(t, time.Now().Add(time.Hour)))
			args := append(v.mutual(v.servers.Issue(t)), "--tls-crl", list, "--log-level", "debug")
			if identities != "" {
				args = append(args, "--access", v.put("access.yaml", []byte(identities)))
			}
			s := serveSite(t, args...)
			secure := func(own certtest.Pair) (*tls.Config, *guest) {
				c := trusting(v.servers, own.TLS(t))
				return c, arrive(t, dialTLS(t, s.GRPC[0], c), s.HTTP, "", secured(t, c, 1), secured(t, c, 2))
			}
			config, revoked := secure(ann)
			_, other := secure(ben)
			idle := map[int]*http.Client{1: secured(t, config, 1), 2: secured(t, config, 2)}
			for _, h := range idle {
				if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err != nil || r.code != http.StatusOK {
					t.Fatalf("%v, %v", r, err)
				}
			}
			eventually(t, "inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 2*3*guestInputs })
			v.put("crl.pem", v.clients.Revoke(t, time.Now().Add(time.Hour), ann.Cert))

			errs := revoked.receive()
			for i, err := range errs {
				if code := status.Code(err); err == nil || i == 0 && code != codes.Unavailable && code != codes.Unauthenticated {
					t.Errorf("the streams end with %v", errs)
				}
			}
			if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config)); status.Code(err) != codes.Unavailable {
				t.Errorf("a new connection: %v", err)
			}
			if err := refusal(strings.TrimPrefix(s.HTTP, "https://"), config, "http/1.1"); err == nil {
				t.Error("a new connection over HTTP is taken")
			}
			for version, h := range idle {
				if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err == nil && r.code != http.StatusUnauthorized {
					t.Errorf("HTTP/%d goes on: %d %s", version, r.code, r.body)
				}
			}
			eventually(t, "its inputs are given up", func() bool { return s.gauge("ckd_inputs_open") == 3*guestInputs })
			if got := s.gauge("ckd_decisions_total"); got != 0 {
				t.Errorf("%v inputs are decided", got)
			}
			other.send(t, further(1, guestInputs, true))
			for _, err := range other.receive() {
				if err != nil {
					t.Errorf("another's stream: %v", err)
				}
			}
			v.checkSecrets(s)
		})
	}
}
