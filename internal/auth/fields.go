package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
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

// field is a field of the file. Its texts are the table of docs/security.md, which `go generate` writes.
type field struct {
	name      string
	needed    string // the expected value of a required field, in words
	form      string // the values that an optional field takes
	otherwise string // its default
	about     string // what it does
	read      func(*reader, strictyaml.Value)
	fields    []field // of each entry, for the documentation
}

// fileFields are the fields of a file.
var fileFields = []field{
	{name: "issuers", read: (*reader).readIssuers},
	{name: "identities", needed: "a list of identities", read: (*reader).readIdentities},
}

// identityFields are the fields of an identity.
var identityFields = []field{
	{name: "name", needed: policy.NameForm, about: "The identity's name in log lines, its own.", read: (*reader).readName},
	{name: "tokens", form: "a list of tokens", otherwise: "none", about: "The bearer tokens that identify it; several allow replacing them.",
		read: (*reader).readTokens, fields: tokenFields},
	{name: "certificates", form: "a list of names", otherwise: "none", about: "The client certificates that identify it: a URI, a DNS name, " +
		"or `CN=` with the subject's common name. One must equal a name in the certificate exactly.", read: (*reader).readCertificates},
	{name: "jwts", form: "a list of claims", otherwise: "none", about: "The JWTs that identify it: see [Tokens of an issuer](#tokens-of-an-issuer).",
		read: (*reader).readJWTs, fields: jwtFields},
	{name: "models", form: `a list of models, or ["*"]`, otherwise: "none", about: "The models that it may see and use.", read: (*reader).readModels},
	right("admin", "Allows the triage page.", func(i *Identity) *bool { return &i.admin }),
	right("recent", "Shows the inputs to review of its models, with ids, at `/review`; with `admin`, on the triage page.",
		func(i *Identity) *bool { return &i.recent }),
	right("outcomes", "Allows to report outcomes of its models, and to read what follows.",
		func(i *Identity) *bool { return &i.outcomes }),
	right("clear", "Allows to clear alarms of its models; with all models, to delete and to import outcomes.", func(i *Identity) *bool { return &i.clear }),
	right("issue", "Allows a daemon to tell the ledger its policies and decisions. It can change what a promise is held against: "+
		"for daemons alone.", func(i *Identity) *bool { return &i.issue }),
	limit("streams", "`0`", "The most open streams. 0: the daemon's own limit alone.", func(i *Identity) *int { return &i.streams }),
	limit("calls", "`0`", "The most unary calls in flight, including those whose reply it has not read.", func(i *Identity) *int { return &i.calls }),
	limit("watches", "as `streams`", "The most health watches, one for each connection of a balancing client.", func(i *Identity) *int { return &i.watches }),
	{name: "bytes", form: "a share such as 25%", otherwise: "three quarters", about: "The share of `max-open-bytes` that it may hold.",
		read: (*reader).readBytes},
}

// right returns the field of a right, which is off by default.
func right(name, about string, allowed func(*Identity) *bool) field {
	return field{name: name, form: "true or false", otherwise: "`false`", about: about,
		read: func(r *reader, v strictyaml.Value) { *allowed(r.identity), _ = v.Bool() }}
}

// limit returns the field of a limit.
func limit(name, otherwise, about string, most func(*Identity) *int) field {
	return field{name: name, form: "0 to 1000000", otherwise: otherwise, about: about,
		read: func(r *reader, v strictyaml.Value) { *most(r.identity), _ = v.Int(0, maxStreams) }}
}

func (r *reader) readName(v strictyaml.Value) {
	name, ok := v.Match(policy.NameForm, policy.IsName)
	if ok && !taken(r.nameAt, name, v, "already the name of the identity at %s, expected one of its own") {
		r.identity.name = name
	}
}

func (r *reader) readBytes(v strictyaml.Value) {
	v.Match("a share such as 25%, above 0% and at most 100%", func(text string) bool {
		number, isShare := strings.CutSuffix(text, "%")
		percent, err := strconv.ParseFloat(number, 64)
		r.identity.bytes = percent / 100
		return isShare && err == nil && percent > 0 && percent <= 100
	})
}

