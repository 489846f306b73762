package auth

import (
	"cmp"
	"crypto/x509"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// issuerFields are the fields of an issuer.
var issuerFields = []field{
	{name: "name", needed: policy.NameForm, about: "The issuer's name, for `jwts`.", read: func(r *reader, v strictyaml.Value) {
		if name, ok := v.Match(policy.NameForm, policy.IsName); ok {
			taken(r.issuerAt, name, v, "already the name of the issuer at %s, expected one of its own")
		}
	}},
	{name: "url", needed: httpsForm, about: "The issuer, exactly as its tokens have it in the claim `iss`.",
		read: func(r *reader, v strictyaml.Value) { r.issuer.URL, _ = v.Match(httpsForm, isHTTPS) }},
	{name: "audience", needed: "a text", about: "What the claim `aud` must be or contain. Ask for one of the daemon's own.", read: func(r *reader, v strictyaml.Value) {
		text, ok := v.Text()
		if ok && text == "" {
			v.Fault("empty, expected the audience of the daemon's tokens")
		}
		r.issuer.Audience = text
	}},
	{name: "keys", form: httpsForm, otherwise: "discovered", about: "The issuer's key set (JWKS).",
		read: func(r *reader, v strictyaml.Value) { r.issuer.Keys, _ = v.Match(httpsForm, isHTTPS) }},
	{name: "ca", form: "a path", otherwise: "the system's", about: "The CAs, in PEM, that the issuer's certificate leads to.", read: (*reader).readCA},
	{name: "token", form: "a path", otherwise: "none", about: "A bearer token to present when fetching the keys; goes only to the hosts of `url` and `keys`.",
		read: func(r *reader, v strictyaml.Value) { r.issuer.TokenFile = r.path(v) }},
}

const httpsForm = "an https URL"

// isHTTPS reports whether keys may be fetched from a URL.
func isHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.Fragment == ""
}

func (r *reader) readCA(v strictyaml.Value) {
	path, data, err := r.readPath(v)
	switch {
	case err != nil:
		v.Fault("cannot read %s: %v", path, err)
	case data != nil && !x509.NewCertPool().AppendCertsFromPEM(data):
		v.Fault("%s holds no certificate, expected CAs in PEM", path)
	}
	r.issuer.CAFile = path
}

// jwtFields holds the fields of an entry of jwts.
var jwtFields = []field{
	{name: "issuer", needed: "the name of an issuer", about: "The issuer whose tokens these are.", read: (*reader).readIssuer},
	{name: "claims", needed: "a mapping of claims to texts", about: "What a token must claim, all of it: each claim must be the text, or a list that " +
		"contains it. A name with slashes leads into nested claims, as in `kubernetes.io/namespace`.", read: (*reader).readClaims},
}

func (r *reader) readJWTs(v strictyaml.Value) {
	items, _ := v.List()
	for _, item := range items {
		r.rule = jwtRule{identity: r.identity}
		if _, ok := r.readFields(item, jwtFields); !ok {
			continue
		}
		r.known = true
		if r.rules = append(r.rules, r.rule); len(r.rules) == mostRules+1 {
			item.Fault("more than %d entries of jwts, expected at most so many in all", mostRules)
		}
	}
}

func (r *reader) readIssuer(v strictyaml.Value) {
	name, ok := v.Text()
	if _, known := r.issuerAt[name]; known || !ok {
		r.rule.issuer = name
		return
	}
	names := slices.Sorted(maps.Keys(r.issuerAt))
	expected := ", expected it under issuers"
	if len(names) > 0 {
		expected = cmp.Or(strictyaml.Suggest(name, names), ", expected one of "+strings.Join(names, ", "))
	}
	v.Fault("no issuer is named %s%s", strictyaml.Quote(name), expected)
}

func (r *reader) readClaims(v strictyaml.Value) {
	names := v.Names()
	m, ok := v.Mapping(names...)
	if ok && len(names) == 0 {
		v.Fault("empty, expected at least one claim: any token of the issuer would do")
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
			r.rule.claims = append(r.rule.claims, claim{name, text})
		}
	}
}
