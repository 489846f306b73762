package integration_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/certs/certtest"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// vault is a folder of certificates, keys, tokens and lists, with CAs for servers and for clients. Each of its CAs and
// files belongs to one test.
type vault struct {
	t                *testing.T
	dir              string
	servers, clients *certtest.CA
	secrets          map[string]bool // that the daemon may tell nobody
}

func newVault(t *testing.T) *vault {
	t.Helper()
	return &vault{t, t.TempDir(), certtest.NewCA(t, "servers"), certtest.NewCA(t, "clients"), map[string]bool{}}
}

func (v *vault) path(name string) string { return filepath.Join(v.dir, name) }

// put a file in the place of another, at once.
func (v *vault) put(name string, data []byte) string {
	v.t.Helper()
	path := v.path(name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		v.t.Fatal(err)
	}
	return path
}

// tls writes a server's certificate, and is the flags that name it.
func (v *vault) tls(pair certtest.Pair) []string {
	v.t.Helper()
	v.keep(pair)
	return []string{"--tls-cert", v.put("tls.crt", pair.CertPEM), "--tls-key", v.put("tls.key", pair.KeyPEM)}
}

// mutual is tls with the CA of clients.
func (v *vault) mutual(pair certtest.Pair) []string {
	v.t.Helper()
	return append(v.tls(pair), "--tls-client-ca", v.put("clients.crt", v.clients.PEM))
}

// keep the lines of a key secret.
func (v *vault) keep(pair certtest.Pair) {
	for line := range strings.Lines(string(pair.KeyPEM)) {
		if !strings.HasPrefix(line, "-----") {
			v.secrets[strings.TrimSpace(line)] = true
		}
	}
}

// token is a new secret, and its hash, which is one too.
func (v *vault) token(name string) (token, sum string) {
	token = name + "-token-" + hex.EncodeToString([]byte(v.t.Name() + name))[:24]
	hash := sha256.Sum256([]byte(token))
	sum = hex.EncodeToString(hash[:])
	v.secrets[token], v.secrets[sum] = true, true
	return token, sum
}

// isKeptBy fails the test where the daemon's log or metrics have a secret.
func (v *vault) isKeptBy(s *daemon) {
	v.t.Helper()
	_, metrics, _ := s.Get("/metrics")
	for where, text := range map[string]string{"log": s.Log(), "metrics": metrics} {
		for secret := range v.secrets {
			if strings.Contains(text, secret) {
				v.t.Errorf("the %s: %q is in it", where, secret)
			}
		}
		if regexp.MustCompile(`Bearer |PRIVATE KEY`).MatchString(text) {
			v.t.Errorf("the %s shows a credential", where)
		}
	}
	if len(v.secrets) == 0 || len(s.Log()) == 0 {
		v.t.Error("there is nothing to find, or nowhere to look")
	}
}

// trusting is TLS of a client that trusts a CA, and shows its certificate, if it has one, whomever the server trusts.
func trusting(ca *certtest.CA, own ...tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS10}
	if len(own) > 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own[0], nil }
	}
	return c
}

// upTo has a client speak no newer version.
func upTo(version uint16, c *tls.Config) *tls.Config {
	c.MaxVersion = version
	return c
}

// secured is a client over TLS that has connections of its own, of HTTP/1.1 alone or of HTTP/2.
func secured(t *testing.T, c *tls.Config, version int) *http.Client {
	transport := &http.Transport{TLSClientConfig: c.Clone(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// dialTLS is a connection for gRPC, or in plaintext where c is nil.
func dialTLS(t *testing.T, address string, c *tls.Config, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	transport := insecure.NewCredentials()
	if c != nil {
		transport = credentials.NewTLS(c.Clone())
	}
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// modelsOf are the names of ListModels.
func modelsOf(ctx context.Context, conn *grpc.ClientConn) ([]string, error) {
	r, err := ckdv1.NewUncertaintyServiceClient(conn).ListModels(ctx, &ckdv1.ListModelsRequest{})
	var names []string
	for _, m := range r.GetModels() {
		names = append(names, m.GetPolicy().GetModel())
	}
	return names, err
}

// shake is a handshake and what follows it: with TLS 1.3 a client's refusal comes only then. A connection that waits for
// what the client says is a good one.
func shake(address string, c *tls.Config, protocol string) (tls.ConnectionState, error) {
	c = c.Clone()
	c.NextProtos = []string{protocol}
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	state := conn.ConnectionState()
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // a connection takes deadlines
	_, err = conn.Read(make([]byte, 1))
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = nil
	}
	return state, err
}

// TestMutualTLS: on gRPC and HTTP, who has no good certificate, or is shown none, does not get in, and is told why by TLS
// alone; who has does.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	others := certtest.NewCA(t, "others")
	s := serveSite(t, append(v.mutual(v.servers.Issue(t)), "--log-level", "debug")...)
	mine := v.clients.Client(t, "CN=somebody").TLS(t)
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	elsewhere := trusting(v.servers, mine)
	elsewhere.ServerName = "elsewhere.example"
	between := func(from, to time.Time) tls.Certificate { return v.clients.Issue(t, certtest.Valid(from, to)).TLS(t) }
	var handshakes sync.WaitGroup
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"no certificate":         {trusting(v.servers), "certificate required"},
		"of another CA":          {trusting(v.servers, others.Client(t, "CN=somebody").TLS(t)), "unknown certificate authority"},
		"of the servers' CA":     {trusting(v.servers, v.servers.Client(t, "CN=somebody").TLS(t)), "unknown certificate authority"},
		"expired":                {trusting(v.servers, between(past.Add(-time.Hour), past)), "expired certificate"},
		"not valid yet":          {trusting(v.servers, between(future, future.Add(time.Hour))), "expired certificate"},
		"a server of another CA": {trusting(others, mine), "unknown authority"},
		"a server of other name": {elsewhere, "not elsewhere.example"},
		"TLS 1.2":                {upTo(tls.VersionTLS12, trusting(v.servers, mine)), "protocol version not supported"},
		"TLS 1.1":                {upTo(tls.VersionTLS11, trusting(v.servers, mine)), "protocol version not supported"},
	} {
		handshakes.Go(func() {
			for address, protocol := range map[string]string{s.GRPC[0]: "h2", strings.TrimPrefix(s.HTTP, "https://"): "http/1.1"} {
				if _, err := shake(address, c.config, protocol); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %s: %v, want %q", name, protocol, err, c.want)
				}
			}
			if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], c.config)); status.Code(err) != codes.Unavailable {
				t.Errorf("%s: gRPC: %v, %v", name, names, err)
			}
			for version := 1; version <= 2; version++ {
				if r, err := ask(inTime(t), secured(t, c.config, version), http.MethodGet, s.HTTP+"/v1/models", ""); err == nil {
					t.Errorf("%s: HTTP/%d: %d %s", name, version, r.code, r.body)
				}
			}
		})
	}
	handshakes.Wait()
	if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], nil)); status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC in plaintext: %v", err)
	}
	r, err := ask(inTime(t), overHTTP1(t), http.MethodGet, inPlaintext(s.HTTP)+"/v1/models", "")
	if err == nil && r.code != http.StatusBadRequest {
		t.Errorf("HTTP in plaintext: %d %s", r.code, r.body)
	}

	good := trusting(v.servers, mine)
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
	// The admin address stays plain unless admin-tls says otherwise: this has asked it.
	v.isKeptBy(s)
}

