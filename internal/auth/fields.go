package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// The fields of an access file.
const (
	identitiesField = "identities"
	issuersField    = "issuers"
)

// Bounds of an access file.
const (
	maxTokens  = 1024
	maxStreams = 1_000_000
	maxName    = 512 // bytes of a certificate's name
	// A shorter token can be guessed; 16 characters of a random one are 96 bits.
	leastTokenBytes = 16
	mostTokenBytes  = 4096
)

// field is a field of the file. docs/access.md says what each is for.
type field struct {
	name   string
	needed string // the expected value of a required field, in words
	read   func(*draft, strictyaml.Value)
	fields []field // of each entry, for the documentation
}

// identityFields are the fields of an identity.
var identityFields = []field{
	{name: "name", needed: policy.NameForm, read: (*draft).readName},
	{name: "tokens", read: (*draft).readTokens, fields: tokenFields},
	{name: "certificates", read: (*draft).readCertificates},
	{name: "jwts", read: (*draft).readJWTs, fields: jwtFields},
	{name: "models", read: (*draft).readModels},
	right("admin", func(i *Identity) *bool { return &i.admin }),
	right("recent", func(i *Identity) *bool { return &i.recent }),
	right("outcomes", func(i *Identity) *bool { return &i.outcomes }),
	right("clear", func(i *Identity) *bool { return &i.clear }),
	right("issue", func(i *Identity) *bool { return &i.issue }),
	limit("streams", func(i *Identity) *int { return &i.streams }),
	limit("calls", func(i *Identity) *int { return &i.calls }),
	limit("watches", func(i *Identity) *int { return &i.watches }),
	{name: "bytes", read: (*draft).readBytes},
}

// right returns the field of a right, which is off by default.
func right(name string, allowed func(*Identity) *bool) field {
	return field{name: name, read: func(d *draft, v strictyaml.Value) { *allowed(d.identity), _ = v.Bool() }}
}

// limit returns the field of a limit.
func limit(name string, most func(*Identity) *int) field {
	return field{name: name, read: func(d *draft, v strictyaml.Value) { *most(d.identity), _ = v.Int(0, maxStreams) }}
}

// shareForm describes a share.
const shareForm = "a share such as 25%, above 0% and at most 100%"

func (d *draft) readBytes(v strictyaml.Value) {
	text, ok := v.Text()
	if !ok {
		return
	}
	number, isShare := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isShare || err != nil || !(percent > 0 && percent <= 100) {
		v.Fault("expected %s, found %s", shareForm, strictyaml.Quote(text))
		return
	}
	d.identity.bytes = percent / 100
}

// tokenFields holds the fields of a token, which has one of them.
var tokenFields = []field{
	{name: "file", read: (*draft).readTokenFile},
	{name: "sha256", read: (*draft).readTokenSum},
}

func (d *draft) readName(v strictyaml.Value) {
	name, ok := v.Text()
	switch {
	case !ok:
	case !policy.IsName(name):
		v.Fault("expected %s, found %s", policy.NameForm, strictyaml.Quote(name))
	default:
		if d.taken(d.nameAt, name, v, "already the name of the identity at %s, expected one of its own") {
			return
		}
		d.identity.name = name
	}
}

func (d *draft) readModels(v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	seen := map[string]string{}
	for _, item := range items {
		name, ok := item.Text()
		switch {
		case !ok:
		case name == "*" && len(items) > 1:
			item.Fault(`"*" is all models, expected it alone`)
		case name == "*":
			d.identity.allModels = true
		case !policy.IsName(name):
			item.Fault("expected %s, found %s", policy.NameForm, strictyaml.Quote(name))
		case !d.taken(seen, name, item, "given twice, first at %s"):
			d.identity.models[name] = true
		}
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

func (d *draft) readCertificates(v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	for _, item := range items {
		name, ok := item.Text()
		switch {
		case !ok:
		case !isCertificateName(name):
			item.Fault("expected a URI, a DNS name in lower case or CN= with a common name, found %s", strictyaml.Quote(name))
		case !d.taken(d.certificateAt, name, item, "already a certificate of the identity at %s, expected each of one"):
			d.certificates[name], d.known = d.identity, true
		}
	}
}

func isCertificateName(name string) bool {
	if len(name) > maxName {
		return false
	}
	if common, ok := strings.CutPrefix(name, commonName); ok {
		return strings.TrimSpace(common) == common && common != ""
	}
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		return err == nil && u.Scheme != "" && u.Host != "" && u.String() == name
	}
	return dnsName.MatchString(name)
}

func (d *draft) readTokens(v strictyaml.Value) {
	v = v.Under(v.Path(), func(f strictyaml.Fault) {
		f.Reason, _, _ = strings.Cut(f.Reason, ", found ") // which may be a token
		d.report(f)
	})
	items, ok := v.List()
	if !ok {
		return
	}
	for _, item := range items {
		m, ok := d.readFields(item, tokenFields)
		if !ok {
			continue
		}
		_, file := m.Get("file")
		if _, sum := m.Get("sha256"); file == sum {
			item.Fault("expected either file or sha256")
		}
	}
}

func (d *draft) readTokenFile(v strictyaml.Value) {
	var path string
	if !d.readPath(v, &path) {
		return
	}
	d.tokenFiles = append(d.tokenFiles, path)
	data, err := d.find(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.warn(v, "%s does not exist: the token counts as withdrawn", path)
		return
	}
	if err != nil {
		v.Fault("cannot read %s: %v", path, err)
		return
	}
	token := strings.TrimRight(string(data), "\r\n")
	if !isToken(token) {
		v.Fault("%s holds no token, expected one line of %d to %d letters, digits and -._~+/, with = at the end",
			path, leastTokenBytes, mostTokenBytes)
		return
	}
	d.addToken(v, sha256.Sum256([]byte(token)))
}

var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func isToken(text string) bool {
	return len(text) >= leastTokenBytes && len(text) <= mostTokenBytes && tokenPattern.MatchString(text)
}

func (d *draft) readTokenSum(v strictyaml.Value) {
	text, ok := v.Text()
	if !ok {
		return
	}
	var sum [sha256.Size]byte
	if n, err := hex.Decode(sum[:], []byte(text[:min(len(text), 2*len(sum))])); err != nil || n != len(sum) ||
		len(text) != 2*len(sum) || text != strings.ToLower(text) {
		v.Fault("expected 64 hexadecimal digits in lower case")
		return
	}
	d.addToken(v, sum)
}

func (d *draft) addToken(v strictyaml.Value, sum [sha256.Size]byte) {
	if d.taken(d.tokenAt, string(sum[:]), v, "the same token as at %s, expected each token once") {
		return
	}
	d.tokens[sum], d.known = d.identity, true
	if len(d.tokenAt) == maxTokens+1 {
		v.Fault("more than %d tokens, expected at most so many in all", maxTokens)
	}
}
