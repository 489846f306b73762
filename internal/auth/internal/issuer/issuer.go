package issuer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Why Verify refuses a token. It returns these errors as they are.
var (
	// errInvalid says that the token is none of this issuer for this audience.
	errInvalid = errors.New("the token is not valid")
	// ErrExpired says that the token has ended, or has no end.
	ErrExpired = errors.New("the token has expired")
	// ErrNoKeys says that the key of the token is not at hand, and that the keys are being fetched.
	ErrNoKeys = errors.New("the keys of the token's issuer are not at hand yet")
)

// Config describes an issuer. Two issuers with equal configurations are the same.
type Config struct {
	// URL is the issuer's https URL, as its tokens have it in the claim iss.
	URL string
	// Audience must be among the audiences of a token.
	Audience string
	// Keys is the https URL of the key set. If it is empty, the issuer's discovery document names it.
	Keys string
	// CAFile holds the CAs, in PEM, that the issuer's certificate leads to. If it is empty, the
	// system's CAs count. It is read at each fetch.
	CAFile string
	// TokenFile holds a bearer token to present to the hosts of URL and Keys. It is read at each
	// fetch, and may be empty.
	TokenFile string
}

const (
	// refreshEvery is how often keys are fetched, and how long the keys before an empty set stay in
	// force.
	refreshEvery = 5 * time.Minute
	// leastWait is how soon after a fetch an unknown key may ask for the next. A failed fetch is
	// repeated after a tenth of leastWait, and then after ever longer waits up to refreshEvery.
	leastWait = 10 * time.Second
)

// Fetch describes a fetch of keys.
type Fetch struct {
	// URL is the issuer's.
	URL string
	// Keys counts the keys in force.
	Keys int
	// Err says why nothing new is in force.
	Err error
}

// Issuer verifies tokens. Its methods are safe for concurrent use. Run must be running for it to
// have keys.
type Issuer struct {
	config         Config
	fetched        func(Fetch)
	refresh, least time.Duration
	keys           atomic.Pointer[keySet] // never nil
	wake           chan struct{}
	get            func(context.Context) (*keySet, error) // fetches a set; only tests replace it
	emptied        time.Time                              // when an empty set was first fetched; zero after a set with keys
}

// New returns an issuer without keys. It calls fetched after a fetch that failed, succeeded after a
// failure, or brought other keys.
func New(c Config, fetched func(Fetch)) *Issuer {
	i := &Issuer{config: c, fetched: fetched, refresh: refreshEvery, least: leastWait, wake: make(chan struct{}, 1)}
	i.get = i.fetch
	i.keys.Store(new(keySet))
	return i
}

// Config returns the configuration.
func (i *Issuer) Config() Config { return i.config }

// Token is a verified token.
type Token struct {
	// Expiry is the token's end.
	Expiry time.Time

	claims map[string]any // decoded from JSON
	issuer *Issuer
	key    string // thumbprint of the key that signed it
}

// Issuer returns the issuer that verified the token.
func (t *Token) Issuer() *Issuer { return t.issuer }

// Trusted reports whether the issuer still publishes the key that signed the token.
func (t *Token) Trusted() bool { return t.issuer.keys.Load().thumbprints[t.key] }

// Ended reports whether the token has expired by now.
func (t *Token) Ended() bool { return !time.Now().Before(t.Expiry) }

// algorithms lists the signatures whose keys are public. With a symmetric one, who can verify can
// also sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512, jose.EdDSA,
}

// algorithmNames lists the same for go-oidc.
var algorithmNames = func() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}()

// Verify returns the token that a text is: signed by a key at hand, of this issuer, for the
// audience, begun and not ended. Its error is errInvalid, ErrExpired or ErrNoKeys.
func (i *Issuer) Verify(text string) (*Token, error) {
	signature := &verification{keys: i.keys.Load()}
	verifier := oidc.NewVerifier(i.config.URL, signature, &oidc.Config{
		ClientID: i.config.Audience, SupportedSigningAlgs: algorithmNames,
	})
	t, err := verifier.Verify(context.Background(), text)
	var expired *oidc.TokenExpiredError
	switch {
	case signature.unknown && i.mayBeNew(signature.keys):
		i.ask()
		return nil, ErrNoKeys
	case errors.As(err, &expired):
		return nil, ErrExpired
	case err != nil:
		return nil, errInvalid
	}
	verified := &Token{Expiry: t.Expiry, issuer: i, key: signature.thumbprint}
	if err := t.Claims(&verified.claims); err != nil || verified.Ended() {
		return nil, ErrExpired
	}
	return verified, nil
}

// mayBeNew reports whether a key that is not in the set may have been published since the fetch.
func (i *Issuer) mayBeNew(s *keySet) bool {
	return time.Since(s.fetched) >= i.least
}

// ask makes Run fetch the keys soon.
func (i *Issuer) ask() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// verification checks one signature for go-oidc, which checks the claims. It notes which key it was.
type verification struct {
	keys       *keySet
	thumbprint string
	unknown    bool // the key is not at hand
}

// VerifySignature implements oidc.KeySet. The caller has checked the algorithm. A token need not name
// its key.
func (v *verification) VerifySignature(_ context.Context, text string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil {
		return nil, err
	}
	header := signed.Signatures[0].Header
	v.unknown = true
	for _, k := range v.keys.keys {
		if header.KeyID != "" && k.id != header.KeyID || k.algorithm != "" && k.algorithm != header.Algorithm {
			continue
		}
		v.unknown = false
		if payload, err := signed.Verify(k.public); err == nil {
			v.thumbprint = k.thumbprint
			return payload, nil
		}
	}
	return nil, errInvalid
}

// Claimed returns the issuer that a text claims to be of, unverified, if the text has the form of a
// JWT.
func Claimed(text string) (url string, ok bool) {
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return "", false
	}
	var claims jwt.Claims
	err = token.UnsafeClaimsWithoutVerification(&claims)
	return claims.Issuer, err == nil && claims.Issuer != ""
}

// Has reports whether a claim has a value: it is that text, or a list that contains it. Path names
// the claim. If the token has no claim of that name, the parts of the path between slashes lead
// into nested claims, as in kubernetes.io/namespace.
func (t *Token) Has(path, value string) bool {
	claim, ok := t.claims[path]
	if !ok {
		claim = t.claims
		for part := range strings.SplitSeq(path, "/") {
			object, _ := claim.(map[string]any)
			if claim, ok = object[part]; !ok {
				return false
			}
		}
	}
	switch found := claim.(type) {
	case string:
		return found == value
	case []any:
		return slices.Contains(found, any(value))
	}
	return false
}
