package tlsfiles_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestReloadKeepsTheOld checks that faulty new files leave the old ones in force, and that the next
// good files recover.
func TestReloadKeepsTheOld(t *testing.T) {
	ca, other := certtest.NewCA(t, "ca"), certtest.NewCA(t, "other")
	server, next := ca.Issue(t), ca.Issue(t)
	long := ca.Intermediate(t, "intermediate").Issue(t)
	now := time.Now()
	expired := ca.Issue(t, certtest.Valid(now.Add(-2*time.Hour), now.Add(-time.Hour)))
	future := ca.Issue(t, certtest.Valid(now.Add(time.Hour), now.Add(2*time.Hour)))
	list := ca.Revoke(t, now.Add(time.Hour))
	blockOf := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	type change map[string][]byte
	tests := []struct {
		name   string
		change change
		want   string // {dir} is the directory
	}{
		{"a certificate without its key", change{"tls.crt": next.CertPEM}, "{dir}/tls.crt: no certificate with its key: tls: private key does not match public key"},
		{"a key without its certificate", change{"tls.key": next.KeyPEM}, "{dir}/tls.crt: no certificate with its key: tls: private key does not match public key"},
		{"half a chain", change{"tls.crt": long.CertPEM[:len(long.CertPEM)-30], "tls.key": long.KeyPEM}, "{dir}/tls.crt: 2 PEM blocks begin and 1 are whole, expected all"},
		{"an encrypted key", change{"tls.crt": next.CertPEM, "tls.key": blockOf("ENCRYPTED PRIVATE KEY", []byte("x"))}, "{dir}/tls.crt: its key is encrypted, expected one without a passphrase"},
		{"nothing", change{"tls.crt": nil, "tls.key": nil}, "{dir}/tls.crt: cannot read: no such file or directory\n{dir}/tls.key: cannot read: no such file or directory"},
		{"no intermediate", change{"tls.crt": slices.Concat(next.CertPEM, blockOf("CERTIFICATE", []byte("x"))), "tls.key": next.KeyPEM}, "{dir}/tls.crt: certificate 2 of the chain: x509: malformed certificate"},
		{"expired", change{"tls.crt": expired.CertPEM, "tls.key": expired.KeyPEM}, "the certificate of CN=test has expired at " + expired.Cert.NotAfter.Format(time.RFC3339)},
		{"not yet valid", change{"tls.crt": future.CertPEM, "tls.key": future.KeyPEM}, "the certificate of CN=test is not valid before " + future.Cert.NotBefore.Format(time.RFC3339)},
		{"no CA", change{"ca.crt": server.CertPEM}, "{dir}/ca.crt: block 1: CN=test is not a CA, expected certificates of CAs alone"},
		{"half of the CAs", change{"ca.crt": slices.Concat(ca.PEM, other.PEM[:100])}, "{dir}/ca.crt: 2 PEM blocks begin and 1 are whole, expected all"},
		{"a list that another has signed in its name", change{"crl.pem": certtest.NewCA(t, "ca").Revoke(t, now)}, "{dir}/crl.pem: block 1: the list of CN=ca is signed by none of the client CAs of that name"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFiles(t, server, ca.PEM, list)
			s := f.load(t)
			before := s.Reload("test")
			if before.Err != nil || before.Changed || before.Hash == "" {
				t.Fatalf("%+v, want no change", before)
			}
			for name, data := range test.change {
				f.put(t, name, data)
			}
			want := strings.ReplaceAll(test.want, "{dir}", f.dir)
			out := s.Reload("test")
			if text(out.Err) != want || out.Changed || out.Hash != before.Hash {
				t.Errorf("%+v\n%v\nwant\n%s", out, out.Err, want)
			}
			if r := shake(t, tlsfiles.Credentials(s), clientOf(t, ca, ca.Client(t, "a"))); r.client != nil || r.state.PeerCertificates[0].SerialNumber.Cmp(server.Cert.SerialNumber) != 0 {
				t.Errorf("client %v, want the certificate from before", r.client)
			}
			if _, err := tlsfiles.Load(f.options); text(err) != want {
				t.Errorf("at the start %v, want\n%s", err, want)
			}
			f.put(t, "tls.crt", next.CertPEM)
			f.put(t, "tls.key", next.KeyPEM)
			f.put(t, "ca.crt", ca.PEM)
			f.put(t, "crl.pem", list)
			if out := s.Reload("test"); out.Err != nil || !out.Changed || !s.NotAfter().Equal(next.Cert.NotAfter) {
				t.Errorf("%+v, want the next one", out)
			}
		})
	}
}

