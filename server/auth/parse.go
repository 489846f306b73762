package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// roster is what an access file and its token files say.
type roster struct {
	identities   map[string]*Identity
	tokens       []token
	certificates map[string]*Identity
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
		nameAt: map[string]string{}, tokenAt: map[string]string{}, certificateAt: map[string]string{},
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
	nameAt, tokenAt, certificateAt map[string]string
}

// entry is an identity with its credentials.
type entry struct {
	identity     *Identity
	tokens       [][sha256.Size]byte
	certificates []string
}

// draft is the entry that is being read.
type draft struct {
	*drafts
	*entry
	at     strictyaml.Value
	report func(Fault)
}

func (d *drafts) readFile(data []byte) {
	root, ok := strictyaml.Parse(data, func(f Fault) { d.fault("", f) })
	if !ok {
		return
	}
	fields, ok := root.Mapping(identitiesField)
	if !ok {
		return
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
	one.report = func(f Fault) {
		if name == "" {
			f.Field = strings.TrimSuffix(v.Path()+"."+f.Field, ".")
		}
		d.fault(name, f)
	}
	one.at = v.Under("", one.report)
	if _, ok := one.readFields(one.at, identityFields()); !ok {
		return
	}
	d.entries = append(d.entries, one.entry)
	if len(one.tokens)+len(one.certificates) == 0 {
		one.warn(one.at, "neither tokens nor certificates: nobody is known as it")
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

func (d *drafts) fault(identity string, f Fault) {
	d.faults = append(d.faults, d.complete(identity, f))
}

// complete returns the fault with its file and the identity that it belongs to. An empty
// identity says that its name is not known.
func (d *drafts) complete(identity string, f Fault) Fault {
	f.File = d.file
	if identity != "" {
		f.Entry = fmt.Sprintf("identity %q", identity)
	}
	return f
}

func (d *draft) warn(v strictyaml.Value, format string, args ...any) {
	at := Fault{Line: v.Line(), Col: v.Col(), Field: v.Path(), Reason: fmt.Sprintf(format, args...)}
	d.warnings = append(d.warnings, d.complete(d.identity.name, at).Error())
}

// roster returns the entries of a file without faults.
func (d *drafts) roster() *roster {
	r := &roster{identities: map[string]*Identity{}, certificates: map[string]*Identity{}, warnings: d.warnings}
	for _, e := range d.entries {
		e.identity.use = new(use)
		r.identities[e.identity.name] = e.identity
		for _, sum := range e.tokens {
			r.tokens = append(r.tokens, token{sum, e.identity})
		}
		for _, name := range e.certificates {
			r.certificates[name] = e.identity
		}
	}
	slices.SortFunc(d.entries, func(a, b *entry) int { return strings.Compare(a.identity.name, b.identity.name) })
	var meaning strings.Builder
	for _, e := range d.entries {
		i := e.identity
		sums := make([]string, len(e.tokens))
		for n, sum := range e.tokens {
			sums[n] = hex.EncodeToString(sum[:])
		}
		slices.Sort(sums)
		slices.Sort(e.certificates)
		fmt.Fprintf(&meaning, "%s %q %q %q %t %t %t %t %t %t %t %d %d %d\n", i.name, sums, e.certificates,
			slices.Sorted(maps.Keys(i.models)), i.allModels, i.admin, i.reload, i.recent, i.outcomes, i.clear, i.issue, i.streams, i.calls, i.watches)
	}
	r.meaning = meaning.String()
	return r
}