// inPlaintext is a URL without TLS.
func inPlaintext(url string) string { return "http" + strings.TrimPrefix(url, "https") }

// isRefusal reports whether an error has this code and reason.
func isRefusal(err error, code codes.Code, reason ckdv1.ErrorReason) bool {
	return status.Code(err) == code && client.Reason(err) == reason
}

// TestAdminTLS: the admin address speaks TLS where it is told to, and needs no certificate of probes.
func TestAdminTLS(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	s := serveSite(t, append(v.mutual(v.servers.Issue(t)), "--admin-tls")...)
	if !strings.HasPrefix(s.Admin, "https://") {
		t.Fatalf("the admin address is %s", s.Admin)
	}
	for _, path := range []string{"/readyz", "/metrics"} {
		if r, err := ask(inTime(t), secured(t, trusting(v.servers), 1), http.MethodGet, s.Admin+path, ""); err != nil || r.code != http.StatusOK {
			t.Errorf("%s: %v, %v", path, r, err)
		}
		if r, err := ask(inTime(t), overHTTP1(t), http.MethodGet, inPlaintext(s.Admin)+path, ""); err == nil && r.code == http.StatusOK {
			t.Errorf("%s in plaintext: %v", path, r)
		}
	}
	old := upTo(tls.VersionTLS12, trusting(v.servers))
	if _, err := shake(strings.TrimPrefix(s.Admin, "https://"), old, "http/1.1"); err == nil {
		t.Error("TLS 1.2 is taken")
	}
}

// TestTLS12: where it is asked for, 1.2 is taken too, with forward secrecy and AEAD alone, and still nothing below.
func TestTLS12(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	s := serveSite(t, append(v.tls(v.servers.Issue(t)), "--tls-min-version", "1.2")...)
	old := func(version uint16, suites ...uint16) *tls.Config {
		c := upTo(version, trusting(v.servers))
		c.CipherSuites = suites
		return c
	}
	for address, protocol := range map[string]string{s.GRPC[0]: "h2", strings.TrimPrefix(s.HTTP, "https://"): "http/1.1"} {
		if state, err := shake(address, trusting(v.servers), protocol); err != nil || state.Version != tls.VersionTLS13 {
			t.Errorf("%s: the best is %x, %v", protocol, state.Version, err)
		}
		if state, err := shake(address, old(tls.VersionTLS12), protocol); err != nil || state.Version != tls.VersionTLS12 {
			t.Errorf("%s: TLS 1.2: %v", protocol, err)
		}
		if _, err := shake(address, old(tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA), protocol); err == nil {
			t.Errorf("%s: a suite without AEAD is taken", protocol)
		}
		if _, err := shake(address, old(tls.VersionTLS11), protocol); err == nil {
			t.Errorf("%s: TLS 1.1 is taken", protocol)
		}
	}
	if names, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], old(tls.VersionTLS12))); err != nil || len(names) != 1 {
		t.Errorf("gRPC over TLS 1.2: %v, %v", names, err)
	}
	s.says("whoever reaches the daemon may use it")
}

