package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// identitiesField is the one field of an access file.
const identitiesField = "identities"

// The bounds of an access file.
const (
	maxTokens  = 1024 // each costs a comparison in every call
	maxStreams = 1_000_000
	maxName    = 512 // bytes of a certificate's name
	// A shorter token can be guessed; 16 characters of a random one are 96 bits.
	leastTokenBytes = 16
	mostTokenBytes  = 4096
)

// field is a row of the table of fields, which is all that decoding and
// docs/access.md know of a field.
type field struct {
	name string
	// words say what is expected.
	words    string
	required bool
	standard string // what a field that is not given is
	fields   []field
	read     func(*draft, strictyaml.Value)
	doc      string
}

// identityFields is the table: the fields of an identity. It is a function since
// the fields' readers use it.
func identityFields() []field {
	return []field{
		{
			name: "name", required: true, words: policy.NameForm, read: (*draft).readName,
			doc: "What the identity is called in log lines. No two share one.",
		},
		{
			name: "tokens", standard: "none", words: "a list of tokens", fields: tokenFields, read: (*draft).readTokens,
			doc: "The bearer tokens that it is known by: several, so that they can be replaced one after the other. A token " +
				"itself is never in this file.",
		},
		{
			name: "certificates", standard: "none", words: "a list of names", read: (*draft).readCertificates,
			doc: "The client certificates that it is known by: a URI as in `spiffe://cluster/ns/eye/sa/grader`, a DNS name, or " +
				"`CN=` with the subject's common name. One must be, letter by letter, a name in the certificate.",
		},
		{
			name: "models", standard: "none", words: `a list of models, or ["*"] for all`, read: (*draft).readModels,
			doc: "The models that it may use, see, and get decisions of.",
		},
		{
			name: "admin", standard: "`false`", words: "true or false",
			read: func(d *draft, v strictyaml.Value) { d.identity.admin, _ = v.Bool() },
			doc: "It may look into connections by gRPC's channelz, and see what pages the admin address has beside probes, " +
				"`/metrics` and reload.",
		},
		{
			name: "reload", standard: "`false`", words: "true or false",
			read: func(d *draft, v strictyaml.Value) { d.identity.reload, _ = v.Bool() },
			doc:  "It may `POST /-/reload`.",
		},
		{
			name: "recent", standard: "`false`", words: "true or false",
			read: func(d *draft, v strictyaml.Value) { d.identity.recent, _ = v.Bool() },
			doc: "It may see the last deferred inputs of its models on the triage page, with their ids, where the daemon " +
				"keeps them; it needs `admin` for the page itself, which shows all models.",
		},
		{
			name: "streams", standard: "`0`", words: fmt.Sprintf("a whole number from 0 to %d", maxStreams),
			read: func(d *draft, v strictyaml.Value) { d.identity.streams, _ = v.Int(0, maxStreams) },
			doc:  "How many streams it may have open at one time; 0 is only the daemon's own limit.",
		},
		{
			name: "calls", standard: "`0`", words: fmt.Sprintf("a whole number from 0 to %d", maxStreams),
			read: func(d *draft, v strictyaml.Value) { d.identity.calls, _ = v.Int(0, maxStreams) },
			doc: "How many unary calls it may have under way at one time, or with a reply that it has not read; 0 is only the daemon's " +
				"own limit.",
		},
		{
			name: "watches", standard: "as `streams`", words: fmt.Sprintf("a whole number from 0 to %d", maxStreams),
			read: func(d *draft, v strictyaml.Value) { d.identity.watches, _ = v.Int(0, maxStreams) },
			doc: "How many watches of the health it may have open at one time: a client that balances holds one for each of its " +
				"connections. 0 is only the daemon's own limit.",
		},
	}
}

// tokenFields of one token; one of them is given.
var tokenFields = []field{
	{
		name: "file", words: "a path", standard: "either this", read: (*draft).readTokenFile,
		doc: fmt.Sprintf("A file that holds the token and nothing else: %d to %d letters, digits and `-._~+/`, with `=` at the end. "+
			"A path that is not absolute begins at the access file's folder.", leastTokenBytes, mostTokenBytes),
	},
	{
		name: "sha256", words: "64 hexadecimal digits in lower case", standard: "or this", read: (*draft).readTokenSum,
		doc: "The token's SHA-256. It is as good as the token is random: give only the hash of one that cannot be guessed.",
	},
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
			d.certificates = append(d.certificates, name)
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
	path, ok := v.Text()
	if !ok {
		return
	}
	if path == "" {
		v.Fault("empty, expected a path")
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
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
	d.tokens = append(d.tokens, sum)
	if len(d.tokenAt) == maxTokens+1 {
		v.Fault("more than %d tokens, expected at most so many in all", maxTokens)
	}
}
