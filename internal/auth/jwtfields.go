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

// issuerFields are the fields of an issuer.
var issuerFields = []field{
	{name: "name", needed: policy.NameForm, read: (*draft).readIssuerName},
	{name: "url", needed: "an https URL", read: func(d *draft, v strictyaml.Value) { readHTTPS(v, &d.issuer.URL) }},
	{name: "audience", needed: "a text", read: (*draft).readAudience},
	{name: "keys", read: func(d *draft, v strictyaml.Value) { readHTTPS(v, &d.issuer.Keys) }},
	{name: "ca", read: (*draft).readCA},
	{name: "token", read: func(d *draft, v strictyaml.Value) { d.readPath(v, &d.issuer.TokenFile) }},
}

// jwtFields holds the fields of an entry of jwts, which readJWTs reads together.
var jwtFields = []field{
	{name: "issuer", needed: "the name of an issuer", read: func(*draft, strictyaml.Value) {}},
	{name: "claims", needed: "a mapping of claims to texts", read: func(*draft, strictyaml.Value) {}},
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
		rule := jwtRule{identity: d.identity}
		if v, given := m.Get("issuer"); given {
			rule.issuer, ok = v.Text()
			if _, known := d.issuerAt[rule.issuer]; ok && !known {
				v.Fault("no issuer is named %s%s", strictyaml.Quote(rule.issuer), d.suggestIssuer(rule.issuer))
			}
		}
		if v, given := m.Get("claims"); given {
			rule.claims = readClaims(v)
		}
		d.known = true
		if d.rules = append(d.rules, rule); len(d.rules) == mostRules+1 {
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