// TestCertificateRotation: the certificate is replaced again and again under load, and no call is dropped: not the streams
// that are open, nor any on a new connection. New handshakes are shown the new certificate, and the metric follows.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	t.Run("files renamed", func(t *testing.T) {
		t.Parallel()
		v := newVault(t)
		rotate(t, v, v.path("tls.crt"), v.path("tls.key"), func(_ int, p certtest.Pair) {
			v.put("tls.crt", p.CertPEM)
			time.Sleep(30 * time.Millisecond) // meanwhile the two do not fit
			v.put("tls.key", p.KeyPEM)
		})
	})
	t.Run("link swapped", func(t *testing.T) { // as a Kubernetes Secret is
		t.Parallel()
		v := newVault(t)
		rotate(t, v, v.path("data/tls.crt"), v.path("data/tls.key"), func(n int, p certtest.Pair) {
			now, before := fmt.Sprintf("data.%d", n), v.path(fmt.Sprintf("data.%d", n-1))
			if err := os.Mkdir(v.path(now), 0o700); err != nil {
				t.Fatal(err)
			}
			v.put(now+"/tls.crt", p.CertPEM)
			v.put(now+"/tls.key", p.KeyPEM)
			if err := os.Symlink(now, v.path("data.new")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(v.path("data.new"), v.path("data")); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(before); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// rotate certificates under load. Replace puts the n-th in the place of that before.
func rotate(t *testing.T, v *vault, cert, key string, replace func(n int, p certtest.Pair)) {
	t.Helper()
	ctx := inTime(t)
	const rotations = 4
	pairs := make([]certtest.Pair, rotations+1)
	for n := range pairs { // each ends at another time
		pairs[n] = v.servers.Issue(t, certtest.Valid(time.Now().Add(-time.Hour), time.Now().Add(time.Duration(n+30)*24*time.Hour)))
		v.keep(pairs[n])
	}
	replace(0, pairs[0])
	s := serveSite(t, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", v.put("clients.crt", v.clients.PEM), "--log-level", "debug")
	own := v.clients.Client(t, "CN=somebody")
	v.keep(own)
	config := trusting(v.servers, own.TLS(t))

	var load sync.WaitGroup
	defer load.Wait()
	done := make(chan struct{})
	defer close(done)
	goesOn := func() bool {
		select {
		case <-done:
			return false
		default:
			return !t.Failed()
		}
	}
	var calls [3]atomic.Int64
	// A session that may not open another stream.
	load.Go(func() { session(ctx, t, s, v, own, func() bool { calls[0].Add(1); return goesOn() }) })
	// New connections, over gRPC and HTTP.
	load.Go(func() {
		for goesOn() {
			conn := dialTLS(t, s.GRPC[0], config)
			if _, err := modelsOf(ctx, conn); err != nil {
				t.Errorf("a new connection: %v", err)
			}
			_ = conn.Close()
			calls[1].Add(1)
		}
	})
	load.Go(func() {
		for goesOn() {
			c := secured(t, config, 1+int(calls[2].Add(1)%2))
			if r, err := ask(ctx, c, http.MethodGet, s.HTTP+"/v1/models", ""); err != nil || r.code != http.StatusOK {
				t.Errorf("a new connection: %v, %v", r, err)
			}
			c.CloseIdleConnections()
		}
	})
	// A stream with many inputs in flight all the time, one half of them for as long as it lives.
	const lasting, brief = 500, 50
	stream, err := openStream(ctx, dialTLS(t, s.GRPC[0], config))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(block(1, lasting, 1, false)); err != nil {
		t.Fatal(err)
	}
	groups, answered := uint64(1), map[uint64]int{}
	receive := func() {
		t.Helper()
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("the stream is dropped: %v", err)
		}
		for _, r := range m.GetResults() {
			if r.GetDecomposition() == nil {
				t.Errorf("group %d: %v", r.GetGroup(), r.GetError())
			}
			answered[r.GetGroup()]++
		}
	}
	pass := func(final bool) {
		t.Helper()
		m := block(1, lasting, 1, final)
		m.GetBlock().InputIds = nil
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		groups++
		if err := stream.Send(block(groups, brief, 5, true)); err != nil {
			t.Fatal(err)
		}
		for answered[groups] < brief {
			receive()
		}
	}

	for n := 1; n <= rotations; n++ {
		replace(n, pairs[n])
		for address, protocol := range map[string]string{s.GRPC[0]: "h2", strings.TrimPrefix(s.HTTP, "https://"): "http/1.1"} {
			eventually(t, "new handshakes are shown the new certificate", func() bool {
				pass(false)
				state, err := shake(address, config, protocol)
				if err != nil {
					t.Fatalf("a handshake: %v", err)
				}
				return state.PeerCertificates[0].Equal(pairs[n].Cert)
			})
		}
		eventually(t, "the metric follows", func() bool {
			return s.gauge("ckd_certificate_not_after_timestamp_seconds") == float64(pairs[n].Cert.NotAfter.Unix())
		})
	}
	pass(true)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the stream is dropped: %v", err)
		}
		answered[1] += len(m.GetResults())
	}
	if answered[1] != lasting {
		t.Errorf("%d inputs are answered, want %d", answered[1], lasting)
	}
	for i := range calls {
		if calls[i].Load() < rotations {
			t.Errorf("too little load to tell: %d calls of kind %d", calls[i].Load(), i)
		}
	}
	v.isKeptBy(s)
}

// session sends groups, one after the other, on a stream that may not be opened again.
func session(ctx context.Context, t *testing.T, s *daemon, v *vault, own certtest.Pair, goesOn func() bool) {
	c, err := client.Dial(s.GRPC[0], client.WithTLS(client.TLSFiles{
		CA: v.put("servers.crt", v.servers.PEM), Cert: v.put("own.crt", own.CertPEM), Key: v.put("own.key", own.KeyPEM),
	}))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	stream, err := c.Session(ctx, client.SessionConfig{Model: "fetal-health", Reconnect: client.Reconnect{Disabled: true}})
	if err != nil {
		t.Error(err)
		return
	}
	for goesOn() {
		values := block(0, 32, 1, false).GetBlock().GetValues()
		results, err := stream.Do(ctx, make([]string, 32), slices.Values([][]float32{values, values, values, values, values}))
		if err != nil || len(results) != 32 || results[31].Err != nil {
			t.Errorf("the session is dropped: %v", err)
			return
		}
	}
	if err := stream.Close(); err != nil {
		t.Errorf("the session ends with %v", err)
	}
}

// TestCertificateExpires: one that ends while the daemon runs is warned of. Then clients refuse it, what is open goes on,
// and a new one puts it right. One that has ended is refused at the start, and in the place of another.
func TestCertificateExpires(t *testing.T) {
	timed.Only(t)
	v := newVault(t)
	expired := v.servers.Issue(t, certtest.Valid(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
	anywhere := []string{"--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "off"}
	if r := refused(inTime(t), t, append(anywhere, v.tls(expired)...)...); r.Code != 1 || !strings.Contains(r.Stderr, "has expired at") {
		t.Errorf("expired at the start: exit %d: %s", r.Code, r.Stderr)
	}
	end := time.Now().Add(6 * time.Second).Truncate(time.Second)
	brief := v.servers.Issue(t, certtest.Valid(time.Now().Add(-time.Hour), end))
	s := serveSite(t, v.tls(brief)...)
	s.says("the server's certificate expires within a day")
	if got := s.gauge("ckd_certificate_not_after_timestamp_seconds"); got != float64(end.Unix()) {
		t.Errorf("the metric is %v, want %v", got, end.Unix())
	}
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
	if err := s.Process.Process.Signal(syscall.SIGHUP); err != nil { // or it would say so within a minute
		t.Fatal(err)
	}
	s.says("the server's certificate has expired at")

	v.tls(expired)
	s.says("not reloaded; what was in force stays")
	eventually(t, "that is counted", func() bool { return s.gauge("ckd_security_reloads_failed_total", "files", "certificates") > 0 })
	renewed := v.servers.Issue(t)
	v.tls(renewed)
	eventually(t, "the renewed one is taken", func() bool {
		_, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], config))
		return err == nil && s.gauge("ckd_certificate_not_after_timestamp_seconds") == float64(renewed.Cert.NotAfter.Unix())
	})
	v.isKeptBy(s)
}

// TestRevokedWhileConnected: a certificate that a list revokes is refused from then on, on connections that are open as on
// new ones. What was open stays undecided. Others go on.
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

			type guest struct {
				config       *tls.Config
				stream       ckdv1.UncertaintyService_DecomposeStreamClient
				lines        *lineStream
				http1, http2 *http.Client
			}
			arrive := func(own certtest.Pair) guest {
				t.Helper()
				c := trusting(v.servers, own.TLS(t))
				g := guest{config: c, http1: secured(t, c, 1), http2: secured(t, c, 2)}
				var err error
				if g.stream, err = openStream(inTime(t), dialTLS(t, s.GRPC[0], c)); err != nil {
					t.Fatal(err)
				}
				if err := g.stream.Send(block(1, 4, 5, false)); err != nil {
					t.Fatal(err)
				}
				if g.lines, err = openLines(inTime(t), secured(t, c, 2), s.HTTP); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(g.lines.close)
				if err := g.lines.send(block(1, 4, 5, false)); err != nil {
					t.Fatal(err)
				}
				for _, h := range []*http.Client{g.http1, g.http2} {
					if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err != nil || r.code != http.StatusOK {
						t.Fatalf("%v, %v", r, err)
					}
				}
				return g
			}
			revoked, other := arrive(ann), arrive(ben)
			eventually(t, "inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 16 })
			v.put("crl.pem", v.clients.Revoke(t, time.Now().Add(time.Hour), ann.Cert))

			if m, err := revoked.stream.Recv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Unauthenticated {
				t.Errorf("the stream ends with %v, %v", m, err)
			}
			if _, err := modelsOf(inTime(t), dialTLS(t, s.GRPC[0], revoked.config)); status.Code(err) != codes.Unavailable {
				t.Errorf("a new connection: %v", err)
			}
			if _, err := shake(strings.TrimPrefix(s.HTTP, "https://"), revoked.config, "http/1.1"); err == nil {
				t.Error("a new connection over HTTP is taken")
			}
			for version, h := range map[int]*http.Client{1: revoked.http1, 2: revoked.http2} {
				if r, err := ask(inTime(t), h, http.MethodGet, s.HTTP+"/v1/models", ""); err == nil && r.code != http.StatusUnauthorized {
					t.Errorf("HTTP/%d goes on: %d %s", version, r.code, r.body)
				}
			}
			if m, err := revoked.lines.receive(); err == nil {
				t.Errorf("the stream over HTTP goes on: %v", m)
			}
			eventually(t, "its inputs are given up", func() bool { return s.gauge("ckd_inputs_open") == 8 })
			if got := s.gauge("ckd_decisions_total"); got != 0 {
				t.Errorf("%v inputs are decided", got)
			}

			last := block(1, 4, 1, true)
			last.GetBlock().InputIds = nil
			if err := other.stream.Send(last); err != nil {
				t.Fatal(err)
			}
			if m, err := other.stream.Recv(); err != nil || len(m.GetResults()) != 4 {
				t.Errorf("another's stream: %v, %v", m, err)
			}
			if err := other.lines.send(last); err != nil {
				t.Fatal(err)
			}
			if m, err := other.lines.receive(); err != nil || len(m.GetResults()) != 4 {
				t.Errorf("another's stream over HTTP: %v, %v", m, err)
			}
			v.isKeptBy(s)
		})
	}
}

