// Package issuertest runs a token issuer for tests: discovery, keys that rotate, and tokens good and
// bad.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is the audience of the tokens that Token makes.
const Audience = "ckd"

// Issuer is a running issuer.
type Issuer struct {
	// URL is the issuer's URL, and CAFile holds its CA in PEM.
	URL, CAFile string

	t       testing.TB
	server  *httptest.Server
	mu      sync.Mutex
	down    bool
	key     jose.JSONWebKey   // signs
	public  []jose.JSONWebKey // published
	fetches int
	bearer  string // what the last fetch of keys presented
}

// New starts an issuer with one key, which stops with the test.
func New(t testing.TB) *Issuer {
	i := &Issuer{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/none",
			"response_types_supported": []string{"id_token"}, "id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.fetches++
		i.bearer = r.Header.Get("Authorization")
		set := jose.JSONWebKeySet{Keys: i.public}
		i.mu.Unlock()
		i.answer(w, set)
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) })
	i.server = httptest.NewTLSServer(mux)
	t.Cleanup(i.server.Close)
	i.URL = i.server.URL
	i.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	if err := os.WriteFile(i.CAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	i.Rotate("first")
	return i
}

func (i *Issuer) answer(w http.ResponseWriter, document any) {
	i.mu.Lock()
	down := i.down
	i.mu.Unlock()
	if down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(document); err != nil {
		i.t.Error(err)
	}
}

// Down makes the issuer answer with errors, or again as it should.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Rotate signs with a new key of this id from now on. It keeps the published keys
// with the given ids.
func (i *Issuer) Rotate(id string, keep ...string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = jose.JSONWebKey{Key: private, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
	public := []jose.JSONWebKey{i.key.Public()}
	for _, k := range i.public {
		for _, name := range keep {
			if k.KeyID == name {
				public = append(public, k)
			}
		}
	}
	i.public = public
}

// Publish adds a key to the published set.
func (i *Issuer) Publish(k jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = append(i.public, k)
}

// Set returns the key set that is published, in JSON.
func (i *Issuer) Set() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: i.public})
	if err != nil {
		i.t.Fatal(err)
	}
	return string(text)
}

// Fetches returns how often keys were fetched, and what the last fetch presented.
func (i *Issuer) Fetches() (n int, authorization string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches, i.bearer
}

// Claims returns the claims of a good token that ends after the given time, changed by others. A nil
// value removes a claim.
func (i *Issuer) Claims(left time.Duration, others map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": []string{"other", Audience}, "sub": "system:serviceaccount:eye:grader",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": float64(now.Add(left).UnixMilli()) / 1000,
	}
	maps.Copy(claims, others)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a token of these claims, signed by the current key. Verifiers round its end down to
// the second.
func (i *Issuer) Token(left time.Duration, others map[string]any) string {
	i.mu.Lock()
	key := i.key
	i.mu.Unlock()
	return Sign(i.t, jose.ES256, key, i.Claims(left, others))
}

// Sign returns a token of these claims.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
