package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/internal/watch"
)

// Options are what a Store needs of its surroundings. All may be left out.
type Options struct {
	// CheckCertificate is an error where a client certificate that was good at its
	// handshake is not any more.
	CheckCertificate func(tls.ConnectionState) error
	// Refused is told of every call that is refused. It must not block.
	Refused func(ctx context.Context, r Refusal)
}

// Refusal is a call that is refused.
type Refusal struct {
	Why Reason
	// What was called: a gRPC method, or the method and path of an HTTP request.
	What string
	// From is the address that it came from, as far as that is known.
	From string
	// Who is the name of the identity, if it has one.
	Who string
}

// Store keeps the access file that is in force. Its methods may be called at the
// same time. A nil Store is no access control.
type Store struct {
	path     string
	options  Options
	current  atomic.Pointer[roster]
	files    atomic.Pointer[[]string] // those of tokens, as the file last named them
	reloader *watch.Reloader

	tracking sync.Mutex
	open     map[*session]struct{}
}

// Open reads an access file and the token files that it names. What is wrong with
// them is an error: Faults, if they could be read.
func Open(path string, o Options) (*Store, error) {
	s := &Store{path: path, options: o, open: map[*session]struct{}{}}
	s.files.Store(&[]string{})
	s.reloader = watch.NewReloader(s.places, s.replace)
	r, err := s.load()
	if err != nil {
		return nil, err
	}
	s.current.Store(r)
	return s, nil
}

// Reload reads the files again and, where they are without fault, puts what they
// say in force. Otherwise what was in force stays. Streams whose credentials are
// withdrawn end.
func (s *Store) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Hash of the access file in force.
func (s *Store) Hash() string { return s.current.Load().hash }

// Watch reloads when the files change, until ctx ends, and calls report with what
// is news, warnings included. It begins with a reload, for what changed before.
func (s *Store) Watch(ctx context.Context, report func(watch.Outcome)) { s.reloader.Watch(ctx, report) }

// Recheck ends the streams whose credentials are not good any more. A reload does
// it too; it is for when something else has changed, as the client CAs.
func (s *Store) Recheck() {
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

// places of the access file and of the token files.
func (s *Store) places() *watch.Places {
	return watch.PlacesOf(append([]string{s.path}, *s.files.Load()...)...)
}

// replace what is in force by what the files say, if that means something else.
func (s *Store) replace() (watch.Result, error) {
	defer s.Recheck() // certificates may have been revoked, too
	was := s.current.Load()
	r, err := s.load()
	if err != nil {
		return watch.Result{Hash: was.hash, Warnings: was.warnings}, err
	}
	for name, i := range r.identities {
		if before := was.identities[name]; before != nil {
			i.use = before.use
		}
	}
	s.current.Store(r)
	return watch.Result{Changed: r.meaning != was.meaning, Hash: r.hash, Warnings: r.warnings}, nil
}

// load the access file with its token files, all as they were at one time.
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
		return r, nil
	}
	return nil, Faults{{File: s.path, Reason: "names other token files each time it is read, expected it to come to rest"}}
}

// credential is by what a caller is known.
type credential struct {
	passedOn string // the identity, by those who had it from a caller within the process
	sum      [sha256.Size]byte
	isToken  bool
	tls      *tls.ConnectionState
}

// who is known by a credential, or why nobody is.
func (s *Store) who(r *roster, c credential) (*Identity, Reason) {
	switch {
	case c.passedOn != "":
		if i := r.identities[c.passedOn]; i != nil {
			return i, ""
		}
		return nil, UnknownIdentity
	case c.isToken:
		if i := r.byToken(c.sum); i != nil {
			return i, ""
		}
		return nil, UnknownToken
	case c.tls != nil:
		if s.options.CheckCertificate != nil && s.options.CheckCertificate(*c.tls) != nil {
			return nil, RevokedCertificate
		}
		return r.byCertificate(c.tls.PeerCertificates[0])
	}
	return nil, NoCredential
}

// byToken compares with every token there is, and takes as long whichever of them
// it is, or none.
func (r *roster) byToken(sum [sha256.Size]byte) *Identity {
	found := -1
	for n := range r.tokens {
		equal := subtle.ConstantTimeCompare(sum[:], r.tokens[n].sum[:])
		found = subtle.ConstantTimeSelect(equal, n, found)
	}
	if found < 0 {
		return nil
	}
	return r.tokens[found].of
}

// byCertificate is the one identity that has one of the certificate's names.
func (r *roster) byCertificate(c *x509.Certificate) (*Identity, Reason) {
	var found *Identity
	for _, name := range namesOf(c) {
		i := r.certificates[name]
		if i == nil || i == found {
			continue
		}
		if found != nil {
			return nil, AmbiguousCertificate
		}
		found = i
	}
	if found == nil {
		return nil, UnknownCertificate
	}
	return found, ""
}

// namesOf a certificate, as the access file writes them.
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

// tokenCredential reads the values of the header authorization. None is no
// credential; anything but one bearer token is a bad one.
func tokenCredential(values []string) (c credential, why Reason) {
	if len(values) == 0 {
		return c, ""
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "bearer") || text == "" || len(text) > mostTokenBytes {
		return c, BadCredential
	}
	return credential{isToken: true, sum: sha256.Sum256([]byte(text))}, ""
}

// presented is the credential of a caller: its token, or else the certificate of
// its connection. A token that is no good is not made up for by a certificate.
func presented(authorization []string, connection *tls.ConnectionState) (credential, Reason) {
	c, why := tokenCredential(authorization)
	if why != "" || c.isToken || connection == nil {
		return c, why
	}
	if len(connection.PeerCertificates) > 0 && len(connection.VerifiedChains) > 0 {
		c.tls = connection
	}
	return c, ""
}