// twoModels is a policy file with one more model than policyText.
const twoModels = policyText + `
  - name: retina
    classes: [healthy, ill]
    critical: [ill]
`

// TestIdentities: over each protocol, who is not known may do nothing but probe, who is known may do what the access file
// says, and nobody can say who they are by any other way.
func TestIdentities(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	annToken, _ := v.token("ann")
	benToken, benSum := v.token("ben")
	chiefToken, _ := v.token("chief")
	danToken, danSum := v.token("dan")
	wrongToken, _ := v.token("wrong")
	v.put("ann.token", []byte(annToken+"\n"))
	v.put("chief.token", []byte(chiefToken))
	file := v.put("access.yaml", []byte(`identities:
  - {name: ann, tokens: [{file: ann.token}], models: [fetal-health], streams: 2}
  - {name: ben, tokens: [{sha256: `+benSum+`}], models: [retina, retinas]}
  - {name: dan, tokens: [{sha256: `+danSum+`}], models: [fetal-health], calls: 1}
  - {name: chief, tokens: [{file: chief.token}], models: ["*"], admin: true, reload: true}
`))
	socket := v.path("ckd.sock")
	s := serveSite(t, append(v.tls(v.servers.Issue(t)), "--policy", writePolicy(t, twoModels), "--access", file,
		"--listen", "unix:"+socket, "--admin-reload", "--log-level", "debug")...)
	config := trusting(v.servers)
	overTCP, overSocket := s.GRPC[slices.IndexFunc(s.GRPC, func(a string) bool { return !strings.HasPrefix(a, "unix:") })], "unix:"+socket
	secure, plain := dialTLS(t, overTCP, config), dialTLS(t, overSocket, nil)
	web := secured(t, config, 2)
	// as is a call's context with metadata, and as a bearer of a token.
	as := func(pairs ...string) context.Context { return metadata.AppendToOutgoingContext(inTime(t), pairs...) }
	bearer := func(token string) context.Context { return as("authorization", "Bearer "+token) }
	get := func(path string, headers ...string) reply {
		t.Helper()
		r, err := ask(inTime(t), web, http.MethodGet, s.HTTP+path, "", headers...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	t.Run("known or not", func(t *testing.T) {
		for name, pairs := range map[string][]string{
			"nothing":             nil,
			"unknown":             {"authorization", "Bearer " + wrongToken},
			"another scheme":      {"authorization", "Basic " + annToken},
			"no scheme":           {"authorization", annToken},
			"two":                 {"authorization", "Bearer " + annToken, "authorization", "Bearer " + chiefToken},
			"cut":                 {"authorization", "Bearer " + annToken[:len(annToken)-1]},
			"says who":            {"ckd-identity", "chief"},
			"says who, prefixed":  {"grpc-metadata-ckd-identity", "chief"},
			"says token prefixed": {"grpc-metadata-authorization", "Bearer " + chiefToken},
			"the hash":            {"authorization", "Bearer " + benSum},
		} {
			for over, conn := range map[string]*grpc.ClientConn{"TCP": secure, "socket": plain} {
				names, err := modelsOf(as(pairs...), conn)
				if !isRefusal(err, codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED) {
					t.Errorf("%s, %s: %v, %v", name, over, names, err)
				}
			}
			for _, path := range []string{"/v1/models", "/v2", "/v2/models/fetal-health/ready", "/nowhere"} {
				r := get(path, pairs...)
				if r.code != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(r.body, "fetal") {
					t.Errorf("%s, %s: %d %v %s", name, path, r.code, r.header, r.body)
				}
			}
		}
		if err := mayStream(inTime(t), secure); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a stream of nobody: %v", err)
		}
		if lines, err := openLines(inTime(t), web, s.HTTP); err != nil || lines.answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("a stream of nobody over HTTP: %v", err)
		}
		for _, reason := range []string{"unknown_token", "no_credential", "bad_credential"} {
			if s.gauge("ckd_access_refused_total", "reason", reason) == 0 {
				t.Errorf("%s is not counted", reason)
			}
		}
	})

	t.Run("models", func(t *testing.T) {
		for token, want := range map[string]string{annToken: "fetal-health", benToken: "retina", chiefToken: "fetal-health retina"} {
			for _, conn := range []*grpc.ClientConn{secure, plain} {
				if names, err := modelsOf(bearer(token), conn); err != nil || strings.Join(names, " ") != want {
					t.Errorf("%v, %v, want %s", names, err, want)
				}
			}
			r := get("/v1/models", "Authorization", "Bearer "+token)
			for _, model := range []string{"fetal-health", "retina"} {
				if strings.Contains(r.body, model) != strings.Contains(want, model) {
					t.Errorf("over HTTP: %s, want %s", r.body, want)
				}
			}
		}
		// Who says more than a token is who the token says.
		for _, key := range []string{"ckd-identity", "grpc-metadata-ckd-identity", "grpc-metadata-authorization"} {
			pairs := []string{"authorization", "bearer " + annToken, key, "chief"}
			if key == "grpc-metadata-authorization" {
				pairs[3] = "Bearer " + chiefToken
			}
			if names, err := modelsOf(as(pairs...), secure); err != nil || !slices.Equal(names, []string{"fetal-health"}) {
				t.Errorf("%s: %v, %v", key, names, err)
			}
			if r := get("/v1/models", pairs...); r.code != http.StatusOK || strings.Contains(r.body, "retina") {
				t.Errorf("%s over HTTP: %d %s", key, r.code, r.body)
			}
		}
		// Who asks for a model that is not there is told of those that it may use alone.
		for name, call := range everyCall(t, secure, web, s.HTTP, benToken) {
			told := call("retinas")
			if strings.Contains(told, "fetal") || strings.Contains(told, "no policy names") != strings.Contains(told, "expected one of: retina, did you mean") {
				t.Errorf("%s: %s", name, told)
			}
		}
		// A model that one may not use is as one that is not there, by any call.
		for name, call := range everyCall(t, secure, web, s.HTTP, annToken) {
			there, absent := call("retina"), call("absent")
			if there = strings.ReplaceAll(there, "retina", "absent"); there != absent {
				t.Errorf("%s: it is told:\n%s\nor\n%s", name, there, absent)
			}
			if !strings.Contains(there, "may not use the model") && !strings.Contains(name, "ready") {
				t.Errorf("%s: %s", name, there)
			}
			if allowed := call("fetal-health"); strings.Contains(allowed, "may not") || allowed == there {
				t.Errorf("%s: what is allowed is not: %s", name, allowed)
			}
		}
	})

	t.Run("probes", func(t *testing.T) {
		for _, conn := range []*grpc.ClientConn{secure, plain} {
			r, err := healthv1.NewHealthClient(conn).Check(inTime(t), &healthv1.HealthCheckRequest{})
			if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("health: %v, %v", r, err)
			}
		}
		for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
			if r := get(path); r.code != http.StatusOK {
				t.Errorf("%s: %d %s", path, r.code, r.body)
			}
		}
		for _, path := range []string{"/livez", "/readyz", "/healthz", "/metrics"} {
			if code, _, _ := s.Get(path); code != http.StatusOK {
				t.Errorf("%s: %d", path, code)
			}
		}
		// Over gRPC the server's probes of the Open Inference Protocol are as open as over HTTP, the models' are not.
		for _, ctx := range []context.Context{inTime(t), bearer(benToken)} {
			probes := inferencepb.NewGRPCInferenceServiceClient(secure)
			if r, err := probes.ServerLive(ctx, &inferencepb.ServerLiveRequest{}); err != nil || !r.GetLive() {
				t.Errorf("ServerLive: %v, %v", r, err)
			}
			if r, err := probes.ServerReady(ctx, &inferencepb.ServerReadyRequest{}); err != nil || !r.GetReady() {
				t.Errorf("ServerReady: %v, %v", r, err)
			}
		}
		probes := inferencepb.NewGRPCInferenceServiceClient(secure)
		if _, err := probes.ModelReady(inTime(t), &inferencepb.ModelReadyRequest{Name: "fetal-health"}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("ModelReady of nobody: %v", err)
		}
		for token, want := range map[string]codes.Code{"": codes.Unauthenticated, annToken: codes.OK} {
			ctx := inTime(t)
			if token != "" {
				ctx = bearer(token)
			}
			stream, err := reflectionv1.NewServerReflectionClient(secure).ServerReflectionInfo(ctx)
			if err == nil {
				ask := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
				_ = stream.Send(ask) // Recv tells
				_, err = stream.Recv()
			}
			if status.Code(err) != want {
				t.Errorf("reflection: %v, want %v", err, want)
			}
		}
	})

	t.Run("admin", func(t *testing.T) {
		for _, c := range []struct {
			method, path, token string
			want                int
		}{
			{http.MethodPost, "/-/reload", "", 401},
			{http.MethodPost, "/-/reload", wrongToken, 401},
			{http.MethodPost, "/-/reload", annToken, 403},
			{http.MethodPost, "/-/reload", chiefToken, 200},
			{http.MethodGet, "/else", "", 401},
			{http.MethodGet, "/else", annToken, 403},
			{http.MethodGet, "/else", chiefToken, 404},
		} {
			var headers []string
			if c.token != "" {
				headers = []string{"Authorization", "Bearer " + c.token}
			}
			r, err := ask(inTime(t), http.DefaultClient, c.method, s.Admin+c.path, "", append(headers, "Ckd-Identity", "chief")...)
			if err != nil || r.code != c.want {
				t.Errorf("%s with %.5s: %d %s %v, want %d", c.path, c.token, r.code, r.body, err, c.want)
			}
		}
	})

	t.Run("streams", func(t *testing.T) {
		first, cancel := context.WithCancel(bearer(annToken))
		defer cancel()
		if _, err := openStream(first, secure); err != nil {
			t.Fatal(err)
		}
		lines, err := openLines(inTime(t), web, s.HTTP, "Authorization", "Bearer "+annToken)
		if err != nil || lines.answer.StatusCode != http.StatusOK {
			t.Fatal(err)
		}
		defer lines.close()
		err = mayStream(bearer(annToken), secure)
		if !isRefusal(err, codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS) || retryDelay(err) <= 0 {
			t.Errorf("one too many: %v, to be tried again after %v", err, retryDelay(err))
		}
		further, err := openLines(inTime(t), web, s.HTTP, "Authorization", "Bearer "+annToken)
		if err != nil || further.answer.StatusCode != http.StatusTooManyRequests || further.answer.Header.Get("Retry-After") == "" {
			t.Errorf("one too many over HTTP: %v, %v", further.answer, err)
		}
		if err := mayStream(bearer(chiefToken), secure); err != nil {
			t.Errorf("another's: %v", err)
		}
		cancel()
		eventually(t, "there is room again", func() bool {
			return mayStream(bearer(annToken), secure) == nil
		})
	})

	t.Run("calls", func(t *testing.T) {
		release := holdCall(bearer(danToken), t, secure)
		defer release()
		var err error
		eventually(t, "one more is refused", func() bool {
			_, err = modelsOf(bearer(danToken), secure)
			return err != nil
		})
		if !isRefusal(err, codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OVERLOADED) || retryDelay(err) <= 0 {
			t.Errorf("one too many: %v, to be tried again after %v", err, retryDelay(err))
		}
		if r := get("/v1/models", "Authorization", "Bearer "+danToken); r.code != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
			t.Errorf("one too many over HTTP: %d %v %s", r.code, r.header, r.body)
		}
		if _, err := modelsOf(bearer(chiefToken), secure); err != nil {
			t.Errorf("another's: %v", err)
		}
		release()
		eventually(t, "there is room again", func() bool {
			_, err := modelsOf(bearer(danToken), secure)
			return err == nil
		})
	})

	t.Run("curl", func(t *testing.T) { // as docs/access.md shows it
		curl := testbed.Program(t, "curl", "CURL")
		text, err := os.ReadFile("../docs/access.md")
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile(`(?m)^curl .*$`).FindString(string(text))
		v.put("ca.crt", v.servers.PEM)
		v.put("token", []byte(annToken+"\n"))
		here := strings.NewReplacer("https://ckd.eye.svc:8591", s.HTTP, "curl ", curl+" -sS ")
		c := exec.CommandContext(inTime(t), "sh", "-c", here.Replace(shown))
		c.Dir = v.dir
		if r := testbed.Run(t, c); r.Code != 0 || !strings.Contains(r.Stdout, "fetal-health") {
			t.Errorf("%s: exit %d: %s%s", shown, r.Code, r.Stdout, r.Stderr)
		}
	})
	v.isKeptBy(s)
}

