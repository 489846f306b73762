package issuer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Why Verify refuses a token. It returns these errors as they are.
var (
	// ErrInvalid says that the token is none of this issuer for this audience.
	ErrInvalid = errors.New("the token is not valid")
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
	// CAFile holds the CAs, in PEM, that the issuer's certificate leads to. If it is empty, those of
	// the system count. It is read at each fetch.
	CAFile string
	// TokenFile holds a bearer token to present to the hosts of URL and Keys. It is read at each
	// fetch, and may be empty.
	TokenFile string
}

// Options connects an Issuer with its surroundings. The zero Options is valid.
type Options struct {
	// Fetched is called after a fetch that failed, succeeded after a failure, or brought other keys.
	Fetched func(Fetch)
	// Now returns the time. Nil means time.Now.
	Now func() time.Time
	// Refresh says how often keys are fetched, and Least how soon after a fetch an unknown key may
	// ask for the next. A failed fetch is repeated after a tenth of Least, and then after ever longer
	// waits up to Refresh. The keys before an empty set stay in force for Refresh. Zero means 5 minutes
	// and 10 seconds.
	Refresh, Least time.Duration
}

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
	config  Config
	options Options
	keys    atomic.Pointer[keySet] // nil until the first fetch succeeds
	wake    chan struct{}
	get     func(context.Context) (*keySet, error) // fetches a set; only tests replace it
	emptied time.Time                              // when an empty set was fetched first; zero after one that is not
}

// New returns an issuer without keys.
func New(c Config, o Options) *Issuer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Refresh == 0 {
		o.Refresh = 5 * time.Minute
	}
	if o.Least == 0 {
		o.Least = 10 * time.Second
	}
	i := &Issuer{config: c, options: o, wake: make(chan struct{}, 1)}
	i.get = i.fetch
	return i
}

// Config returns the configuration.
func (i *Issuer) Config() Config { return i.config }

// Token is a verified token.
type Token struct {
	// Claims are the claims, decoded from JSON.
	Claims map[string]any
	// Expiry is the token's end.
	Expiry time.Time

	by  *Issuer
	key string // thumbprint of the key that signed it
}

// Issuer returns the issuer that verified the token.
func (t *Token) Issuer() *Issuer { return t.by }

// Trusted reports whether the issuer still publishes the key that signed the token.
func (t *Token) Trusted() bool { return t.by.keys.Load().thumbprints[t.key] }

// Ended reports whether the token has expired by now.
func (t *Token) Ended() bool { return !t.by.options.Now().Before(t.Expiry) }

// algorithms are those whose keys are public. With a symmetric one, who can verify can also sign.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Verify returns the token that a text is: signed by a key at hand, of this issuer, for the
// audience, begun and not ended. Its error is ErrInvalid, ErrExpired or ErrNoKeys.
func (i *Issuer) Verify(text string) (*Token, error) {
	by := &verification{keys: i.keys.Load()}
	verifier := oidc.NewVerifier(i.config.URL, by, &oidc.Config{
		ClientID: i.config.Audience, SupportedSigningAlgs: algorithms, Now: i.options.Now,
	})
	t, err := verifier.Verify(context.Background(), text)
	var expired *oidc.TokenExpiredError
	switch {
	case by.unknown && i.mayBeNew(by.keys):
		i.ask()
		return nil, ErrNoKeys
	case errors.As(err, &expired):
		return nil, ErrExpired
	case err != nil:
		return nil, ErrInvalid
	}
	verified := &Token{Expiry: t.Expiry, by: i, key: by.thumbprint}
	if err := t.Claims(&verified.Claims); err != nil || verified.Ended() {
		return nil, ErrExpired
	}
	return verified, nil
}

// mayBeNew reports whether a key that is not in the set may have been published since the fetch.
func (i *Issuer) mayBeNew(s *keySet) bool {
	return s == nil || i.options.Now().Sub(s.at) >= i.options.Least
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

// VerifySignature implements oidc.KeySet. The caller has checked the algorithm.
func (v *verification) VerifySignature(_ context.Context, text string) ([]byte, error) {
	parsed := make([]jose.SignatureAlgorithm, len(algorithms))
	for n, a := range algorithms {
		parsed[n] = jose.SignatureAlgorithm(a)
	}
	signed, err := jose.ParseSignedCompact(text, parsed)
	if err != nil {
		return nil, err
	}
	header := signed.Signatures[0].Header
	k := v.keys.find(header.KeyID, header.Algorithm)
	if k == nil {
		v.unknown = true
		return nil, ErrNoKeys
	}
	v.thumbprint = k.thumbprint
	return signed.Verify(k.public)
}

// Claimed returns the issuer that a text claims to be of, unverified, if the text has the form of a
// JWT.
func Claimed(text string) (url string, ok bool) {
	_, rest, _ := strings.Cut(text, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") {
		return "", false
	}
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", false
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	err = json.Unmarshal(data, &claims)
	return claims.Issuer, err == nil && claims.Issuer != ""
}

// Has reports whether a claim has a value: it is that text, or a list that contains it. Path names
// the claim. If the token has no claim of that name, the parts of the path between slashes lead
// into nested claims, as in kubernetes.io/namespace.
func (t *Token) Has(path, value string) bool {
	claim, ok := t.Claims[path]
	if !ok {
		claim = t.Claims
		for part := range strings.SplitSeq(path, "/") {
			object, _ := claim.(map[string]any)
			if claim, ok = object[part]; !ok {
				return false
			}
		}
	}
	switch is := claim.(type) {
	case string:
		return is == value
	case []any:
		for _, item := range is {
			if item == any(value) {
				return true
			}
		}
	}
	return false
}