func (r *reader) readModels(v strictyaml.Value) {
	items, _ := v.List()
	seen := map[string]string{}
	for _, item := range items {
		name, ok := item.Match(policy.NameForm, func(s string) bool { return s == "*" || policy.IsName(s) })
		switch {
		case !ok:
		case name == "*" && len(items) > 1:
			item.Fault(`"*" is all models, expected it alone`)
		case name == "*":
			r.identity.allModels = true
		case !taken(seen, name, item, "given twice, first at %s"):
			r.identity.models[name] = true
		}
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

func (r *reader) readCertificates(v strictyaml.Value) {
	items, _ := v.List()
	for _, item := range items {
		name, ok := item.Match("a URI, a DNS name in lower case or CN= with a common name", isCertificateName)
		if ok && !taken(r.certificateAt, name, item, "already a certificate of the identity at %s, expected each of one") {
			r.certificates[name], r.known = r.identity, true
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

// tokenFields holds the fields of a token, which has one of them.
var tokenFields = []field{
	{name: "file", form: "a path", otherwise: "either this", about: "A file with the token alone. A relative path starts at the folder of the access file.",
		read: (*reader).readTokenFile},
	{name: "sha256", form: "64 hexadecimal digits", otherwise: "or this", about: "The token's SHA-256, for random tokens: a guessable one can be found from it.",
		read: (*reader).readTokenSum},
}

func (r *reader) readTokens(v strictyaml.Value) {
	items, _ := v.Secret().List() // what is found may be a token
	for _, item := range items {
		m, ok := r.readFields(item, tokenFields)
		_, file := m.Get("file")
		if _, sum := m.Get("sha256"); ok && file == sum {
			item.Fault("expected either file or sha256")
		}
	}
}

func (r *reader) readTokenFile(v strictyaml.Value) {
	path, data, err := r.readPath(v)
	switch token := strings.TrimRight(string(data), "\r\n"); {
	case path == "":
	case errors.Is(err, fs.ErrNotExist):
		r.warnings = append(r.warnings, v.Warning("%s does not exist: the token counts as withdrawn", path))
	case err != nil:
		v.Fault("cannot read %s: %v", path, err)
	case !isToken(token):
		v.Fault("%s holds no token, expected one line of %d to %d letters, digits and -._~+/, with = at the end",
			path, leastTokenBytes, mostTokenBytes)
	default:
		r.addToken(v, sha256.Sum256([]byte(token)))
	}
}

// readPath reads a path, and the file there. The path is empty if it has a fault.
func (r *reader) readPath(v strictyaml.Value) (path string, data []byte, err error) {
	if path = r.path(v); path == "" {
		return "", nil, nil
	}
	r.tokenFiles = append(r.tokenFiles, path)
	data, err = r.find(path)
	return path, data, err
}

// path reads the path of a file, relative to the folder of the access file.
func (r *reader) path(v strictyaml.Value) string {
	path, ok := v.Text()
	switch {
	case ok && path == "":
		v.Fault("empty, expected a path")
	case ok && !filepath.IsAbs(path):
		return filepath.Join(filepath.Dir(r.file), path)
	}
	return path
}

var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func isToken(text string) bool {
	return len(text) >= leastTokenBytes && len(text) <= mostTokenBytes && tokenPattern.MatchString(text)
}

var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (r *reader) readTokenSum(v strictyaml.Value) {
	if text, ok := v.Match("64 hexadecimal digits in lower case", sumPattern.MatchString); ok {
		sum, _ := hex.DecodeString(text) // matches
		r.addToken(v, [sha256.Size]byte(sum))
	}
}

func (r *reader) addToken(v strictyaml.Value, sum [sha256.Size]byte) {
	if taken(r.tokenAt, string(sum[:]), v, "the same token as at %s, expected each token once") {
		return
	}
	r.tokens[sum], r.known = r.identity, true
	if len(r.tokens) == maxTokens+1 {
		v.Fault("more than %d tokens, expected at most so many in all", maxTokens)
	}
}
