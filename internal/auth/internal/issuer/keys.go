package issuer

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// Bounds of an issuer's answers.
const (
	mostKeys  = 100
	mostBytes = 1 << 20
	patience  = 10 * time.Second
)

// keySet holds the keys of one fetch.
type keySet struct {
	fetched     time.Time // zero before the first fetch
	keys        []key
	thumbprints map[string]bool
}

type key struct {
	id, thumbprint string
	algorithm      string // the only one that the key is for; empty for any of its kind
	public         crypto.PublicKey
}

// readKeys returns the keys of a JSON Web Key Set that can sign tokens, which may be none. A document
// without a list of keys is an error.
func readKeys(data []byte) (*keySet, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("no JSON Web Key Set: %w", err)
	}
	if raw.Keys == nil {
		return nil, errors.New("no JSON Web Key Set: it has no keys")
	}
	if len(raw.Keys) > mostKeys {
		return nil, fmt.Errorf("%d keys, expected at most %d", len(raw.Keys), mostKeys)
	}
	s := &keySet{thumbprints: map[string]bool{}}
	for _, text := range raw.Keys {
		var k jose.JSONWebKey
		if err := json.Unmarshal(text, &k); err != nil || !k.Valid() || !k.IsPublic() || k.Use != "" && k.Use != "sig" {
			continue // a key of a kind that is not for us
		}
		sum, err := k.Thumbprint(crypto.SHA256)
		if err != nil {
			continue
		}
		thumbprint := string(sum)
		if s.thumbprints[thumbprint] {
			continue
		}
		s.thumbprints[thumbprint] = true
		s.keys = append(s.keys, key{id: k.KeyID, thumbprint: thumbprint, algorithm: k.Algorithm, public: k.Key})
	}
	return s, nil
}

// Run fetches the keys now, at intervals, and when a token names an unknown one, until ctx ends.
func (i *Issuer) Run(ctx context.Context) {
	first := i.least / 10
	wait, failure := first, ""
	for {
		before := i.keys.Load()
		err := i.Fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		now, next := i.keys.Load(), i.refresh
		switch {
		case err == nil:
			if failure != "" || before.fetched.IsZero() || !maps.Equal(now.thumbprints, before.thumbprints) {
				i.fetched(Fetch{URL: i.config.URL, Keys: len(now.keys)})
			}
			wait, failure = first, ""
		default:
			next = min(wait, next)
			wait *= 2
			if left := i.beforeEmpty(time.Now()); left > 0 {
				next = min(next, left)
			}
			if failure != err.Error() {
				i.fetched(Fetch{URL: i.config.URL, Keys: len(now.keys), Err: err})
			}
			failure = err.Error()
		}
		if !i.rest(ctx, next) {
			return
		}
	}
}

// Fetch fetches the keys once and puts them in force. On an error the keys in force stay, unless the
// last set that the issuer published is empty: refreshEvery after its first fetch, none is in force
// any more, whatever fetches have failed since.
func (i *Issuer) Fetch(ctx context.Context) error {
	set, err := i.get(ctx)
	now := time.Now()
	switch {
	case err == nil && len(set.keys) > 0:
		i.keys.Store(set)
		i.emptied = time.Time{}
		return nil
	case err == nil && i.emptied.IsZero():
		i.emptied = now
	}
	if i.emptied.IsZero() {
		return err
	}
	state := "none is in force"
	if i.beforeEmpty(now) <= 0 {
		i.keys.Store(&keySet{fetched: now})
	} else if !i.keys.Load().fetched.IsZero() {
		state = "those before it stay in force until " + i.emptied.Add(i.refresh).UTC().Format(time.RFC3339)
	}
	return errors.Join(err, fmt.Errorf("no key that can sign tokens in the set fetched last, at %s: %s",
		i.emptied.UTC().Format(time.RFC3339), state))
}

// beforeEmpty returns how long the keys before an empty set are still in force.
func (i *Issuer) beforeEmpty(now time.Time) time.Duration {
	return i.emptied.Add(i.refresh).Sub(now)
}

// rest waits for the next fetch. It returns false when ctx ends.
func (i *Issuer) rest(ctx context.Context, next time.Duration) bool {
	least := min(i.least, next)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(least):
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(next - least):
	case <-i.wake:
	}
	return true
}

// fetch returns the keys that the issuer publishes now.
func (i *Issuer) fetch(ctx context.Context) (*keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := i.client()
	if err != nil {
		return nil, err
	}
	address := i.config.Keys
	if address == "" {
		provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), i.config.URL)
		if err != nil {
			return nil, fmt.Errorf("discovery: %s", brief(err))
		}
		var document struct {
			Keys string `json:"jwks_uri"`
		}
		if err := provider.Claims(&document); err != nil || document.Keys == "" {
			return nil, errors.New("discovery: the document names no jwks_uri")
		}
		address = document.Keys
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	begun := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("keys: %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys: %s: %s", address, response.Status)
	}
	set, err := readKeys(data)
	if err != nil {
		return nil, fmt.Errorf("keys: %s: %w", address, err)
	}
	set.fetched = begun
	return set, nil
}

// brief returns an error's text, cut: it may repeat what the issuer answered.
func brief(err error) string {
	const most = 300
	text := err.Error()
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// client returns a client for one fetch. It keeps no connection.
func (i *Issuer) client() (*http.Client, error) {
	t := &transport{base: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}}
	if i.config.CAFile != "" {
		pem, err := os.ReadFile(i.config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s holds no certificate", i.config.CAFile)
		}
		t.base.TLSClientConfig.RootCAs = pool
	}
	if i.config.TokenFile != "" {
		token, err := os.ReadFile(i.config.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		t.token, t.hosts = strings.TrimSpace(string(token)), map[string]bool{}
		for _, address := range []string{i.config.URL, i.config.Keys} {
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				t.hosts[u.Host] = true
			}
		}
	}
	return &http.Client{
		Transport: t,
		// A redirect could lead the token, or the trust in the keys, elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// transport presents the token to the hosts that the configuration names, and bounds the answers.
type transport struct {
	base  *http.Transport
	token string
	hosts map[string]bool
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("expected an https URL, found %s", r.URL.Redacted())
	}
	if t.token != "" && t.hosts[r.URL.Host] {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	response, err := t.base.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, mostBytes)
	}
	return response, err
}
