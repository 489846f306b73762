package tlsfiles_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/credentials"

	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder holds a directory with the files of a Source.
type folder struct {
	dir     string
	options tlsfiles.Options
}

// newFiles writes plain files; a nil content means no file.
func newFiles(t *testing.T, server certtest.Pair, clientCA, list []byte) *folder {
	t.Helper()
	f := &folder{dir: t.TempDir()}
	f.options = tlsfiles.Options{Cert: f.path("tls.crt"), Key: f.path("tls.key")}
	f.put(t, "tls.crt", server.CertPEM)
	f.put(t, "tls.key", server.KeyPEM)
	if clientCA != nil {
		f.options.ClientCA = f.path("ca.crt")
		f.put(t, "ca.crt", clientCA)
	}
	if list != nil {
		f.options.CRL = f.path("crl.pem")
		f.put(t, "crl.pem", list)
	}
	return f
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// put sets the content of a file; nil removes it.
func (f *folder) put(t *testing.T, name string, data []byte) {
	t.Helper()
	err := os.WriteFile(f.path(name), data, 0o600)
	if data == nil {
		err = os.Remove(f.path(name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *folder) load(t *testing.T) *tlsfiles.Source {
	t.Helper()
	s, err := tlsfiles.Load(f.options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// result describes a handshake over loopback.
type result struct {
	server, client error // what each side saw; the client reads once, since TLS 1.3 refuses after its side is done
	auth           credentials.AuthInfo
	state          tls.ConnectionState // the client's
}

// shake makes a handshake with the gRPC credentials of a source.
func shake(t *testing.T, creds credentials.TransportCredentials, client *tls.Config) (r result) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := l.Accept()
		if err != nil {
			r.server = err
			return
		}
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
		var c net.Conn
		if c, r.auth, r.server = creds.ServerHandshake(raw); r.server == nil {
			_, _ = c.Write([]byte("!"))
			_ = c.Close()
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
	if client == nil { // plaintext, as an HTTP/2 client with prior knowledge
		_, err := raw.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		_, readErr := raw.Read(make([]byte, 1))
		r.client = errors.Join(err, readErr)
	} else {
		c := tls.Client(raw, client)
		if r.client = c.Handshake(); r.client == nil {
			r.state = c.ConnectionState()
			var b [1]byte
			if n, err := c.Read(b[:]); n == 0 {
				r.client = err
			}
		}
	}
	_ = raw.Close()
	<-served
	return r
}

// clientOf returns a client that trusts the CA of the server and shows certificates, if any.
func clientOf(t *testing.T, ca *certtest.CA, shows ...certtest.Pair) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", NextProtos: []string{"h2"}}
	for _, p := range shows {
		c.Certificates = append(c.Certificates, p.TLS(t))
	}
	return c
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
