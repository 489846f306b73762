package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

const (
	tokenA = "token-of-a-0123456789"
	tokenB = "token-of-b-0123456789"
)

func sumOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// find returns the token files of the tests.
func find(path string) ([]byte, error) {
	switch path {
	case "/etc/ckd/a", "/run/a":
		return []byte(tokenA + "\n"), nil
	case "/run/b":
		return []byte(tokenB + "=="), nil
	case "/run/short":
		return []byte("0123456789abcde\n"), nil
	case "/run/two":
		return []byte(tokenA + "\n" + tokenB + "\n"), nil
	case "/run/long":
		return []byte(strings.Repeat("x", 4097)), nil
	case "/run/empty":
		return nil, nil
	case "/run/ca":
		return []byte("no PEM"), nil
	case "/run/denied":
		return nil, errors.New("permission denied")
	}
	return nil, fs.ErrNotExist
}

// TestFaults checks that all faults of a file are reported together, each with its place.
func TestFaults(t *testing.T) {
	identity := func(fields string) string { return "identities:\n- name: a\n  " + fields + "\n" }
	issuers := func(fields string) string { return "issuers: [{" + fields + "}]\nidentities: []\n" }
	const holdsNone = "expected one line of 16 to 4096 letters, digits and -._~+/, with = at the end"
	const certificate = "expected a URI, a DNS name in lower case or CN= with a common name, found "
	const name = "expected at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit, found "
	tests := []struct{ name, text, want string }{
		{"empty", "", "1:1: empty, expected a mapping"},
		{"unknown field", "identitys: []\nidentities: []", `1:1: identitys: unknown field, did you mean "identities"?`},
		{"missing", "{}", "1:1: identities: missing, expected a list of identities"},
		{"no name", "identities:\n- admin: true", "2:3: identities[0].name: missing, expected at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"},
		{"a bad name", "identities:\n- name: a b", `2:9: identities[0].name: ` + name + `"a b"`},
		{"a name twice", "identities:\n- name: a\n- name: a", `3:9: identity "a": name: already the name of the identity at 2:9, expected one of its own`},
		{"unknown field of an identity", identity("model: [a]"), `3:3: identity "a": model: unknown field, did you mean "models"?`},
		{"streams", identity("streams: -1"), `3:12: identity "a": streams: expected a whole number from 0 to 1000000, found -1`},
		{"models", identity(`models: "*"`), `3:11: identity "a": models: expected a list, found text "*"`},
		{"a model's name", identity("models: [m*]"), `3:12: identity "a": models[0]: ` + name + `"m*"`},
		{"all and one", identity(`models: [m, "*"]`), `3:15: identity "a": models[1]: "*" is all models, expected it alone`},
		{"a model twice", identity("models: [m, n, m]"), `3:18: identity "a": models[2]: given twice, first at 3:12`},
		{"a wildcard", identity(`certificates: ["*.eye.svc"]`), `3:18: identity "a": certificates[0]: ` + certificate + `"*.eye.svc"`},
		{"capitals", identity(`certificates: [A.svc]`), `3:18: identity "a": certificates[0]: ` + certificate + `"A.svc"`},
		{"no common name", identity(`certificates: ["CN="]`), `3:18: identity "a": certificates[0]: ` + certificate + `"CN="`},
		{"no host", identity(`certificates: ["spiffe:///sa"]`), `3:18: identity "a": certificates[0]: ` + certificate + `"spiffe:///sa"`},
		{"a long name", identity("certificates: [" + strings.Repeat("a", 513) + "]"), `3:18: identity "a": certificates[0]: ` + certificate + `"` + strings.Repeat("a", 80) + `..."`},
		{"a certificate twice", identity("certificates: [a.svc]\n- name: b\n  certificates: [b.svc, a.svc]"), `5:25: identity "b": certificates[1]: already a certificate of the identity at 3:18, expected each of one`},
		{"tokens", identity("tokens: " + tokenA), `3:11: identity "a": tokens: expected a list`},
		{"a token in the list", identity("tokens: [" + tokenA + "]"), `3:12: identity "a": tokens[0]: expected a mapping`},
		{"a token itself", identity("tokens: [{token: x}]"), "3:12: identity \"a\": tokens[0]: expected either file or sha256\n" + `3:13: identity "a": tokens[0].token: unknown field`},
		{"no token", identity("tokens: [{}]"), `3:12: identity "a": tokens[0]: expected either file or sha256`},
		{"both", identity("tokens: [{file: /run/a, sha256: " + sumOf(tokenB) + "}]"), `3:12: identity "a": tokens[0]: expected either file or sha256`},
		{"no path", identity(`tokens: [{file: ""}]`), `3:19: identity "a": tokens[0].file: empty, expected a path`},
		{"unreadable", identity("tokens: [{file: /run/denied}]"), `3:19: identity "a": tokens[0].file: cannot read /run/denied: permission denied`},
		{"a short token", identity("tokens: [{file: /run/short}]"), `3:19: identity "a": tokens[0].file: /run/short holds no token, ` + holdsNone},
		{"an empty token", identity("tokens: [{file: /run/empty}]"), `3:19: identity "a": tokens[0].file: /run/empty holds no token, ` + holdsNone},
		{"two tokens", identity("tokens: [{file: /run/two}]"), `3:19: identity "a": tokens[0].file: /run/two holds no token, ` + holdsNone},
		{"a long token", identity("tokens: [{file: /run/long}]"), `3:19: identity "a": tokens[0].file: /run/long holds no token, ` + holdsNone},
		{"no hash", identity("tokens: [{sha256: " + tokenA + "}]"), `3:21: identity "a": tokens[0].sha256: expected 64 hexadecimal digits in lower case`},
		{"a long hash", identity("tokens: [{sha256: " + sumOf(tokenA) + "00}]"), `3:21: identity "a": tokens[0].sha256: expected 64 hexadecimal digits in lower case`},
		{"capital digits", identity("tokens: [{sha256: " + strings.ToUpper(sumOf(tokenA)) + "}]"), `3:21: identity "a": tokens[0].sha256: expected 64 hexadecimal digits in lower case`},
		{"a token twice", identity("tokens: [{file: /run/a}]\n- name: b\n  tokens: [{sha256: " + sumOf(tokenA) + "}]"), `5:21: identity "b": tokens[0].sha256: the same token as at 3:19, expected each token once`},
		{"no issuer's name", issuers("url: https://a, audience: b"), "1:11: issuers[0].name: missing, expected at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"},
		{"an issuer's name alone", issuers("name: i"), `1:11: issuer "i": url: missing, expected an https URL` + "\n" + `1:11: issuer "i": audience: missing, expected a text`},
		{"plaintext", issuers("name: i, url: http://a, audience: b"), `1:26: issuer "i": url: expected an https URL, found "http://a"`},
		{"a password", issuers("name: i, url: https://a, keys: 'https://u:p@a', audience: b"), `1:43: issuer "i": keys: expected an https URL, found "https://u:p@a"`},
		{"no audience", issuers("name: i, url: https://a, audience: ''"), `1:47: issuer "i": audience: empty, expected the audience of the daemon's tokens`},
		{"no CA", issuers("name: i, url: https://a, audience: b, ca: /run/ca"), `1:54: issuer "i": ca: /run/ca holds no certificate, expected CAs in PEM`},
		{"a CA that is gone", issuers("name: i, url: https://a, audience: b, ca: /run/gone"), `1:54: issuer "i": ca: cannot read /run/gone: file does not exist`},
		{"an issuer twice", issuers("name: i, url: https://a, audience: b}, {name: i, url: https://a, audience: b"), `1:58: issuer "i": name: already the name of the issuer at 1:18, expected one of its own`},
		{"no such issuer", identity("jwts: [{issuer: i, claims: {sub: a}}]"), `3:19: identity "a": jwts[0].issuer: no issuer is named "i", expected it under issuers`},
		{"no claims", identity("jwts: [{issuer: i, claims: {}}]") + "issuers: [{name: i, url: https://a, audience: b}]", `3:30: identity "a": jwts[0].claims: empty, expected at least one claim: any token of the issuer would do`},
		{"a claim of a number", identity("jwts: [{issuer: i, claims: {sub: [a]}}]") + "issuers: [{name: i, url: https://a, audience: b}]", `3:36: identity "a": jwts[0].claims.sub: expected text, found a list`},
		{"many at once", identity("admin: 1\n- name: b\n  streams: x\n- recent: 1"), `3:10: identity "a": admin: expected true or false, found 1
5:12: identity "b": streams: expected a whole number from 0 to 1000000, found text "x"
6:3: identities[2].name: missing, expected at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit
6:11: identities[2].recent: expected true or false, found 1`},
	}
	var many strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&many, "  - sha256: %s\n", sumOf(fmt.Sprint(i)))
	}
	tests = append(tests, struct{ name, text, want string }{
		"too many tokens", identity("tokens:\n" + many.String()),
		fmt.Sprintf(`%d:13: identity "a": tokens[%d].sha256: more than %d tokens, expected at most so many in all`, 4+maxTokens, maxTokens, maxTokens),
	})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, _, err := parse("/etc/ckd/access.yaml", []byte(test.text), find)
			var faults Faults
			if r != nil || !errors.As(err, &faults) {
				t.Fatalf("%v, %v, want faults", r, err)
			}
			want := "/etc/ckd/access.yaml:" + strings.ReplaceAll(test.want, "\n", "\n/etc/ckd/access.yaml:")
			if err.Error() != want {
				t.Errorf("faults\n%v\nwant\n%s", err, want)
			}
		})
	}
}