// TestCATakenOut checks that a removed CA is no longer trusted although its revocation list
// remains, and that a warning names the list.
func TestCATakenOut(t *testing.T) {
	ca, other := certtest.NewCA(t, "ca"), certtest.NewCA(t, "other")
	f := newFiles(t, ca.Issue(t), slices.Concat(ca.PEM, other.PEM), append(ca.Revoke(t, time.Now().Add(time.Hour)), other.Revoke(t, time.Now().Add(time.Hour))...))
	s := f.load(t)
	f.put(t, "ca.crt", ca.PEM)
	out := s.Reload("test")
	const warning = "the list of revoked certificates of CN=other is not applied: its issuer is none of the client CAs"
	if out.Err != nil || !out.Changed || !strings.Contains(strings.Join(out.Warnings, "\n"), warning) {
		t.Errorf("%+v, want %q", out, warning)
	}
	if r := shake(t, tlsfiles.Credentials(s), clientOf(t, ca, other.Client(t, "a"))); r.server == nil {
		t.Error("a certificate of the CA that was taken out is trusted")
	}
	if r := shake(t, tlsfiles.Credentials(s), clientOf(t, ca, ca.Client(t, "a"))); r.server != nil {
		t.Errorf("a certificate of the other: %v", r.server)
	}
}

// TestByteOrderMarks loads files as editors on Windows write them.
func TestByteOrderMarks(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	server := ca.Issue(t)
	windows := func(text []byte) []byte {
		return append([]byte("\ufeff"), bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))...)
	}
	server.CertPEM, server.KeyPEM = windows(server.CertPEM), windows(server.KeyPEM)
	newFiles(t, server, windows(ca.PEM), windows(ca.Revoke(t, time.Now().Add(time.Hour)))).load(t)
}

