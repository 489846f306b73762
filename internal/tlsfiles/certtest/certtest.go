// Package certtest issues certificates for tests, to servers and clients: good ones, expired ones,
// those of another CA, and revoked ones.
package certtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// CA issues certificates.
type CA struct {
	Cert *x509.Certificate
	// PEM is the certificate of the CA.
	PEM   []byte
	above []byte // PEM, for chains; empty for a root
	key   *ecdsa.PrivateKey
}

// Pair is a certificate with its key.
type Pair struct {
	Cert *x509.Certificate
	// CertPEM is followed by the intermediates.
	CertPEM, KeyPEM []byte
}

// TLS returns the pair as crypto/tls takes it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.CertPEM, p.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var serial atomic.Int64

// NewCA returns a root CA.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	return (*CA)(nil).Intermediate(t, name)
}

// Intermediate returns a CA below another.
func (ca *CA) Intermediate(t testing.TB, name string) *CA {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, key := ca.sign(t, template)
	made := &CA{Cert: cert, PEM: encode("CERTIFICATE", cert.Raw), key: key}
	if ca != nil {
		made.above = append(bytes.Clone(made.PEM), ca.above...)
	}
	return made
}

// Issue issues a certificate for servers and clients at 127.0.0.1 and localhost, valid from an hour
// ago for a month. The changes change that.
func (ca *CA) Issue(t testing.TB, changes ...func(*x509.Certificate)) Pair {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range changes {
		change(template)
	}
	cert, key := ca.sign(t, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: cert, CertPEM: append(encode("CERTIFICATE", cert.Raw), ca.above...), KeyPEM: encode("PRIVATE KEY", der)}
}

// Client issues a client certificate with these names alone: a URI, a DNS name, or CN= with a common
// name.
func (ca *CA) Client(t testing.TB, names ...string) Pair {
	t.Helper()
	return ca.Issue(t, func(c *x509.Certificate) {
		c.Subject, c.DNSNames, c.IPAddresses = pkix.Name{}, nil, nil
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		for _, name := range names {
			u, err := url.Parse(name)
			switch {
			case len(name) > 3 && name[:3] == "CN=":
				c.Subject.CommonName = name[3:]
			case err == nil && u.Host != "":
				c.URIs = append(c.URIs, u)
			default:
				c.DNSNames = append(c.DNSNames, name)
			}
		}
	})
}

// Valid returns a change that sets when a certificate is valid.
func Valid(from, until time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = from, until }
}

// Revoke returns a PEM list of revoked certificates that is up to date until then.
func (ca *CA) Revoke(t testing.TB, until time.Time, revoked ...*x509.Certificate) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(serial.Add(1)), ThisUpdate: until.Add(-24 * time.Hour), NextUpdate: until}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: list.ThisUpdate})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("X509 CRL", der)
}

// Pool returns a pool of the CA alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return pool
}

// sign signs a template; a nil CA signs with the template's own key.
func (ca *CA) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(serial.Add(1))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.Cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