// TestParse checks what is read of an access file.
func TestParse(t *testing.T) {
	r, files, err := parse("/etc/ckd/access.yaml", []byte(`
identities:
- name: grader
  tokens: [{file: a}, {file: /run/b}, {file: /run/gone}]
  certificates: ["spiffe://cluster/ns/eye/sa/grader", grader.eye.svc, "CN=Grader of eyes"]
  models: [fetal-health]
  streams: 16
  watches: 0
- name: operator
  tokens: [{sha256: `+sumOf("another-token-0123456789")+`}]
  models: ["*"]
  admin: true
  recent: true
  outcomes: true
  clear: true
  issue: true
  streams: 2
  calls: 3
- name: suspended
`), find)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(files, " "), "/etc/ckd/a /run/b /run/gone"; got != want {
		t.Errorf("token files %s, want %s", got, want)
	}
	wantWarnings := `/etc/ckd/access.yaml:4:46: identity "grader": tokens[2].file: /run/gone does not exist: the token counts as withdrawn
/etc/ckd/access.yaml:19:3: identity "suspended": neither tokens nor certificates nor jwts: nobody is known as it`
	if got := strings.Join(r.warnings, "\n"); got != wantWarnings {
		t.Errorf("warnings\n%s\nwant\n%s", got, wantWarnings)
	}
	grader, operator := r.identities["grader"], r.identities["operator"]
	for token, want := range map[string]*Identity{
		tokenA: grader, tokenB + "==": grader, "another-token-0123456789": operator, "": nil, tokenB: nil, tokenA + "\n": nil,
	} {
		if got := r.tokens[sha256.Sum256([]byte(token))]; got != want {
			t.Errorf("token %q: %v, want %v", token, got.Name(), want.Name())
		}
	}
	type rights struct {
		fetal, other, admin, recent, outcomes, clear, issue bool
		streams, calls, watches                             int64
	}
	rightsOf := func(i *Identity) rights {
		return rights{i.MayUse("fetal-health"), i.MayUse("other"), i.mayAdmin(), i.MaySeeRecent(), i.MayReportOutcomes(), i.MayClear(), i.MayIssue(), i.Streams().Limit(), i.Calls().Limit(), i.Watches().Limit()}
	}
	for name, test := range map[string]struct{ got, want rights }{
		"grader":    {rightsOf(grader), rights{fetal: true, streams: 16}},
		"operator":  {rightsOf(operator), rights{true, true, true, true, true, true, true, 2, 3, 2}},
		"suspended": {rightsOf(r.identities["suspended"]), rights{}},
		"nobody":    {rightsOf(nobody), rights{}},
		"no access": {rightsOf(nil), rights{true, true, true, true, true, true, true, 0, 0, 0}},
	} {
		if test.got != test.want {
			t.Errorf("%s: %+v, want %+v", name, test.got, test.want)
		}
	}
	if r, _, err := parse("a", []byte("identities: []"), find); err != nil || strings.Join(r.warnings, "") != "a:1:13: no identities: nobody may call" {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzParse checks that parse returns, for any bytes, either faults with a place and a reason or
// valid identities, and shows no token.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"identities: []",
		"identities:\n- name: a\n  tokens: [{file: a}, {sha256: " + sumOf(tokenB) + "}]\n  certificates: [spiffe://c/a, a.svc, CN=a]\n  models: [m]\n  streams: 3\n",
		"identities:\n- {name: a, models: ['*'], admin: true, recent: true}\n- name: a\n",
		"identities:\n- {name: a, tokens: [{file: /run/denied}, {file: /run/none}, {file: x, sha256: y}]}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := parse("/etc/ckd/fuzz.yaml", data, find)
		if err != nil {
			var faults Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("%T, want Faults", err)
			}
			for i, fault := range faults {
				if fault.Line < 1 || fault.Col < 1 || fault.Reason == "" || strings.Contains(fault.Error(), "\n") {
					t.Errorf("fault %+v has no place or no reason, or is not a line", fault)
				}
				if i > 0 && fault.Line < faults[i-1].Line {
					t.Errorf("fault %v comes after %v", fault, faults[i-1])
				}
			}
			return
		}
		if len(r.tokens) > maxTokens {
			t.Errorf("%d tokens", len(r.tokens))
		}
		for _, holder := range r.tokens {
			if r.identities[holder.name] != holder {
				t.Errorf("a token of %q is not its", holder.name)
			}
		}
		for name, holder := range r.certificates {
			if !isCertificateName(name) || r.identities[holder.name] != holder {
				t.Errorf("the certificate %q is not of %q", name, holder.name)
			}
		}
		for name, i := range r.identities {
			if name == "" || i.name != name || i.streams < 0 || i.streams > maxStreams || i.use == nil || i.allModels && len(i.models) > 0 {
				t.Errorf("%+v", i)
			}
		}
	})
}