// mayStream opens a stream, which it lets go of, or says why there is none.
func mayStream(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := ckdv1.NewUncertaintyServiceClient(conn).DecomposeStream(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(streamOf("fetal-health")) // Recv tells
	_, err = stream.Recv()
	return err
}

// streamOf is the header of a stream.
func streamOf(model string) *ckdv1.DecomposeStreamRequest {
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: model}}}
}

// everyCall is each call that names a model, over each protocol, by its name: what is answered.
func everyCall(t *testing.T, conn *grpc.ClientConn, web *http.Client, url, token string) map[string]func(model string) string {
	ctx := metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+token)
	native, infer := ckdv1.NewUncertaintyServiceClient(conn), inferencepb.NewGRPCInferenceServiceClient(conn)
	told := func(answer any, err error) string {
		return fmt.Sprint(answer, err, status.Convert(err).Proto())
	}
	calls := map[string]func(string) string{
		"GetModel": func(m string) string { return told(native.GetModel(ctx, &ckdv1.GetModelRequest{Model: m})) },
		"Decompose": func(m string) string {
			return told(native.Decompose(ctx, &ckdv1.DecomposeRequest{Model: m, Layout: ckdv1.Layout_LAYOUT_NSK}))
		},
		"DecomposeStream": func(m string) string {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := native.DecomposeStream(ctx)
			if err != nil {
				return told(nil, err)
			}
			_ = stream.Send(streamOf(m)) // Recv tells
			return told(stream.Recv())
		},
		"ModelMetadata": func(m string) string {
			return told(infer.ModelMetadata(ctx, &inferencepb.ModelMetadataRequest{Name: m}))
		},
		"ModelConfig": func(m string) string { return told(infer.ModelConfig(ctx, &inferencepb.ModelConfigRequest{Name: m})) },
		"ModelInfer": func(m string) string {
			return told(infer.ModelInfer(ctx, &inferencepb.ModelInferRequest{ModelName: m}))
		},
		"ModelReady, ready": func(m string) string {
			return told(infer.ModelReady(ctx, &inferencepb.ModelReadyRequest{Name: m}))
		},
		"ModelStreamInfer": func(m string) string {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := infer.ModelStreamInfer(ctx)
			if err != nil {
				return told(nil, err)
			}
			_ = stream.Send(&inferencepb.ModelInferRequest{ModelName: m}) // Recv tells
			return told(stream.Recv())
		},
	}
	for path, body := range map[string]string{
		"GET /v1/models/%s":            "",
		"POST /v1/models/%s:decompose": `{"layout": "LAYOUT_NSK"}`,
		"GET /v2/models/%s":            "",
		"GET /v2/models/%s/ready":      "",
		"GET /v2/models/%s/config":     "",
		"POST /v2/models/%s/infer":     `{"inputs": [{"name": "passes", "datatype": "FP32", "shape": [0, 0, 3], "data": []}]}`,
		"POST /v1/stream":              `{"header": {"model": "%s"}}`,
	} {
		method, path, _ := strings.Cut(path, " ")
		calls[method+" "+path] = func(m string) string {
			named := func(text string) string { return strings.Replace(text, "%s", m, 1) }
			r, err := ask(ctx, web, method, url+named(path), named(body), "Authorization", "Bearer "+token)
			if err != nil {
				return err.Error()
			}
			for _, varies := range []string{"Date", "X-Request-Id", "Content-Length"} {
				r.header.Del(varies)
			}
			names := slices.Sorted(maps.Keys(r.header))
			return fmt.Sprint(r.code, names, r.body)
		}
	}
	return calls
}

