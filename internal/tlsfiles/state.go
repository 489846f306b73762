package tlsfiles

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/watch"
)

// maxFileBytes bounds each file. Lists of revoked certificates can be long.
const maxFileBytes = 32 << 20

// state holds the contents of the files at one time.
type state struct {
	hash     string // hash of all files but the private key's
	pair     tls.Certificate
	chain    []*x509.Certificate // certificates in the order the server sends them
	notAfter time.Time

	clientCAs []*x509.Certificate
	pool      *x509.CertPool  // nil if no client certificates are requested
	trusted   map[string]bool // the client CAs, by authority()
	lists     []*x509.RevocationList
	unapplied []string // issuers of revocation lists that are not client CAs
	revoked   map[revocation]bool
}

// revocation identifies a revoked certificate by the key that signed it and its serial number. A CA
// keeps its key when its own certificate is renewed, or signed by several.
type revocation struct{ issuerKey, serial string }

// paths returns the files that are named.
func (o Options) paths() []string {
	return slices.DeleteFunc([]string{o.Cert, o.Key, o.ClientCA, o.CRL}, func(path string) bool { return path == "" })
}

// load reads all files. Its error names everything that is wrong.
func (o Options) load() (*state, error) {
	if o.Cert == "" || o.Key == "" {
		return nil, errors.New("TLS needs both a certificate and its key, expected a file for each")
	}
	if o.CRL != "" && o.ClientCA == "" {
		return nil, fmt.Errorf("%s: a list of revoked client certificates, expected the client CAs with it", o.CRL)
	}
	data, unread, err := watch.Read(maxFileBytes, o.paths()...)
	if err != nil {
		return nil, fmt.Errorf("TLS files: %w", err)
	}
	st := &state{}
	// read calls use with the content of a file, and names the file in its error.
	var faults []error
	read := func(path string, use func([]byte) error) {
		err := unread[path]
		if err != nil {
			err = fmt.Errorf("cannot read: %w", err)
		} else {
			err = use(withoutMark(data[path]))
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
		}
	}
	read(o.Cert, func(cert []byte) error {
		if err := unread[o.Key]; err != nil {
			return nil // reported below
		}
		return st.readPair(cert, withoutMark(data[o.Key]))
	})
	read(o.Key, func([]byte) error { return nil })
	if o.ClientCA != "" {
		read(o.ClientCA, st.readClientCAs)
	}
	if o.CRL != "" && len(st.clientCAs) > 0 {
		read(o.CRL, st.readLists)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	// The certificate stands for its private key.
	st.hash = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q", data[o.Cert], data[o.ClientCA], data[o.CRL])))
	return st, nil
}

// withoutMark returns a text without the byte order mark that editors on Windows begin it with: the
// decoder of PEM would pass over the first block.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

func (st *state) readPair(cert, key []byte) (err error) {
	if err := whole(cert); err != nil {
		return err
	}
	if st.pair, err = tls.X509KeyPair(cert, key); err != nil {
		if bytes.Contains(key, []byte("ENCRYPTED")) {
			return errors.New("its key is encrypted, expected one without a passphrase")
		}
		return fmt.Errorf("no certificate with its key: %w", err)
	}
	for i, der := range st.pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d of the chain: %w", i+1, err)
		}
		st.chain = append(st.chain, c)
		if i == 0 || c.NotAfter.Before(st.notAfter) {
			st.notAfter = c.NotAfter
		}
	}
	return nil
}

func (st *state) readClientCAs(data []byte) error {
	st.pool, st.trusted = x509.NewCertPool(), map[string]bool{}
	err := blocks(data, "CERTIFICATE", func(der []byte) error {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if !c.BasicConstraintsValid || !c.IsCA {
			return fmt.Errorf("%s is not a CA, expected certificates of CAs alone", c.Subject)
		}
		st.clientCAs = append(st.clientCAs, c)
		st.pool.AddCert(c)
		st.trusted[authority(c)] = true
		return nil
	})
	if err != nil {
		st.clientCAs = nil
	}
	return err
}

func (st *state) readLists(data []byte) error {
	st.revoked = map[revocation]bool{}
	return blocks(data, "X509 CRL", func(der []byte) error {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return err
		}
		if err := checkList(list); err != nil {
			return err
		}
		signed, known := false, false
		for _, ca := range st.clientCAs {
			if !bytes.Equal(ca.RawSubject, list.RawIssuer) {
				continue
			}
			known = true
			if list.CheckSignatureFrom(ca) != nil {
				continue
			}
			signed = true
			for _, entry := range list.RevokedCertificateEntries {
				st.revoked[revocationOf(ca, entry.SerialNumber)] = true
			}
		}
		switch {
		case signed:
			st.lists = append(st.lists, list)
		case known:
			return fmt.Errorf("the list of %s is signed by none of the client CAs of that name", list.Issuer)
		default: // removing a CA must not have to wait until its list is removed
			st.unapplied = append(st.unapplied, list.Issuer.String())
		}
		return nil
	})
}

