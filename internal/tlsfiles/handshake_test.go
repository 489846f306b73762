package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestHandshake checks which clients are let in, and what each side sees.
func TestHandshake(t *testing.T) {
	servers, clients, others := certtest.NewCA(t, "servers"), certtest.NewCA(t, "clients"), certtest.NewCA(t, "others")
	below, belowRevoked := clients.Intermediate(t, "below"), clients.Intermediate(t, "below, revoked")
	server := servers.Issue(t)
	good, revoked := clients.Client(t, "a"), clients.Client(t, "a")
	past := certtest.Valid(time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	future := certtest.Valid(time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
	list := clients.Revoke(t, time.Now().Add(time.Hour), revoked.Cert, belowRevoked.Cert)

	change := func(c *tls.Config, f func(*tls.Config)) *tls.Config {
		f(c)
		return c
	}
	upTo := func(version uint16) *tls.Config {
		return change(clientOf(t, servers), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, version })
	}
	tests := []struct {
		name         string
		mTLS         bool
		client       *tls.Config
		server, seen string // fragments of the errors; empty for none
	}{
		{name: "TLS", client: clientOf(t, servers)},
		{name: "wrong CA", client: clientOf(t, others), server: "bad certificate", seen: "signed by unknown authority"},
		{
			name: "wrong name", client: change(clientOf(t, servers), func(c *tls.Config) { c.ServerName = "elsewhere" }),
			server: "bad certificate", seen: "not elsewhere",
		},
		{name: "TLS 1.1", client: upTo(tls.VersionTLS11), server: "unsupported versions", seen: "protocol version"},
		{name: "TLS 1.2", client: upTo(tls.VersionTLS12), server: "unsupported versions", seen: "protocol version"},
		{name: "plaintext", client: nil, server: "does not look like a TLS handshake", seen: "EOF|reset"},
		{
			name: "another protocol", client: change(clientOf(t, servers), func(c *tls.Config) { c.NextProtos = []string{"h3"} }),
			server: "unsupported application protocols", seen: "no application protocol",
		},

		{name: "mTLS", mTLS: true, client: clientOf(t, servers, good)},
		{name: "mTLS through an intermediate", mTLS: true, client: clientOf(t, servers, below.Client(t, "a"))},
		{name: "no client certificate", mTLS: true, client: clientOf(t, servers), server: "didn't provide a certificate", seen: "certificate required"},
		{name: "client certificate of another CA", mTLS: true, client: clientOf(t, servers, others.Client(t, "a")), server: "didn't provide|unknown authority", seen: "any"},
		{name: "expired client certificate", mTLS: true, client: clientOf(t, servers, clients.Issue(t, past)), server: "expired", seen: "any"},
		{name: "client certificate of the future", mTLS: true, client: clientOf(t, servers, clients.Issue(t, future)), server: "not yet valid", seen: "any"},
		{
			name: "a server's certificate as a client's", mTLS: true, server: "incompatible key usage", seen: "any",
			client: clientOf(t, servers, clients.Issue(t, func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			})),
		},
		{name: "revoked", mTLS: true, client: clientOf(t, servers, revoked), server: tlsfiles.ErrUntrusted.Error(), seen: "bad certificate"},
		{
			name: "issued by a CA that was revoked", mTLS: true, client: clientOf(t, servers, belowRevoked.Client(t, "a")),
			server: tlsfiles.ErrUntrusted.Error(), seen: "bad certificate",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFiles(t, server, nil, nil)
			if test.mTLS {
				f = newFiles(t, server, clients.PEM, list)
			}
			s := f.load(t)
			if test.client != nil && test.client.Certificates != nil { // the client shows it whatever CAs the server names
				shown := test.client.Certificates[0]
				test.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
			}
			r := shake(t, tlsfiles.Credentials(s), test.client)
			if !matches(r.server, test.server) || !matches(r.client, test.seen) {
				t.Errorf("server %q, client %q; want fragments %q, %q", text(r.server), text(r.client), test.server, test.seen)
			}
			if test.server != "" {
				return
			}
			if info, ok := r.auth.(credentials.TLSInfo); !ok || info.State.Version != tls.VersionTLS13 || tlsfiles.IsInProcess(r.auth) {
				t.Errorf("%+v, want TLS 1.3", r.auth)
			}
		})
	}
}

// matches reports whether an error has one of the fragments; no fragments mean no error.
func matches(err error, fragments string) bool {
	if fragments == "" || err == nil {
		return (fragments == "") == (err == nil)
	}
	for fragment := range strings.SplitSeq(fragments, "|") {
		if fragment == "any" || strings.Contains(err.Error(), fragment) {
			return true
		}
	}
	return false
}

// TestNothingIsResumed checks that no session is resumed: it would outlive the CA or the revocation
// list that it was checked against.
func TestNothingIsResumed(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	creds := tlsfiles.Credentials(newFiles(t, ca.Issue(t), ca.PEM, nil).load(t))
	client := clientOf(t, ca, ca.Client(t, "a"))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 3 {
		r := shake(t, creds, client)
		if r.server != nil || r.client != nil || r.state.DidResume {
			t.Errorf("server %v, client %v, resumed %t", r.server, r.client, r.state.DidResume)
		}
	}
}

// inProcess marks a connection within the process.
type inProcess struct{ net.Conn }

func (inProcess) InProcess() {}

// TestCredentials checks the transport and the security level that connections of several listeners
// report, with TLS and in plaintext.
func TestCredentials(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	secure, plain := tlsfiles.Credentials(newFiles(t, ca.Issue(t), nil, nil).load(t)), tlsfiles.Credentials(nil)
	if got := secure.Info().SecurityProtocol + " " + plain.Info().SecurityProtocol; got != "tls insecure" {
		t.Errorf("protocols %s", got)
	}
	unix := filepath.Join(t.TempDir(), "s")
	for _, test := range []struct {
		name, network, address string
		wrap                   func(net.Conn) net.Conn
		creds                  credentials.TransportCredentials
		inProcess              bool
		level                  credentials.SecurityLevel
	}{
		{"unix", "unix", unix, nil, secure, false, credentials.PrivacyAndIntegrity},
		{"unix without TLS", "unix", unix, nil, plain, false, credentials.PrivacyAndIntegrity},
		{"in process", "tcp", "127.0.0.1:0", func(c net.Conn) net.Conn { return inProcess{c} }, secure, true, credentials.PrivacyAndIntegrity},
		{"network", "tcp", "127.0.0.1:0", nil, plain, false, credentials.NoSecurity},
		{"a wrapped connection within the process", "tcp", "127.0.0.1:0", func(c net.Conn) net.Conn {
			return struct{ net.Conn }{inProcess{c}}
		}, plain, false, credentials.NoSecurity},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen(test.network, test.address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := net.Dial(test.network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			raw, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if test.wrap != nil {
				raw = test.wrap(raw)
			}
			c, info, err := test.creds.ServerHandshake(raw)
			if err != nil || c != raw {
				t.Fatalf("%v, %v, want the connection as it is", c, err)
			}
			plain, ok := info.(tlsfiles.Plaintext)
			if !ok || plain.SecurityLevel != test.level || tlsfiles.IsInProcess(info) != test.inProcess {
				t.Errorf("%+v, want the level %v, in process %t", info, test.level, test.inProcess)
			}
		})
	}
	if tlsfiles.IsInProcess(nil) {
		t.Error("no AuthInfo is in process")
	}
	if _, _, err := secure.ClientHandshake(t.Context(), "", nil); err == nil {
		t.Error("a client shakes hands")
	}
}
