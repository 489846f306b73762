package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ok(t, err)
	cert, err := x509.ParseCertificate(der)
	ok(t, err)
	return &authority{t, cert, key}
}

// issue makes a certificate for a name, that is good until then, as PEM.
func (a *authority) issue(name string, until time.Time) (cert, key []byte) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	ok(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	ok(a.t, err)
	return block("CERTIFICATE", der), block("PRIVATE KEY", secret)
}

func (a *authority) pem() []byte { return block("CERTIFICATE", a.cert.Raw) }

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write makes a file new, as a rename does.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	ok(t, os.WriteFile(path+".new", text, 0o600))
	ok(t, os.Rename(path+".new", path))
}

// pair is a certificate with its key, as a server uses it.
func (a *authority) pair(name string, until time.Time) *tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.issue(name, until))
	ok(a.t, err)
	return &pair
}

func soon() time.Time { return time.Now().Add(time.Hour) }

// Everything that secures a connection is exchanged while a client lives, and what
// is wrong with a daemon's certificate is refused.
func TestTLS(t *testing.T) {
	first, second, other := newAuthority(t), newAuthority(t), newAuthority(t)
	var serves atomic.Pointer[tls.Certificate] // by the daemon
	var trusts atomic.Pointer[authority]       // of clients
	var clients atomic.Value                   // the certificate of the last one
	var newest atomic.Uint32                   // version of TLS; 0 for any
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := x509.NewCertPool()
		pool.AddCert(trusts.Load().cert)
		return &tls.Config{
			Certificates: []tls.Certificate{*serves.Load()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
			NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12, MaxVersion: uint16(newest.Load()),
			VerifyConnection: func(state tls.ConnectionState) error {
				clients.Store(state.PeerCertificates[0].Subject.CommonName)
				return nil
			},
		}, nil
	}
	r := startReplica(t, grpc.Creds(credentials.NewTLS(config)))
	_, port, err := net.SplitHostPort(r.address)
	ok(t, err)

	dir := t.TempDir()
	files := client.TLSFiles{
		CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ServerName: "ckd",
	}
	put := func(ca, a *authority, name string) {
		t.Helper()
		cert, key := a.issue(name, soon())
		write(t, files.CA, ca.pem())
		write(t, files.Cert, cert)
		write(t, files.Key, key)
	}
	put(first, first, "grader")
	serves.Store(first.pair("ckd", soon()))
	trusts.Store(first)
	dial := func() *client.Client {
		t.Helper()
		swift := grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute,
		})
		c, err := client.Dial("localhost:"+port, client.WithTLS(files), client.WithDialOptions(swift))
		ok(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	// again is a connection by a client that has had others.
	c := dial()
	again := func() error {
		t.Helper()
		_, err := c.Models(t.Context())
		if err == nil {
			r.kill()
		}
		return err
	}
	decided := func(step, grader string) {
		t.Helper()
		until(t, step, func() bool { return again() == nil && clients.Load() == grader }) // between them, one may find its connection closed
	}
	decided("the first connection", "grader")

	put(first, second, "renewed") // the client's, before the daemon knows its authority
	trusts.Store(second)
	decided("another certificate of the client", "renewed")

	put(second, second, "renewed")
	serves.Store(second.pair("ckd", soon()))
	decided("another certificate of the daemon", "renewed")

	// While files are being replaced, those that were read last are good.
	write(t, files.Key, []byte("half a ke"))
	decided("with a key that cannot be read", "renewed")

	for _, bad := range []struct {
		name  string
		serve *tls.Certificate
		want  string
	}{
		{"another authority", other.pair("ckd", soon()), "certificate signed by unknown authority"},
		{"another name", second.pair("elsewhere", soon()), "certificate is valid for elsewhere, not ckd"},
		{"expired", second.pair("ckd", time.Now().Add(-time.Hour)), "certificate has expired"},
	} {
		serves.Store(bad.serve)
		err := again()
		until(t, bad.name, func() bool {
			err = again()
			return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), bad.want)
		})
		if !strings.Contains(err.Error(), "as now: TLS certificate") {
			t.Errorf("%s: error %v, expected that it tells of the key", bad.name, err)
		}
	}
	serves.Store(second.pair("ckd", soon()))
	decided("a good certificate again", "renewed")

	put(second, second, "old")
	newest.Store(tls.VersionTLS12)
	if _, err := dial().Models(t.Context()); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: error %v, expected that it is refused", err)
	}
}

func TestDialRefusesTLSFiles(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	path := func(name string, text []byte) string {
		write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	text, secret := a.issue("grader", soon())
	_, another := a.issue("grader", soon())
	cert, key, ca, empty := path("cert", text), path("key", secret), path("ca", a.pem()), path("empty", nil)
	files := client.WithTLS(client.TLSFiles{CA: ca})
	for _, c := range []struct {
		name string
		opts []client.Option
		want string
	}{
		{"no such authorities", []client.Option{client.WithTLS(client.TLSFiles{CA: filepath.Join(dir, "none")})}, "none: no such file"},
		{"no authority", []client.Option{client.WithTLS(client.TLSFiles{CA: empty})}, "empty: no certificate, expected at least one"},
		{"a key as authority", []client.Option{client.WithTLS(client.TLSFiles{CA: key})}, "key: no certificate"},
		{"no key", []client.Option{client.WithTLS(client.TLSFiles{Cert: cert})}, "expected both or neither"},
		{"no certificate", []client.Option{client.WithTLS(client.TLSFiles{Key: key})}, "expected both or neither"},
		{"another key", []client.Option{client.WithTLS(client.TLSFiles{Cert: cert, Key: path("other", another)})}, "does not match"},
		{"beside credentials", []client.Option{files, client.WithCredentials(credentials.NewTLS(nil))}, "two ways to secure the connection"},
		{"beside plaintext", []client.Option{files, client.WithInsecure()}, "two ways to secure the connection"},
		{"credentials beside plaintext", []client.Option{client.WithInsecure(), client.WithCredentials(insecure.NewCredentials())},
			"two ways to secure the connection"},
		{"the system's authorities", []client.Option{client.WithTLS(client.TLSFiles{})}, ""},
		{"all", []client.Option{client.WithTLS(client.TLSFiles{CA: ca, Cert: cert, Key: key, ServerName: "ckd"})}, ""},
	} {
		cl, err := client.Dial("ckd:8590", c.opts...)
		if err == nil {
			ok(t, cl.Close())
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the error tells what is in a file: %v", c.name, err)
		}
	}
}
