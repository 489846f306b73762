package issuer_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/ckd-project/ckd/internal/auth/internal/issuer"
	"github.com/ckd-project/ckd/internal/issuertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configOf returns the configuration for a test's issuer.
func configOf(of *issuertest.Issuer) issuer.Config {
	return issuer.Config{URL: of.URL, Audience: issuertest.Audience, CAFile: of.CAFile}
}

// run runs an issuer until the end of the test, and returns the news of its fetches.
func run(t testing.TB, c issuer.Config, refresh, least time.Duration) (*issuer.Issuer, <-chan issuer.Fetch) {
	t.Helper()
	fetched := make(chan issuer.Fetch, 100)
	i := issuer.New(c, func(f issuer.Fetch) { fetched <- f })
	i.Pace(refresh, least)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return i, fetched
}

// next returns the next news.
func next(t testing.TB, fetched <-chan issuer.Fetch) issuer.Fetch {
	t.Helper()
	select {
	case f := <-fetched:
		return f
	case <-time.After(time.Minute):
		t.Fatal("no fetch in a minute")
		return issuer.Fetch{}
	}
}

const often = 10 * time.Millisecond

func TestVerify(t *testing.T) {
	tokens := issuertest.New(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := jose.JSONWebKey{Key: private, KeyID: "rsa", Use: "sig"}
	tokens.Publish(rsaKey.Public())
	encryption := jose.JSONWebKey{Key: private, KeyID: "enc", Use: "enc"}
	tokens.Publish(encryption.Public())
	i, fetched := run(t, configOf(tokens), time.Hour, time.Hour)
	if f := next(t, fetched); f.Err != nil || f.Keys != 2 {
		t.Fatalf("fetched %+v, want two keys", f)
	}
	claims := tokens.Claims(time.Hour, nil)
	good := tokens.Token(time.Hour, nil)
	parts := strings.Split(good, ".")
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	symmetric := func(secret []byte) string {
		return issuertest.Sign(t, jose.HS256, jose.JSONWebKey{Key: secret, KeyID: "rsa"}, claims)
	}
	stranger := issuertest.New(t)
	tests := []struct {
		name, token string
		want        error
	}{
		{"good", good, nil},
		{"RS256", issuertest.Sign(t, jose.RS256, rsaKey, claims), nil},
		{"PS512 of the same key", issuertest.Sign(t, jose.PS512, rsaKey, claims), nil},
		{"one audience", tokens.Token(time.Hour, map[string]any{"aud": issuertest.Audience}), nil},
		{"begins within the leeway", tokens.Token(time.Hour, map[string]any{"nbf": time.Now().Add(time.Minute).Unix()}), nil},
		{"wrong audience", tokens.Token(time.Hour, map[string]any{"aud": "other"}), issuer.ErrInvalid},
		{"no audience", tokens.Token(time.Hour, map[string]any{"aud": nil}), issuer.ErrInvalid},
		{"another issuer", tokens.Token(time.Hour, map[string]any{"iss": tokens.URL + "/"}), issuer.ErrInvalid},
		{"expired", tokens.Token(-time.Second, nil), issuer.ErrExpired},
		{"no end", tokens.Token(time.Hour, map[string]any{"exp": nil}), issuer.ErrExpired},
		{"an end that is no number", tokens.Token(time.Hour, map[string]any{"exp": "later"}), issuer.ErrInvalid},
		{"not begun", tokens.Token(time.Hour, map[string]any{"nbf": time.Now().Add(10 * time.Minute).Unix()}), issuer.ErrInvalid},
		{"alg none", encode(`{"alg":"none","kid":"first"}`) + "." + parts[1] + ".", issuer.ErrInvalid},
		{"no signature", parts[0] + "." + parts[1] + ".", issuer.ErrInvalid},
		{"HS256 by the public key", symmetric(public), issuer.ErrInvalid},
		{"HS256 by the empty key", symmetric([]byte(strings.Repeat("\x00", 32))), issuer.ErrInvalid},
		{"other claims", parts[0] + "." + encode(`{"sub":"root"}`) + "." + parts[2], issuer.ErrInvalid},
		{"a key for encryption", issuertest.Sign(t, jose.RS256, encryption, claims), issuer.ErrInvalid},
		{"a stranger's key of the same name", stranger.Token(time.Hour, map[string]any{"iss": tokens.URL}), issuer.ErrInvalid},
		{"an algorithm of another kind of key", issuertest.Sign(t, jose.RS256, jose.JSONWebKey{Key: private, KeyID: "first"}, claims), issuer.ErrInvalid},
		{"JSON serialization", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, issuer.ErrInvalid},
		{"huge", tokens.Token(time.Hour, map[string]any{"groups": strings.Repeat("x", 10<<10)}), nil},
		{"no token", "abc", issuer.ErrInvalid},
		{"empty", "", issuer.ErrInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			token, err := i.Verify(test.token)
			if !errors.Is(err, test.want) || (token == nil) != (test.want != nil) {
				t.Fatalf("%+v, %v, want %v", token, err, test.want)
			}
			if err == nil && (!token.Trusted() || token.Ended() || token.Issuer() != i) {
				t.Errorf("trusted %t, ended %t", token.Trusted(), token.Ended())
			}
		})
	}
}

