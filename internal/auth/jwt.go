package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/internal/auth/internal/issuer"
)

// Bounds of JWTs.
const (
	mostJWTBytes = 16 << 10
	// mostVerified bounds the tokens whose verification is remembered, and with mostJWTBytes their
	// memory. Further ones are verified at each call.
	mostVerified = 1024
	mostIssuers  = 16
	mostRules    = 1024 // each is tried once for every token
)

// jwtRule names the claims that a JWT of an issuer must have to identify an identity.
type jwtRule struct {
	issuer   string // its name in the file
	claims   []claim
	identity *Identity
}

// claim is a claim's path, with the text that the claim must be or contain.
type claim struct{ path, value string }

// byJWT returns the only identity that the token's claims belong to.
func (r *roster) byJWT(t *issuer.Token) (*Identity, string) {
	if !t.Trusted() {
		return nil, invalidToken
	}
	var found *Identity
	for _, rule := range r.rules {
		if rule.identity == found || r.issuers[rule.issuer] != t.Issuer() || !rule.matches(t) {
			continue
		}
		if found != nil {
			return nil, ambiguousToken
		}
		found = rule.identity
	}
	if found == nil {
		return nil, unknownToken
	}
	return found, ""
}

func (j *jwtRule) matches(t *issuer.Token) bool {
	for _, c := range j.claims {
		if !t.Has(c.path, c.value) {
			return false
		}
	}
	return true
}

// verified returns a credential with its JWT verified, if its token is a JWT of an issuer of the file,
// and without the token's text. A token that the file itself lists is not taken for a JWT.
func (s *Store) verified(r *roster, c credential) (credential, string) {
	text := c.text
	c.text = ""
	if text == "" || len(r.issuers) == 0 || r.tokens[c.sum] != nil {
		return c, ""
	}
	if t := s.jwts.get(c.sum); t != nil && slices.Contains(slices.Collect(maps.Values(r.issuers)), t.Issuer()) {
		if t.Ended() {
			return c, expiredToken
		}
		c.jwt = t
		return c, ""
	}
	url, ok := issuer.Claimed(text)
	if !ok {
		return c, ""
	}
	why := unknownToken
	for _, i := range r.issuers {
		if i.Config().URL != url {
			continue
		}
		t, err := i.Verify(text)
		switch {
		case err == nil:
			c.jwt = t
			if _, none := r.byJWT(t); none == "" {
				s.jwts.put(c.sum, t)
			}
			return c, ""
		case errors.Is(err, issuer.ErrNoKeys):
			why = keysUnavailable
		case errors.Is(err, issuer.ErrExpired) && why != keysUnavailable:
			why = expiredToken
		case why == unknownToken:
			why = invalidToken
		}
	}
	return c, why
}

// jwtCache remembers verified tokens by their hash. It is safe for concurrent use.
type jwtCache struct {
	mu     sync.Mutex
	tokens map[[sha256.Size]byte]*issuer.Token
}

func (c *jwtCache) get(sum [sha256.Size]byte) *issuer.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tokens[sum]
	if t != nil && !t.Trusted() {
		delete(c.tokens, sum)
		return nil
	}
	return t
}

// put remembers a token. A full cache forgets any other.
func (c *jwtCache) put(sum [sha256.Size]byte, t *issuer.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		c.tokens = map[[sha256.Size]byte]*issuer.Token{}
	}
	for other := range c.tokens {
		if len(c.tokens) < mostVerified {
			break
		}
		delete(c.tokens, other)
	}
	c.tokens[sum] = t
}

// issuers keeps the issuers of the file in force, and fetches their keys while it runs. An issuer
// whose configuration a reload leaves alone keeps its keys.
type issuers struct {
	fetched func(issuer.Fetch)

	mu      sync.Mutex
	known   map[issuer.Config]*running
	ctx     context.Context // nil while nothing runs
	fetches sync.WaitGroup
}

// running is an issuer in force; stop is nil while nothing runs.
type running struct {
	issuer *issuer.Issuer
	stop   context.CancelFunc
}

func newIssuers(fetched func(issuer.Fetch)) *issuers {
	return &issuers{fetched: fetched, known: map[issuer.Config]*running{}}
}

// use puts the issuers of a file in force.
func (s *issuers) use(r *roster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[issuer.Config]bool{}
	r.issuers = make(map[string]*issuer.Issuer, len(r.configs))
	for name, c := range r.configs {
		wanted[c] = true
		known := s.known[c]
		if known == nil {
			known = &running{issuer: issuer.New(c, s.fetched)}
			s.known[c] = known
			s.start(known)
		}
		r.issuers[name] = known.issuer
	}
	for c, known := range s.known {
		if wanted[c] {
			continue
		}
		delete(s.known, c)
		if known.stop != nil {
			known.stop()
		}
	}
}

// start fetches the keys of an issuer if the others' are fetched. The caller holds mu.
func (s *issuers) start(known *running) {
	if s.ctx == nil {
		return
	}
	var ctx context.Context
	ctx, known.stop = context.WithCancel(s.ctx)
	s.fetches.Go(func() { known.issuer.Run(ctx) })
}

// run fetches keys until ctx ends. The function that it returns waits for the end.
func (s *issuers) run(ctx context.Context) (wait func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	s.ctx = ctx
	for _, one := range s.known {
		s.start(one)
	}
	return func() {
		cancel()
		s.mu.Lock()
		s.ctx = nil
		s.mu.Unlock()
		s.fetches.Wait()
	}
}
