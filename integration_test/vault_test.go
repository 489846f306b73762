package integration_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// vault holds the certificates, keys, tokens and lists of one test in a folder, with one CA for
// servers and one for clients.
type vault struct {
	t                *testing.T
	dir              string
	servers, clients *certtest.CA
	secrets          map[string]bool // texts that must appear in no log or metric
}

func newVault(t *testing.T) *vault {
	t.Helper()
	return &vault{t, t.TempDir(), certtest.NewCA(t, "servers"), certtest.NewCA(t, "clients"), map[string]bool{}}
}

func (v *vault) path(name string) string { return filepath.Join(v.dir, name) }

// put replaces a file in one step.
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

// tls writes a server's certificate and returns the flags that name it.
func (v *vault) tls(pair certtest.Pair) []string {
	v.t.Helper()
	v.keep(pair)
	return []string{"--tls-cert", v.put("tls.crt", pair.CertPEM), "--tls-key", v.put("tls.key", pair.KeyPEM)}
}

// mutual adds to tls the flag that names the CA of clients.
func (v *vault) mutual(pair certtest.Pair) []string {
	v.t.Helper()
	return append(v.tls(pair), "--tls-client-ca", v.put("clients.crt", v.clients.PEM))
}

// keep adds the lines of a private key to the secrets.
func (v *vault) keep(pair certtest.Pair) {
	for line := range strings.Lines(string(pair.KeyPEM)) {
		if !strings.HasPrefix(line, "-----") {
			v.secrets[strings.TrimSpace(line)] = true
		}
	}
}

// token returns a new token and its hash. Both are secrets.
func (v *vault) token(name string) (token, sum string) {
	token = name + "-token-" + hex.EncodeToString([]byte(v.t.Name() + name))[:24]
	hash := sha256.Sum256([]byte(token))
	sum = hex.EncodeToString(hash[:])
	v.secrets[token], v.secrets[sum] = true, true
	return token, sum
}

// checkSecrets checks that the daemon's log and metrics contain no secret.
func (v *vault) checkSecrets(s *daemon) {
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

// trusting returns the TLS settings of a client that trusts ca and always presents its own
// certificate, if there is one.
func trusting(ca *certtest.CA, own ...tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS10}
	if len(own) > 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own[0], nil }
	}
	return c
}

// secured returns a client over TLS with connections of its own, for HTTP/1.1 or for HTTP/2.
func secured(t *testing.T, c *tls.Config, version int) *http.Client {
	transport := &http.Transport{TLSClientConfig: c.Clone(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// dialTLS returns a connection for gRPC, in plaintext if c is nil.
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
