package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/server/auth/issuer"
)

// roster is what an access file and its token files say.
type roster struct {
	identities   map[string]*Identity
	tokens       []token
	certificates map[string]*Identity
	rules        []jwtRule
	configs      map[string]issuer.Config  // of token issuers, by name
	issuers      map[string]*issuer.Issuer // the same, once they are in force
	// meaning is equal for files that mean the same. It contains hashes of tokens and must stay
	// secret.
	meaning  string
	hash     string // hash of the file; not a secret
	warnings []string
}

// token identifies the bearer of a token by its hash.
type token struct {
	sum [sha256.Size]byte
	of  *Identity
}

// commonName begins the name of a certificate that gives its subject's common name.
const commonName = "CN="

// parse reads an access file; find returns the content of a token file. The paths of token files
// are returned even with an error.
func parse(file string, data []byte, find func(path string) ([]byte, error)) (r *roster, tokenFiles []string, err error) {
	d := &drafts{
		file: file, find: find,
		nameAt: map[string]string{}, tokenAt: map[string]string{}, certificateAt: map[string]string{}, issuerAt: map[string]string{},
		configs: map[string]issuer.Config{},
	}
	d.readFile(data)
	if len(d.faults) > 0 {
		d.faults.Sort()
		return nil, d.tokenFiles, d.faults
	}
	return d.roster(), d.tokenFiles, nil
}

// drafts collects the identities of a file while it is read.
type drafts struct {
	file       string
	find       func(path string) ([]byte, error)
	entries    []*entry
	tokenFiles []string
	faults     Faults
	warnings   []string

	// Where names, tokens and certificates were first given, as line:col.
	nameAt, tokenAt, certificateAt, issuerAt map[string]string

	configs map[string]issuer.Config
	rules   int // in all
}

// entry is an identity with its credentials.
type entry struct {
	identity     *Identity
	tokens       [][sha256.Size]byte
	certificates []string
	jwts         []jwtRule
}

// draft is the entry that is being read.
type draft struct {
	*drafts
	*entry
	issuer issuer.Config // the issuer that is read
	at     strictyaml.Value
	report func(Fault)
}

func (d *drafts) readFile(data []byte) {
	root, ok := strictyaml.Parse(data, func(f Fault) { d.fault("", f) })
	if !ok {
		return
	}
	fields, ok := root.Mapping(issuersField, identitiesField)
	if !ok {
		return
	}
	if list, given := fields.Get(issuersField); given {
		d.readIssuers(list)
	}
	list, ok := fields.Need(identitiesField, "a list of identities")
	if !ok {
		return
	}
	items, ok := list.List()
	if ok && len(items) == 0 {
		none := Fault{File: d.file, Line: list.Line(), Col: list.Col(), Reason: "no identities: nobody may call"}
		d.warnings = append(d.warnings, none.Error())
	}
	for _, item := range items {
		d.readIdentity(item)
	}
}

func (d *drafts) readIdentity(v strictyaml.Value) {
	name := peekName(v)
	one := &draft{drafts: d, entry: &entry{identity: &Identity{models: map[string]bool{}, watches: -1}}}
	one.report = d.reporter(v, "identity", name)
	one.at = v.Under("", one.report)
	if _, ok := one.readFields(one.at, identityFields()); !ok {
		return
	}
	d.entries = append(d.entries, one.entry)
	if len(one.tokens)+len(one.certificates)+len(one.jwts) == 0 {
		one.warn(one.at, "neither tokens nor certificates nor jwts: nobody is known as it")
	}
}

// reporter returns a function that reports the faults of an entry, by its name if that is known.
func (d *drafts) reporter(v strictyaml.Value, kind, name string) func(Fault) {
	return func(f Fault) {
		if name == "" {
			f.Field = strings.TrimSuffix(v.Path()+"."+f.Field, ".")
			d.fault("", f)
			return
		}
		d.fault(fmt.Sprintf("%s %q", kind, name), f)
	}
}