// TestRotation checks that an unknown key is asked for at once, and that a withdrawn one is trusted
// no more.
func TestRotation(t *testing.T) {
	tokens := issuertest.New(t)
	i, fetched := run(t, configOf(tokens), time.Hour, often)
	next(t, fetched)
	old, err := i.Verify(tokens.Token(time.Hour, nil))
	if err != nil {
		t.Fatal(err)
	}
	tokens.Rotate("second", "first")
	fresh := tokens.Token(time.Hour, nil)
	verify := func() *issuer.Token {
		t.Helper()
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
			token, err := i.Verify(fresh)
			if err == nil {
				return token
			}
		}
		t.Fatal("not verified in a minute")
		return nil
	}
	second := verify()
	if !old.Trusted() || !second.Trusted() {
		t.Errorf("trusted %t and %t, want both", old.Trusted(), second.Trusted())
	}
	tokens.Rotate("third")
	fresh = tokens.Token(time.Hour, nil)
	third := verify()
	if old.Trusted() || second.Trusted() || !third.Trusted() {
		t.Errorf("trusted %t, %t, %t, want the third alone", old.Trusted(), second.Trusted(), third.Trusted())
	}
}

// TestEmptySet checks, in virtual time, what comes of an issuer that publishes a set without keys. A
// company that had withdrawn all keys after a theft was still open to the stolen one days later; one whose
// issuer publishes nothing for a moment in each rotation must not be locked out.
func TestEmptySet(t *testing.T) {
	tokens := issuertest.New(t)
	const none, unusable, fails = `{"keys": []}`, `{"keys": [{"kty": "oct", "k": "AAAA"}]}`, ""
	full := tokens.Set()
	text := tokens.Token(time.Hour, map[string]any{"nbf": nil}) // virtual time begins in the year 2000
	// Keys are fetched at minutes 0, 5 and 10; an empty set is followed 5 minutes after it was fetched first.
	for name, c := range map[string]struct {
		after   []string      // what is published from minute 7 on, each for a minute and the last for ever
		trusted time.Duration // from minute 7 on; 0 for ever
		good    bool          // in the end
	}{
		"empty":                 {[]string{none}, 8 * time.Minute, false},
		"without usable keys":   {[]string{unusable}, 8 * time.Minute, false},
		"empty, then down":      {[]string{none, none, none, none, fails}, 8 * time.Minute, false},
		"down, then empty":      {[]string{fails, fails, fails, fails, none}, 9*time.Minute + 3*time.Second, false},
		"empty for a moment":    {[]string{none, none, none, none, full}, 0, true},
		"empty again":           {[]string{none, none, none, none, full, full, none}, 14*time.Minute + 3*time.Second, false},
		"empty for ten minutes": {[]string{none, none, none, none, none, none, none, none, none, none, full}, 8 * time.Minute, true},
		"down":                  {[]string{fails}, 0, true},
		"no set":                {[]string{`{}`}, 0, true},
		"null":                  {[]string{`{"keys": null}`}, 0, true},
		"not JSON":              {[]string{`<html>`}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := issuer.New(configOf(tokens), func(issuer.Fetch) {})
				start := time.Now()
				i.Script(func() (string, error) {
					minute := int(time.Since(start).Minutes()) - 7
					if minute < 0 {
						return full, nil
					}
					if answer := c.after[min(minute, len(c.after)-1)]; answer != fails {
						return answer, nil
					}
					return "", errors.New("503")
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go i.Run(ctx)
				synctest.Wait()
				token, err := i.Verify(text)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(7*time.Minute + time.Second/2) // never at the moment of a fetch
				trusted := time.Duration(0)
				for now := time.Duration(0); now < time.Hour && trusted == 0; now += time.Second {
					if !token.Trusted() {
						trusted = now
					}
					time.Sleep(time.Second)
				}
				if trusted != c.trusted {
					t.Errorf("trusted for %v, want %v", trusted, c.trusted)
				}
				time.Sleep(time.Hour)
				if _, err := i.Verify(text); (err == nil) != c.good {
					t.Errorf("in the end: %v, want good: %t", err, c.good)
				}
			})
		})
	}
}