// checkList returns an error for a list that says more than which certificates are revoked, and so
// cannot be read on its own.
func checkList(list *x509.RevocationList) error {
	for _, e := range list.Extensions {
		if e.Critical {
			return fmt.Errorf("the list of %s has the critical extension %s, expected a full list of one CA", list.Issuer, e.Id)
		}
	}
	return nil
}

// blocks calls read with each block of a PEM file. All blocks must be of one type.
func blocks(data []byte, kind string, read func(der []byte) error) error {
	if err := whole(data); err != nil {
		return err
	}
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != kind {
			return fmt.Errorf("block %d is %q, expected %s", n, block.Type, kind)
		}
		if err := read(block.Bytes); err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
	}
	if n == 0 {
		return fmt.Errorf("no PEM data, expected at least one block %s", kind)
	}
	return nil
}

// whole returns an error if a block of the file begins and is not valid PEM, as in a half-written
// file. The decoder would pass over it.
func whole(data []byte) error {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	if begun := bytes.Count(data, []byte("-----BEGIN ")); begun != n {
		return fmt.Errorf("%d PEM blocks begin and %d are whole, expected all", begun, n)
	}
	return nil
}

// valid returns why clients would refuse the server's certificate at a time, or nil.
func (st *state) valid(now time.Time) error {
	for _, c := range st.chain {
		if now.Before(c.NotBefore) {
			return fmt.Errorf("the certificate of %s is not valid before %s", c.Subject, moment(c.NotBefore))
		}
		if now.After(c.NotAfter) {
			return fmt.Errorf("the certificate of %s has expired at %s", c.Subject, moment(c.NotAfter))
		}
	}
	return nil
}

// warnings returns lines about certificates and lists that have expired or soon will.
func (st *state) warnings(now time.Time) []string {
	var warnings []string
	say := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	const day = 24 * time.Hour
	switch left := st.notAfter.Sub(now); {
	case left < 0:
		say("the server's certificate has expired at %s: clients refuse it", moment(st.notAfter))
	case left < day:
		say("the server's certificate expires within a day, at %s", moment(st.notAfter))
	case left < 7*day:
		say("the server's certificate expires within a week, at %s", moment(st.notAfter))
	}
	if leaf := st.chain[0]; len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs) == 0 {
		say("the server's certificate has no subject alternative name: most clients refuse it")
	}
	for _, ca := range st.clientCAs {
		if now.After(ca.NotAfter) {
			say("the client CA %s has expired at %s", ca.Subject, moment(ca.NotAfter))
		}
	}
	for _, issuer := range st.unapplied {
		say("the list of revoked certificates of %s is not applied: its issuer is none of the client CAs", issuer)
	}
	for _, l := range st.lists {
		if !l.NextUpdate.IsZero() && now.After(l.NextUpdate) {
			say("the list of revoked certificates of %s is out of date since %s; it is used as it is", l.Issuer, moment(l.NextUpdate))
		}
	}
	return warnings
}

// check returns ErrUntrusted unless the client certificate, if there is one, leads to a trusted CA
// without passing a revoked certificate. Expiry is left to the next handshake.
func (st *state) check(c tls.ConnectionState) error {
	if len(c.PeerCertificates) == 0 {
		return nil
	}
	for _, chain := range c.VerifiedChains {
		if st.trusts(chain) {
			return nil
		}
	}
	return ErrUntrusted
}

// trusts reports whether a chain, from the client's certificate up to a CA, is trusted.
func (st *state) trusts(chain []*x509.Certificate) bool {
	if len(chain) == 0 || !st.trusted[authority(chain[len(chain)-1])] {
		return false
	}
	for i, c := range chain[:len(chain)-1] {
		if st.revoked[revocationOf(chain[i+1], c.SerialNumber)] {
			return false
		}
	}
	return true
}

// authority identifies a CA by its name and key, which stay the same when its certificate is
// renewed.
func authority(ca *x509.Certificate) string {
	return string(ca.RawSubject) + string(ca.RawSubjectPublicKeyInfo)
}

func revocationOf(issuer *x509.Certificate, serial *big.Int) revocation {
	return revocation{string(issuer.RawSubjectPublicKeyInfo), serial.String()}
}

// config returns the configuration of one handshake.
func (st *state) config(o Options, optional bool, protocols []string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		SessionTicketsDisabled: true,
		Certificates:           []tls.Certificate{st.pair},
	}
	if st.pool != nil {
		c.ClientCAs = st.pool
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if optional {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		c.VerifyConnection = st.check // at every handshake, unlike VerifyPeerCertificate
	}
	return c
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
