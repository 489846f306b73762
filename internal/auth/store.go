package auth

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/internal/auth/internal/issuer"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/internal/watch"
)

// Options connects a Store with its surroundings. The zero Options is valid.
type Options struct {
	// Refused is called with every refused call, and must not block.
	Refused func(ctx context.Context, r Refusal)
	// Fetched is called with fetches of issuers' keys, and must not block.
	Fetched func(KeyFetch)
	// Drain is how long a stream may still answer its open inputs after its token has expired.
	Drain time.Duration
}

// Refusal describes a refused call.
type Refusal struct {
	Why string
	// What is the gRPC method, or the method and path of the HTTP request.
	What string
	// From is the address that the call came from, if known.
	From string
	// Who names the identity, if there is one.
	Who string
}

// Store keeps an access file in force. Its methods are safe for concurrent use. A nil Store means
// no access control.
type Store struct {
	path     string
	options  Options
	current  atomic.Pointer[roster]
	files    atomic.Pointer[[]string] // token files that the access file named last
	reloader *watch.Reloader
	jwts     jwtCache
	issuers  *issuers

	tracking sync.Mutex
	open     map[*session]struct{}
}

// Faults lists everything wrong with an access file, by position. Error returns one fault a line.
type Faults = strictyaml.Faults

// KeyFetch describes a fetch of the keys of a token issuer.
type KeyFetch = issuer.Fetch

// Open reads an access file and the token files that it names. Its error is of type Faults if the
// files could be read.
func Open(path string, o Options) (*Store, error) {
	s := &Store{path: path, options: o, open: map[*session]struct{}{}}
	s.files.Store(&[]string{})
	s.reloader = watch.NewReloader(s.paths, s.replace)
	s.issuers = newIssuers(s.fetched)
	r, err := s.load()
	if err != nil {
		return nil, err
	}
	s.issuers.use(r)
	s.current.Store(r)
	return s, nil
}

// Reload reads the files again and puts them in force if they have no fault. It ends the streams
// whose credentials were withdrawn. The outcome has the hash of the access file in force.
func (s *Store) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Hash returns the hash of the access file in force.
func (s *Store) Hash() string { return s.current.Load().hash }

// Watch reloads when the files change, until ctx ends, and calls report with what is new, warnings
// included. It begins with a reload, for what changed before. Meanwhile it keeps the keys of token
// issuers at hand.
func (s *Store) Watch(ctx context.Context, report func(watch.Outcome)) {
	defer s.issuers.run(ctx)()
	s.reloader.Watch(ctx, report)
}

// fetched reports a fetch of keys and rechecks open streams, since keys may have been withdrawn.
func (s *Store) fetched(f issuer.Fetch) {
	if s.options.Fetched != nil {
		s.options.Fetched(f)
	}
	s.recheck()
}

// recheck ends the streams whose credentials are no longer good.
func (s *Store) recheck() {
	s.tracking.Lock()
	sessions := make([]*session, 0, len(s.open))
	for one := range s.open {
		sessions = append(sessions, one)
	}
	s.tracking.Unlock()
	for _, one := range sessions {
		one.recheck()
	}
}

// paths returns the access file and the files that it names.
func (s *Store) paths() []string { return append([]string{s.path}, *s.files.Load()...) }

// replace puts the files' present contents in force.
func (s *Store) replace() (watch.Result, error) {
	was := s.current.Load()
	r, err := s.load()
	if err != nil {
		return watch.Result{Hash: was.hash, Warnings: was.warnings}, err
	}
	for name, i := range r.identities {
		if before := was.identities[name]; before != nil {
			i.use = before.use
			i.use.share.set(i.bytes)
		}
	}
	s.issuers.use(r)
	s.current.Store(r)
	s.recheck()
	return watch.Result{Changed: r.contents != was.contents, Hash: r.hash, Warnings: r.warnings}, nil
}