// TestUnknownKeys checks that tokens of unknown keys do not make the issuer busy.
func TestUnknownKeys(t *testing.T) {
	tokens := issuertest.New(t)
	i, fetched := run(t, configOf(tokens), time.Hour, time.Hour)
	next(t, fetched)
	tokens.Rotate("second")
	for range 100 {
		if _, err := i.Verify(tokens.Token(time.Hour, nil)); !errors.Is(err, issuer.ErrInvalid) {
			t.Fatalf("%v, want %v", err, issuer.ErrInvalid)
		}
	}
	if n, _ := tokens.Fetches(); n != 1 {
		t.Errorf("%d fetches, want one", n)
	}
}

// TestFetch checks how keys are asked for, and what is no answer.
func TestFetch(t *testing.T) {
	tokens := issuertest.New(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("own-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*issuer.Config)
		want   string // in the error
		bearer string
	}{
		{"discovered", func(*issuer.Config) {}, "", ""},
		{"with a token", func(c *issuer.Config) { c.TokenFile = token }, "", "Bearer own-token"},
		{"keys named", func(c *issuer.Config) { c.URL, c.Keys = "https://issuer.invalid", c.URL+"/keys" }, "", ""},
		{"a redirect", func(c *issuer.Config) { c.Keys = c.URL + "/elsewhere" }, "302 Found", ""},
		{"no keys", func(c *issuer.Config) { c.Keys = c.URL + "/.well-known/openid-configuration" }, "no JSON Web Key Set: it has no keys", ""},
		{"not found", func(c *issuer.Config) { c.Keys = c.URL + "/none" }, "404 Not Found", ""},
		{"another issuer's document", func(c *issuer.Config) { c.URL += "/" }, "discovery: ", ""},
		{"an unknown CA", func(c *issuer.Config) { c.CAFile = "" }, "certificate", ""},
		{"no CA file", func(c *issuer.Config) { c.CAFile = token + "x" }, "ca: ", ""},
		{"a CA file without a CA", func(c *issuer.Config) { c.CAFile = token }, "holds no certificate", ""},
		{"plaintext", func(c *issuer.Config) { c.Keys = strings.Replace(c.URL, "https", "http", 1) + "/keys" }, "expected an https URL", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := configOf(tokens)
			test.change(&c)
			_, fetched := run(t, c, time.Hour, time.Hour)
			f := next(t, fetched)
			if test.want != "" {
				if f.Err == nil || !strings.Contains(f.Err.Error(), test.want) {
					t.Errorf("%v, want %q", f.Err, test.want)
				}
				return
			}
			if _, bearer := tokens.Fetches(); f.Err != nil || f.Keys != 1 || bearer != test.bearer {
				t.Errorf("fetched %+v, presented %q, want one key and %q", f, bearer, test.bearer)
			}
		})
	}
}

func TestHas(t *testing.T) {
	var claims map[string]any
	if err := json.Unmarshal([]byte(`{
		"sub": "a", "groups": ["x", "y", 3], "admin": true, "n": 1, "https://a/b": "c",
		"kubernetes.io": {"namespace": "eye", "serviceaccount": {"name": "grader"}}}`), &claims); err != nil {
		t.Fatal(err)
	}
	token := issuer.TokenOf(claims)
	for _, test := range []struct {
		path, value string
		want        bool
	}{
		{"sub", "a", true}, {"sub", "A", false}, {"groups", "y", true}, {"groups", "z", false}, {"groups", "3", false},
		{"admin", "true", false}, {"n", "1", false}, {"https://a/b", "c", true}, {"none", "", false}, {"", "", false},
		{"kubernetes.io/namespace", "eye", true}, {"kubernetes.io/serviceaccount/name", "grader", true},
		{"kubernetes.io/serviceaccount", "grader", false}, {"sub/a", "a", false},
	} {
		if got := token.Has(test.path, test.value); got != test.want {
			t.Errorf("%s has %q: %t, want %t", test.path, test.value, got, test.want)
		}
	}
}

// FuzzVerify checks that no text but a signed one is verified, and that none is a panic.
func FuzzVerify(f *testing.F) {
	tokens := issuertest.New(f)
	i, fetched := run(f, configOf(tokens), time.Hour, time.Hour)
	next(f, fetched)
	good := tokens.Token(time.Hour, nil)
	signed := good[:strings.LastIndexByte(good, '.')]
	f.Add(good)
	f.Add(tokens.Token(-time.Hour, nil))
	f.Add("a.e30.")
	f.Add(`{"payload":"e30","protected":"e30","signature":""}`)
	f.Fuzz(func(t *testing.T, text string) {
		issuer.Claimed(text)
		token, err := i.Verify(text)
		if err == nil && !strings.HasPrefix(text, signed) {
			t.Errorf("%q is verified: %v", text, token)
		}
	})
}