func (d *drafts) readIssuers(v strictyaml.Value) {
	items, ok := v.List()
	if !ok {
		return
	}
	if len(items) > mostIssuers {
		v.Fault("%d issuers, expected at most %d", len(items), mostIssuers)
		return
	}
	for _, item := range items {
		name := peekName(item)
		one := &draft{drafts: d, entry: &entry{identity: &Identity{}}}
		one.report = d.reporter(item, "issuer", name)
		one.at = item.Under("", one.report)
		if _, ok := one.readFields(one.at, issuerFields()); ok && name != "" {
			d.configs[name] = one.issuer
		}
	}
}

// peekName returns the name of an identity if it can be read, so that faults before it can name the
// identity.
func peekName(v strictyaml.Value) string {
	d := &draft{drafts: &drafts{nameAt: map[string]string{}}, entry: &entry{identity: &Identity{}}}
	silent := v.Under("", func(Fault) {})
	if m, ok := silent.Mapping("name"); ok {
		if name, given := m.Get("name"); given {
			d.readName(name)
		}
	}
	return d.identity.name
}

// readFields reads the fields of a mapping. It returns false if the value is no mapping.
func (d *draft) readFields(v strictyaml.Value, fields []field) (strictyaml.Mapping, bool) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	m, ok := v.Mapping(names...)
	if !ok {
		return m, false
	}
	for _, f := range fields {
		value, given := m.Get(f.name)
		switch {
		case given:
			f.read(d, value)
		case f.required:
			m.Need(f.name, f.words)
		}
	}
	return m, true
}

// taken reports a fault and returns true if a key was given before; otherwise it notes the key.
func (d *draft) taken(places map[string]string, key string, v strictyaml.Value, format string) bool {
	if first, ok := places[key]; ok {
		v.Fault(format, first)
		return true
	}
	places[key] = fmt.Sprintf("%d:%d", v.Line(), v.Col())
	return false
}

func (d *drafts) fault(entry string, f Fault) {
	d.faults = append(d.faults, d.complete(entry, f))
}

// complete returns the fault with its file and the entry that it belongs to. An empty entry says
// that its name is not known.
func (d *drafts) complete(entry string, f Fault) Fault {
	f.File, f.Entry = d.file, entry
	return f
}

func (d *draft) warn(v strictyaml.Value, format string, args ...any) {
	at := Fault{Line: v.Line(), Col: v.Col(), Field: v.Path(), Reason: fmt.Sprintf(format, args...)}
	entry := ""
	if d.identity.name != "" {
		entry = fmt.Sprintf("identity %q", d.identity.name)
	}
	d.warnings = append(d.warnings, d.complete(entry, at).Error())
}

// roster returns the entries of a file without faults.
func (d *drafts) roster() *roster {
	r := &roster{identities: map[string]*Identity{}, certificates: map[string]*Identity{}, configs: d.configs, warnings: d.warnings}
	for _, e := range d.entries {
		e.identity.use = new(use)
		e.identity.use.share.set(e.identity.bytes)
		r.identities[e.identity.name] = e.identity
		for _, sum := range e.tokens {
			r.tokens = append(r.tokens, token{sum, e.identity})
		}
		for _, name := range e.certificates {
			r.certificates[name] = e.identity
		}
		for _, rule := range e.jwts {
			rule.of = e.identity
			r.rules = append(r.rules, rule)
		}
	}
	slices.SortFunc(d.entries, func(a, b *entry) int { return strings.Compare(a.identity.name, b.identity.name) })
	var meaning strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d.configs)) {
		fmt.Fprintf(&meaning, "%s %+q\n", name, d.configs[name])
	}
	for _, e := range d.entries {
		i := e.identity
		sums := make([]string, len(e.tokens))
		for n, sum := range e.tokens {
			sums[n] = hex.EncodeToString(sum[:])
		}
		slices.Sort(sums)
		slices.Sort(e.certificates)
		jwts := make([]string, len(e.jwts))
		for n, rule := range e.jwts {
			jwts[n] = fmt.Sprintf("%s %q", rule.issuer, rule.claims)
		}
		slices.Sort(jwts)
		fmt.Fprintf(&meaning, "%s %q %q %q %q %t %t %t %t %t %t %d %d %d %g\n", i.name, sums, e.certificates, jwts,
			slices.Sorted(maps.Keys(i.models)), i.allModels, i.admin, i.recent, i.outcomes, i.clear, i.issue, i.streams, i.calls, i.watches, i.bytes)
	}
	r.meaning = meaning.String()
	return r
}
