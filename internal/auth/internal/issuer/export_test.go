package issuer

import (
	"context"
	"time"
)

// ErrInvalid is errInvalid.
var ErrInvalid = errInvalid

// Pace sets how often keys are fetched, and how soon after a fetch an unknown key may ask for the
// next.
func (i *Issuer) Pace(refresh, least time.Duration) { i.refresh, i.least = refresh, least }

// TokenOf returns a token with these claims.
func TokenOf(claims map[string]any) *Token { return &Token{claims: claims} }

// Script makes the issuer read key sets from get in place of the network.
func (i *Issuer) Script(get func() (jwks string, err error)) {
	i.get = func(context.Context) (*keySet, error) {
		text, err := get()
		if err != nil {
			return nil, err
		}
		set, err := readKeys([]byte(text))
		if err == nil {
			set.fetched = time.Now()
		}
		return set, err
	}
}