func TestLoadOptions(t *testing.T) {
	for want, o := range map[string]tlsfiles.Options{
		"TLS needs both a certificate and its key, expected a file for each":                        {Cert: "a"},
		"b: a list of revoked client certificates, expected the client CAs with it":                 {Cert: "a", Key: "a", CRL: "b"},
		"/dev/null: cannot read: not a regular file\n/none: cannot read: no such file or directory": {Cert: "/dev/null", Key: "/none"},
	} {
		if _, err := tlsfiles.Load(o); text(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCriticalList checks that a revocation list that this package does not understand is refused,
// not applied in part.
func TestCriticalList(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	list, err := x509.ParseRevocationList(mustDecode(t, ca.Revoke(t, time.Now())))
	if err != nil || len(list.Extensions) == 0 {
		t.Fatal(err)
	}
	list.Extensions[0].Critical = true
	if err := tlsfiles.CheckList(list); err == nil || !strings.Contains(err.Error(), "critical extension") {
		t.Errorf("%v, want a refusal", err)
	}
}

func mustDecode(t *testing.T, data []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatal("no PEM")
	}
	return block.Bytes
}

// TestWarnings checks that files that have expired, or soon will, cause one warning for each stage
// and stay in use.
func TestWarnings(t *testing.T) {
	begin := time.Now().Truncate(time.Second)
	day := 24 * time.Hour
	ca := certtest.NewCA(t, "ca") // for 30 days
	revoked := ca.Client(t, "a")
	server := ca.Issue(t, certtest.Valid(begin.Add(-time.Hour), begin.Add(10*day)))
	f := newFiles(t, server, ca.PEM, ca.Revoke(t, begin.Add(2*day), revoked.Cert))
	s := f.load(t)
	momentAfter := func(after time.Duration) string { return begin.Add(after).UTC().Format(time.RFC3339) }
	list := "the list of revoked certificates of CN=ca is out of date since " + momentAfter(2*day) + "; it is used as it is"
	for _, test := range []struct {
		after time.Duration
		want  []string
	}{
		{0, nil},
		{3 * day, []string{list}},
		{4 * day, []string{"the server's certificate expires within a week, at " + momentAfter(10*day), list}},
		{9*day + time.Hour, []string{"the server's certificate expires within a day, at " + momentAfter(10*day), list}},
		{11 * day, []string{"the server's certificate has expired at " + momentAfter(10*day) + ": clients refuse it", list}},
	} {
		s.Clock(func() time.Time { return begin.Add(test.after) })
		out := s.Reload("test")
		if out.Err != nil || strings.Join(out.Warnings, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("after %s: %+v, want %q", test.after, out, test.want)
		}
	}
	if !s.NotAfter().Equal(begin.Add(10 * day)) {
		t.Errorf("not after %s", s.NotAfter())
	}
	// The list is out of date, and still applies.
	if r := shake(t, tlsfiles.Credentials(s), clientOf(t, ca, revoked)); !errors.Is(r.server, tlsfiles.ErrUntrusted) {
		t.Errorf("%v, want a revoked certificate to be refused", r.server)
	}
	// An expired certificate in force is no reason to refuse the next.
	f.put(t, "crl.pem", ca.Revoke(t, begin.Add(20*day)))
	s.Clock(time.Now)
	if out := s.Reload("test"); out.Err != nil || !out.Changed || len(out.Warnings) > 0 {
		t.Errorf("%+v, want a new list without warnings", out)
	}
}

// TestNotAfterOfChain checks that NotAfter is the earliest expiry in the chain.
func TestNotAfterOfChain(t *testing.T) {
	ca := certtest.NewCA(t, "ca").Intermediate(t, "below")
	s := newFiles(t, ca.Issue(t, certtest.Valid(time.Now().Add(-time.Hour), time.Now().Add(1000*time.Hour))), nil, nil).load(t)
	if !s.NotAfter().Equal(ca.Cert.NotAfter) {
		t.Errorf("%s, want the intermediate's %s", s.NotAfter(), ca.Cert.NotAfter)
	}
}

// TestRevocation checks that revoking a client certificate, or removing its CA, ends its
// connections at once and refuses new ones. Other clients keep theirs.
func TestRevocation(t *testing.T) {
	ca, old := certtest.NewCA(t, "ca"), certtest.NewCA(t, "old")
	revoked, good, aged := ca.Client(t, "a"), ca.Client(t, "a"), old.Client(t, "a")
	f := newFiles(t, ca.Issue(t), slices.Concat(ca.PEM, old.PEM), ca.Revoke(t, time.Now().Add(time.Hour)))
	s := f.load(t)
	address := serveHealth(t, tlsfiles.Credentials(s))
	dial := func(p certtest.Pair) *grpc.ClientConn {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(clientOf(t, ca, p))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := check(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	conns := map[string]*grpc.ClientConn{"revoked": dial(revoked), "good": dial(good), "aged": dial(aged)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := healthv1.NewHealthClient(conns["revoked"]).Watch(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if s.Open() != 3 {
		t.Errorf("%d connections known, want 3", s.Open())
	}
	reload := func() {
		if out := s.Reload("test"); out.Err != nil || !out.Changed {
			t.Fatalf("%+v, want a change", out)
		}
	}

	f.put(t, "crl.pem", ca.Revoke(t, time.Now().Add(time.Hour), revoked.Cert))
	reload()
	if _, err := stream.Recv(); err == nil || ctx.Err() != nil {
		t.Error("the stream of a revoked client goes on")
	}
	if err := check(conns["revoked"]); err == nil {
		t.Error("a revoked client is served")
	}
	if err := errors.Join(check(conns["good"]), check(conns["aged"])); err != nil {
		t.Error(err)
	}

	f.put(t, "ca.crt", ca.PEM)
	reload()
	if err := check(conns["aged"]); err == nil {
		t.Error("a client of a CA that is gone is served")
	}
	if err := check(conns["good"]); err != nil {
		t.Error(err)
	}
	testbed.Eventually(t, "one connection known", func() bool { return s.Open() == 1 })
	if r := shake(t, tlsfiles.Credentials(s), clientOf(t, ca, good)); r.client != nil {
		t.Errorf("%+v, want it good", r)
	}
	conns["good"].Close()
	testbed.Eventually(t, "no connections known", func() bool { return s.Open() == 0 })
}

// serveHealth serves the health service over TCP until the end of the test.
func serveHealth(t *testing.T, creds credentials.TransportCredentials) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(creds))
	healthv1.RegisterHealthServer(server, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return l.Addr().String()
}

// check makes one call.
func check(c *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := healthv1.NewHealthClient(c).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}
