package integration_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestMutualTLS connects over gRPC and HTTP with a certificate, without one and in plaintext. With admin-tls the
// admin address speaks TLS too, and asks probes for no certificate.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	s := serveSite(t, append(v.mutual(v.servers.Issue(t)), "--admin-tls")...)
	anybody, good := trusting(v.servers), trusting(v.servers, v.clients.Client(t, "CN=somebody").TLS(t))
	for name, config := range map[string]*tls.Config{"no certificate": anybody, "plaintext": nil} {
		if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config)); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: gRPC: %v, %v", name, names, err)
		}
	}
	if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], good)); err != nil || len(names) != 1 {
		t.Errorf("a good client: gRPC: %v, %v", names, err)
	}
	for version := 1; version <= 2; version++ {
		if r, err := ask(inTime(t), secured(t, anybody, version), http.MethodGet, s.HTTP+"/v1/models", ""); err == nil {
			t.Errorf("no certificate: HTTP/%d: %d %s", version, r.code, r.body)
		}
		r, err := ask(inTime(t), secured(t, good, version), http.MethodGet, s.HTTP+"/v1/models", "")
		if err != nil || r.code != http.StatusOK || !strings.Contains(r.body, "fetal-health") {
			t.Errorf("a good client: HTTP/%d: %v, %v", version, r, err)
		}
	}
	for _, url := range []string{s.HTTP + "/v1/models", s.Admin + "/readyz"} {
		plain := "http" + strings.TrimPrefix(url, "https")
		if r, err := ask(inTime(t), http.DefaultClient, http.MethodGet, plain, ""); err == nil && r.code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", plain, r.code, r.body)
		}
	}
	if r, err := ask(inTime(t), secured(t, anybody, 1), http.MethodGet, s.Admin+"/readyz", ""); err != nil || r.code != http.StatusOK {
		t.Errorf("the admin address: %v, %v", r, err)
	}
}

// TestRevokedWhileConnected revokes the certificate of a connected client. Its streams and
// connections must end, its open inputs undecided, while another client goes on.
func TestRevokedWhileConnected(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	ann, ben := v.clients.Client(t, "spiffe://cluster/ann"), v.clients.Client(t, "ben.cluster.svc")
	v.keep(ann)
	v.keep(ben)
	list := v.put("crl.pem", v.clients.Revoke(t, time.Now().Add(time.Hour)))
	args := append(v.mutual(v.servers.Issue(t)), "--tls-crl", list, "--log-level", "debug")
	args = append(args, "--access", v.put("access.yaml", []byte("identities:\n"+
		"  - {name: ann, certificates: [\"spiffe://cluster/ann\"], models: [fetal-health]}\n"+
		"  - {name: ben, certificates: [ben.cluster.svc], models: [fetal-health]}\n")))
	s := serveSite(t, args...)
	secure := func(own certtest.Pair) (*tls.Config, *guest) {
		c := trusting(v.servers, own.TLS(t))
		return c, arrive(t, dialTLS(t, s.GRPC[0], c), "")
	}
	config, revoked := secure(ann)
	_, other := secure(ben)
	idle := map[int]*http.Client{1: secured(t, config, 1), 2: secured(t, config, 2)}
	for _, h := range idle {
		if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err != nil || r.code != http.StatusOK {
			t.Fatalf("%v, %v", r, err)
		}
	}
	eventually(t, "inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 2*guestInputs })
	v.put("crl.pem", v.clients.Revoke(t, time.Now().Add(time.Hour), ann.Cert))

	if err := revoked.receive(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ends with %v", err)
	}
	if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config)); status.Code(err) != codes.Unavailable {
		t.Errorf("a new connection: %v", err)
	}
	if r, err := ask(inTime(t), secured(t, config, 1), http.MethodGet, s.HTTP+"/v1/models", ""); err == nil {
		t.Errorf("a new connection over HTTP is taken: %d", r.code)
	}
	for version, h := range idle {
		if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err == nil && r.code != http.StatusUnauthorized {
			t.Errorf("HTTP/%d goes on: %d %s", version, r.code, r.body)
		}
	}
	eventually(t, "its inputs are given up", func() bool { return s.gauge("ckd_inputs_open") == guestInputs })
	if got := s.gauge("ckd_decisions_total"); got != 0 {
		t.Errorf("%v inputs are decided", got)
	}
	other.send(t, further(1, guestInputs, true))
	if err := other.receive(); err != nil {
		t.Errorf("another's stream: %v", err)
	}
	v.checkSecrets(s)
}