// TestTokenRevoked: streams end with UNAUTHENTICATED when their token is taken away, and with NOT_ALLOWED when their model
// is; what was open is not decided. A session whose token was replaced goes on.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	old, _ := v.token("old")
	next, _ := v.token("next")
	steady, _ := v.token("steady")
	v.put("old.token", []byte(old))
	v.put("next.token", []byte(next))
	v.put("steady.token", []byte(steady))
	write := func(tokens, models string) string {
		return v.put("access.yaml", []byte("identities:\n"+
			"  - {name: ann, tokens: ["+tokens+"], models: [fetal-health]}\n"+
			"  - {name: ben, tokens: [{file: steady.token}], models: ["+models+"]}\n"))
	}
	s := serveSite(t, "--access", write("{file: old.token}", "fetal-health"), "--log-level", "debug")
	type opened struct {
		stream ckdv1.UncertaintyService_DecomposeStreamClient
		lines  map[string]*lineStream
	}
	arrive := func(token string) opened {
		t.Helper()
		o := opened{lines: map[string]*lineStream{}}
		var err error
		if o.stream, err = openStream(metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+token), s.dial()); err != nil {
			t.Fatal(err)
		}
		if err := o.stream.Send(block(1, 4, 5, false)); err != nil {
			t.Fatal(err)
		}
		for version, c := range map[string]*http.Client{"HTTP/1.1": overHTTP1(t), "HTTP/2": overHTTP2(t)} {
			lines, err := openLines(inTime(t), c, s.HTTP, "Authorization", "Bearer "+token)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(lines.close)
			if err := lines.send(block(1, 4, 5, false)); err != nil {
				t.Fatal(err)
			}
			o.lines[version] = lines
		}
		return o
	}
	ann, ben := arrive(old), arrive(steady)
	eventually(t, "inputs are open", func() bool { return s.gauge("ckd_inputs_open") == 24 })

	// The client package has its token from a file, which is replaced first, and its session goes on.
	own := v.put("own.token", []byte(old))
	c, err := client.Dial(s.GRPC[0], client.WithTokenFile(own))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.Session(inTime(t), client.SessionConfig{Model: "fetal-health"})
	if err != nil {
		t.Fatal(err)
	}
	group, err := session.Open(inTime(t), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Send([]float32{1, 0, 0, 0, 1, 0}); err != nil {
		t.Fatal(err)
	}
	write("{file: old.token}, {file: next.token}", "fetal-health")
	eventually(t, "the next token is known", func() bool {
		_, err := modelsOf(metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+next), s.dial())
		return err == nil
	})
	v.put("own.token", []byte(next))
	write("{file: next.token}", "fetal-health")

	if m, err := ann.stream.Recv(); !isRefusal(err, codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED) {
		t.Errorf("the stream ends with %v, %v", m, err)
	}
	for version, lines := range ann.lines {
		if m, err := lines.receive(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: the stream ends with %v, %v", version, m, err)
		}
	}
	if r := s.mustAsk(http.MethodGet, "/v1/models", "", "Authorization", "Bearer "+old); r.code != http.StatusUnauthorized {
		t.Errorf("a call: %d %s", r.code, r.body)
	}
	eventually(t, "its inputs are given up", func() bool { return s.gauge("ckd_inputs_abandoned_total") >= 12 })
	if got := s.gauge("ckd_decisions_total"); got != 0 {
		t.Errorf("%v inputs are decided", got)
	}
	for range 5 {
		if err := group.Send([]float32{1, 0, 0, 0, 1, 0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := group.Finish(); err != nil {
		t.Fatal(err)
	}
	results, err := group.Wait(inTime(t))
	if err != nil || len(results) != 2 || results[0].Err != nil || results[0].Decomposition.GetPasses() != 6 {
		t.Errorf("the session: %v, %v", results, err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}

	decided := s.gauge("ckd_decisions_total")
	write("{file: next.token}", "retina")
	if m, err := ben.stream.Recv(); !isRefusal(err, codes.PermissionDenied, ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED) {
		t.Errorf("without its model a stream ends with %v, %v", m, err)
	}
	for version, lines := range ben.lines {
		if m, err := lines.receive(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: without its model a stream ends with %v, %v", version, m, err)
		}
	}
	eventually(t, "nothing is open", func() bool { return s.gauge("ckd_inputs_open") == 0 && s.gauge("ckd_streams_open") == 0 })
	if got := s.gauge("ckd_decisions_total"); got != decided {
		t.Errorf("%v inputs are decided", got-decided)
	}
	v.isKeptBy(s)
}

// refused is what a daemon says that is not to start. One that does is killed with the context.
func refused(ctx context.Context, t *testing.T, args ...string) testbed.Result {
	t.Helper()
	return testbed.Run(t, exec.CommandContext(ctx, ckd, append([]string{"serve"}, args...)...))
}

// TestAccessFaults: a faulty access file ends the start, with the place of each fault; while the daemon runs it changes
// nothing, and is counted and told.
func TestAccessFaults(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	token, sum := v.token("ann")
	good := "identities:\n  - name: ann\n    tokens: [{sha256: " + sum + "}]\n    models: [fetal-health]\n"
	bad := strings.Replace(good, "models:", "model:", 1) + "    streams: many\n"
	file := v.put("access.yaml", []byte(bad))
	wants := []string{file + ":4:5: ", file + ":5:14: ", `identity "ann"`, "streams"}
	r := refused(inTime(t), t, "--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "off", "--access", file)
	for _, part := range wants {
		if r.Code != 1 || !strings.Contains(r.Stderr, part) {
			t.Errorf("at the start: exit %d, without %q: %s", r.Code, part, r.Stderr)
		}
	}
	// A token in the place of its hash is a fault, and is not told.
	v.put("access.yaml", []byte(strings.Replace(good, sum, token, 1)))
	r = refused(inTime(t), t, "--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "off", "--access", file)
	if r.Code != 1 || !strings.Contains(r.Stderr, file+":3:") || strings.Contains(r.Stderr, token) {
		t.Errorf("a token in the file: exit %d: %s", r.Code, r.Stderr)
	}

	v.put("access.yaml", []byte(good))
	s := serveSite(t, "--access", file)
	call := func(token string) error {
		_, err := modelsOf(metadata.AppendToOutgoingContext(inTime(t), "authorization", "Bearer "+token), s.dial())
		return err
	}
	if err := call(token); err != nil {
		t.Fatal(err)
	}
	v.put("access.yaml", []byte(bad))
	eventually(t, "the fault is counted", func() bool { return s.gauge("ckd_security_reloads_failed_total", "files", "access") >= 1 })
	for _, part := range append(wants[:2:2], "not reloaded; what was in force stays") {
		s.says(part)
	}
	if err := call(token); err != nil {
		t.Errorf("what was in force does not stay: %v", err)
	}
	if err := call(token + "x"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("nobody: %v", err)
	}
	other, otherSum := v.token("other")
	v.put("access.yaml", []byte(strings.Replace(good, sum, otherSum, 1)))
	eventually(t, "the next good file is taken", func() bool { return call(other) == nil })
	if err := call(token); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the token that was withdrawn: %v", err)
	}
	v.isKeptBy(s)
}

// TestExposure: addresses beyond loopback are refused where they are not secured, with the setting's name and exit code 2;
// insecure-plaintext allows them, and says so.
func TestExposure(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	policy := writePolicy(t, policyText)
	secure := v.tls(v.servers.Issue(t))
	_, sum := v.token("ann")
	identities := v.put("access.yaml", []byte("identities:\n  - {name: ann, tokens: [{sha256: "+sum+"}]}\n"))
	const everywhere = "0.0.0.0:0"
	local := []string{"--listen", "127.0.0.1:0", "--admin", "off"}
	ctx := inTime(t)
	for name, c := range map[string]struct {
		args []string
		flag string
	}{
		"gRPC":                       {[]string{"--listen", everywhere, "--admin", "off"}, "listen: "},
		"gRPC beside loopback":       {[]string{"--listen", "127.0.0.1:0," + everywhere, "--admin", "off"}, "listen: "},
		"gRPC on IPv6":               {[]string{"--listen", "[::]:0", "--admin", "off"}, "listen: "},
		"gRPC on no host":            {[]string{"--listen", ":0", "--admin", "off"}, "listen: "},
		"gRPC with identities alone": {[]string{"--listen", everywhere, "--admin", "off", "--access", identities}, "listen: "},
		"HTTP":                       {append([]string{"--http", everywhere}, local...), "http: "},
		"reload":                     {[]string{"--listen", "127.0.0.1:0", "--admin", everywhere, "--admin-reload"}, "admin-reload: "},
		"reload with TLS alone":      {append([]string{"--admin", everywhere, "--admin-reload", "--admin-tls"}, secure...), "admin-reload: "},
		"the profiler":               {append([]string{"--pprof", everywhere}, local...), "pprof: "},
		"the profiler beside TLS":    {append(append([]string{"--pprof", everywhere}, local...), secure...), "pprof: "},
		"a key alone":                {append([]string{"--tls-key", v.path("tls.key")}, local...), "tls-cert"},
		"a client CA alone":          {append([]string{"--tls-client-ca", v.path("tls.crt")}, local...), "tls-client-ca"},
		"a CRL alone":                {append(append([]string{"--tls-crl", v.path("crl.pem")}, local...), secure...), "tls-crl"},
	} {
		if r := refused(ctx, t, append([]string{"--policy", policy}, c.args...)...); r.Code != 2 || !strings.Contains(r.Stderr, c.flag) {
			t.Errorf("%s: exit %d, without %q: %s", name, r.Code, c.flag, r.Stderr)
		}
	}
	for name, args := range map[string][]string{
		"probes": {"--admin", everywhere},
		"TLS":    append([]string{"--listen", everywhere, "--http", everywhere}, secure...),
		"reload": append([]string{"--admin", everywhere, "--admin-reload", "--admin-tls", "--access", identities}, secure...),
	} {
		t.Run(name, func(t *testing.T) {
			if s := serveSite(t, args...); strings.Contains(s.Log(), "insecure-plaintext") {
				t.Error("it is said to be insecure")
			}
		})
	}
	s := serveSite(t, "--insecure-plaintext", "--listen", everywhere, "--http", everywhere, "--admin", everywhere, "--admin-reload")
	if !regexp.MustCompile(`"level":"warn".*insecure-plaintext: whoever is on the network can read passes`).MatchString(s.Log()) {
		t.Error("there is no warning")
	}
}

// TestExposureBySettings: the settings that a file names are refused as flags are.
func TestExposureBySettings(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	settings := v.put("ckd.yaml", fmt.Appendf(nil, "policy: [%q]\nadmin: \"off\"\nlisten: [\"0.0.0.0:0\"]\n", writePolicy(t, policyText)))
	r := refused(inTime(t), t, "--config", settings)
	if r.Code != 2 || !strings.Contains(r.Stderr, settings+":3:") || !strings.Contains(r.Stderr, "listen: ") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}