// load reads the access file and its token files, all as they were at one time.
func (s *Store) load() (*roster, error) {
	const attempts = 5
	tokenFiles := *s.files.Load()
	for range attempts {
		data, unread, err := watch.Read(strictyaml.MaxBytes+1, append([]string{s.path}, tokenFiles...)...)
		if err != nil {
			return nil, Faults{{File: s.path, Reason: err.Error()}}
		}
		if err := unread[s.path]; err != nil {
			return nil, Faults{{File: s.path, Reason: fmt.Sprintf("cannot read: %v", err)}}
		}
		missed := false // a token file that was not read with the others
		r, named, err := parse(s.path, data[s.path], func(path string) ([]byte, error) {
			if err := unread[path]; err != nil {
				return nil, err
			}
			token, ok := data[path]
			missed = missed || !ok
			return token, nil
		})
		if tokenFiles = named; missed {
			continue
		}
		s.files.Store(&named)
		if err != nil {
			return nil, err
		}
		r.hash = fmt.Sprintf("%x", sha256.Sum256(data[s.path]))
		r.contents = digest(data, append([]string{s.path}, named...))
		return r, nil
	}
	return nil, Faults{{File: s.path, Reason: "names other token files each time it is read, expected it to come to rest"}}
}

// digest returns a hash of the files at paths.
func digest(data map[string][]byte, paths []string) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, path := range paths {
		fmt.Fprintf(all, "%q %q\n", path, data[path])
	}
	all.Sum(sum[:0])
	return sum
}

// credential identifies a caller.
type credential struct {
	passedOn string // name of the identity, from within the process
	sum      [sha256.Size]byte
	isToken  bool
	text     string        // a token that may be a JWT, until verified
	jwt      *issuer.Token // it is a JWT
	// certificate was verified at the handshake. A connection whose certificate is revoked is closed.
	certificate *x509.Certificate
}

// who returns the identity of a credential, or the reason why there is none.
func (r *roster) who(c credential) (*Identity, string) {
	switch {
	case c.passedOn != "":
		if i := r.identities[c.passedOn]; i != nil {
			return i, ""
		}
		return nil, unknownIdentity
	case c.jwt != nil:
		return r.byJWT(c.jwt)
	case c.isToken:
		if i := r.tokens[c.sum]; i != nil {
			return i, ""
		}
		return nil, unknownToken
	case c.certificate != nil:
		return r.byCertificate(c.certificate)
	}
	return nil, noCredential
}

// byCertificate returns the only identity that has one of the certificate's names.
func (r *roster) byCertificate(c *x509.Certificate) (*Identity, string) {
	var found *Identity
	for _, name := range namesOf(c) {
		i := r.certificates[name]
		if i == nil || i == found {
			continue
		}
		if found != nil {
			return nil, ambiguousCertificate
		}
		found = i
	}
	if found == nil {
		return nil, unknownCertificate
	}
	return found, ""
}

// namesOf returns the names of a certificate as the access file writes them.
func namesOf(c *x509.Certificate) []string {
	var names []string
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	for _, name := range c.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	if c.Subject.CommonName != "" {
		names = append(names, commonName+c.Subject.CommonName)
	}
	return names
}

// tokenCredential reads the values of the header authorization. No value means no credential;
// anything but one bearer token is a bad credential.
func tokenCredential(values []string) (c credential, why string) {
	if len(values) == 0 {
		return c, ""
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "bearer") || text == "" || len(text) > mostJWTBytes {
		return c, badCredential
	}
	return credential{isToken: true, sum: sha256.Sum256([]byte(text)), text: text}, ""
}

// presented returns a caller's credential: its token, or else the certificate of its connection. A
// certificate does not make up for a bad token.
func presented(authorization []string, connection *tls.ConnectionState) (credential, string) {
	c, why := tokenCredential(authorization)
	if why != "" || c.isToken || connection == nil {
		return c, why
	}
	if len(connection.PeerCertificates) > 0 && len(connection.VerifiedChains) > 0 {
		c.certificate = connection.PeerCertificates[0]
	}
	return c, ""
}
