package client_test

import (
	"crypto/tls"
	"crypto/x509"
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
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// write replaces a file by renaming.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	ok(t, os.WriteFile(path+".new", text, 0o600))
	ok(t, os.Rename(path+".new", path))
}

// named gives a certificate one name.
func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames = name, []string{name} }
}

// TestTLS checks that all files that secure a connection can be replaced while a client lives, and
// that the daemon's certificate is held against them.
func TestTLS(t *testing.T) {
	first, second := certtest.NewCA(t, "first"), certtest.NewCA(t, "second")
	var serves atomic.Value                  // the daemon's certificate
	var trusts atomic.Pointer[x509.CertPool] // the authorities of client certificates
	var clients atomic.Value                 // the certificate of the last client
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{serves.Load().(tls.Certificate)},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: trusts.Load(),
			NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
			VerifyConnection: func(state tls.ConnectionState) error {
				clients.Store(state.PeerCertificates[0].Subject.CommonName)
				return nil
			},
		}, nil
	}
	r := listen(t, "tcp", grpc.Creds(credentials.NewTLS(config)))
	_, port, err := net.SplitHostPort(r.address)
	ok(t, err)

	dir := t.TempDir()
	files := client.TLSFiles{
		CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ServerName: "ckd",
	}
	put := func(daemons, clients *certtest.CA, name string) {
		t.Helper()
		own := clients.Issue(t, named(name))
		write(t, files.CA, daemons.PEM)
		write(t, files.Cert, own.CertPEM)
		write(t, files.Key, own.KeyPEM)
	}
	serve := func(ca *certtest.CA) {
		t.Helper()
		serves.Store(ca.Issue(t, named("ckd")).TLS(t))
	}
	put(first, first, "grader")
	serve(first)
	trusts.Store(first.Pool())
	swift := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute,
	})
	c, err := client.Dial("localhost:"+port, client.WithTLS(files), client.WithDialOptions(swift))
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	// again makes the client connect again.
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
		until(t, step, func() bool { return again() == nil && clients.Load() == grader }) // a connection may be closed while files change
	}
	decided("the first connection", "grader")

	trusts.Store(second.Pool())
	put(second, second, "renewed")
	serve(second)
	decided("other certificates of both", "renewed")

	serve(certtest.NewCA(t, "other"))
	until(t, "another authority", func() bool {
		err := again()
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "certificate signed by unknown authority")
	})
	serve(second)
	ok(t, os.Truncate(files.CA, 0)) // what was read last stays in use, with the certificate of its time
	own := second.Issue(t, named("later"))
	write(t, files.Cert, own.CertPEM)
	write(t, files.Key, own.KeyPEM)
	decided("authorities that cannot be read", "renewed")
}

// TestDialRefusesTLSFiles checks that Dial reports files that it cannot use, and options that
// contradict each other.
func TestDialRefusesTLSFiles(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	dir := t.TempDir()
	path := func(name string, text []byte) string {
		write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	own := ca.Issue(t)
	cert, key, authority, empty := path("cert", own.CertPEM), path("key", own.KeyPEM), path("ca", ca.PEM), path("empty", nil)
	another := path("other", ca.Issue(t).KeyPEM)
	files := client.WithTLS(client.TLSFiles{CA: authority})
	for _, c := range []struct {
		name string
		opts []client.Option
		want string
	}{
		{"no authority", []client.Option{client.WithTLS(client.TLSFiles{CA: empty})}, "empty: no certificate, expected at least one"},
		{"no key", []client.Option{client.WithTLS(client.TLSFiles{Cert: cert})}, "expected both or neither"},
		{"another key", []client.Option{client.WithTLS(client.TLSFiles{Cert: cert, Key: another})}, "does not match"},
		{"beside plaintext", []client.Option{files, client.WithInsecure()}, "two ways to secure the connection"},
		{"all", []client.Option{client.WithTLS(client.TLSFiles{CA: authority, Cert: cert, Key: key, ServerName: "ckd"})}, ""},
	} {
		t.Run(c.name, func(t *testing.T) { checkDial(t, c.want, "ckd:8590", c.opts...) })
	}
}
