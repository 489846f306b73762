package auth

import (
	"crypto/x509"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// issuerFields returns the fields of an issuer.
func issuerFields() []field {
	const address = "an https URL"
	return []field{
		{
			name: "name", required: true, words: policy.NameForm, read: (*draft).readIssuerName,
			doc: "The issuer's name, for the identities' `jwts`.",
		},
		{
			name: "url", required: true, words: address, read: (*draft).readIssuerURL,
			doc: "The issuer, exactly as its tokens have it in the claim `iss`.",
		},
		{
			name: "audience", required: true, words: "a text", read: (*draft).readAudience,
			doc: "What the claim `aud` of a token must be or contain. Ask for an audience of the daemon's own: " +
				"a token meant for another service must not open this one.",
		},
		{
			name: "keys", standard: "discovered", words: address, read: (*draft).readKeysURL,
			doc: "The issuer's key set (JWKS). By default its `/.well-known/openid-configuration` names it.",
		},
		{
			name: "ca", standard: "the system's", words: "a path", read: (*draft).readCA,
			doc: "A file with the CAs, in PEM, that the issuer's certificate leads to.",
		},
		{
			name: "token", standard: "none", words: "a path", read: (*draft).readIssuerToken,
			doc: "A file with a bearer token to present when fetching the keys. It is read each time, and goes only to the hosts of " +
				"`url` and `keys`.",
		},
	}
}

// jwtFields holds the fields of an entry of jwts.
var jwtFields = []field{
	{
		name: "issuer", required: true, words: "the name of an issuer", read: func(*draft, strictyaml.Value) {},
		doc: "The issuer whose tokens these are.",
	},
	{
		name: "claims", required: true, words: "a mapping of claims to texts", read: func(*draft, strictyaml.Value) {},
		doc: "What a token must claim, all of it: each claim must be the text, or a list that contains it. A name with slashes leads " +
			"into nested claims, as in `kubernetes.io/namespace`.",
	},
}

func (d *draft) readIssuerName(v strictyaml.Value) {
	name, ok := v.Text()
	switch {
	case !ok:
	case !policy.IsName(name):
		v.Fault("expected %s, found %s", policy.NameForm, strictyaml.Quote(name))
	default:
		d.taken(d.issuerAt, name, v, "already the name of the issuer at %s, expected one of its own")
	}
}

func (d *draft) readIssuerURL(v strictyaml.Value)   { readHTTPS(v, &d.issuer.URL) }
func (d *draft) readKeysURL(v strictyaml.Value)     { readHTTPS(v, &d.issuer.Keys) }
func (d *draft) readIssuerToken(v strictyaml.Value) { d.readPath(v, &d.issuer.TokenFile) }

// readHTTPS reads a URL that keys may be fetched from.
func readHTTPS(v strictyaml.Value, target *string) {
	text, ok := v.Text()
	if !ok {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		v.Fault("expected an https URL, found %s", strictyaml.Quote(text))
		return
	}
	*target = text
}

func (d *draft) readAudience(v strictyaml.Value) {
	text, ok := v.Text()
	if ok && text == "" {
		v.Fault("empty, expected the audience of the daemon's tokens")
	}
	d.issuer.Audience = text
}

// readPath reads the path of a file, relative to the folder of the access file.
func (d *draft) readPath(v strictyaml.Value, target *string) bool {
	path, ok := v.Text()
	if !ok {
		return false
	}
	if path == "" {
		v.Fault("empty, expected a path")
		return false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	*target = path
	return true
}

func (d *draft) readCA(v strictyaml.Value) {
	if !d.readPath(v, &d.issuer.CAFile) {
		return
	}
	d.tokenFiles = append(d.tokenFiles, d.issuer.CAFile)
	data, err := d.find(d.issuer.CAFile)
	switch {
	case err != nil:
		v.Fault("cannot read %s: %v", d.issuer.CAFile, err)
	case data != nil && !x509.NewCertPool().AppendCertsFromPEM(data):
		v.Fault("%s holds no certificate, expected CAs in PEM", d.issuer.CAFile)
	}
}

func (d *draft) readJWTs(v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	for _, item := range items {
		m, ok := d.readFields(item, jwtFields)
		if !ok {
			continue
		}
		var rule jwtRule
		if v, given := m.Get("issuer"); given {
			rule.issuer, ok = v.Text()
			if _, known := d.issuerAt[rule.issuer]; ok && !known {
				v.Fault("no issuer is named %s%s", strictyaml.Quote(rule.issuer), d.suggestIssuer(rule.issuer))
			}
		}
		if v, given := m.Get("claims"); given {
			rule.claims = readClaims(v)
		}
		d.jwts = append(d.jwts, rule)
		if d.rules++; d.rules == mostRules+1 {
			item.Fault("more than %d entries of jwts, expected at most so many in all", mostRules)
		}
	}
}

func (d *draft) suggestIssuer(name string) string {
	if len(d.issuerAt) == 0 {
		return ", expected it under issuers"
	}
	names := make([]string, 0, len(d.issuerAt))
	for known := range d.issuerAt {
		names = append(names, known)
	}
	slices.Sort(names)
	if did := strictyaml.Suggest(name, names); did != "" {
		return did
	}
	return ", expected one of " + strings.Join(names, ", ")
}

func readClaims(v strictyaml.Value) (claims []claim) {
	names := v.Names()
	m, ok := v.Mapping(names...)
	if !ok {
		return nil
	}
	if len(names) == 0 {
		v.Fault("empty, expected at least one claim: any token of the issuer would do")
		return nil
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		value, given := m.Get(name)
		if !given {
			continue
		}
		text, ok := value.Text()
		switch {
		case !ok:
		case name == "" || text == "":
			value.Fault("empty, expected a claim and its text")
		default:
			claims = append(claims, claim{name, text})
		}
	}
	return claims
}
