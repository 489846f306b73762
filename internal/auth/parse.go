package auth

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/internal/auth/internal/issuer"
	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy"
)

// roster holds the contents of an access file and its token files.
type roster struct {
	identities   map[string]*Identity
	tokens       map[[sha256.Size]byte]*Identity // by the token's hash
	certificates map[string]*Identity
	rules        []jwtRule
	configs      map[string]issuer.Config  // of token issuers, by name
	issuers      map[string]*issuer.Issuer // the same, once they are in force
	contents     [sha256.Size]byte         // of the file and its token files
	hash         string                    // of the file alone; not a secret
	warnings     []string
}

// commonName begins the name of a certificate that gives its subject's common name.
const commonName = "CN="

// parse reads an access file; find returns the content of a token file. The paths of token files
// are returned even with an error.
func parse(file string, data []byte, find func(path string) ([]byte, error)) (r *roster, tokenFiles []string, err error) {
	d := &drafts{
		file: file, find: find,
		nameAt: map[string]string{}, tokenAt: map[string]string{}, certificateAt: map[string]string{}, issuerAt: map[string]string{},
		roster: &roster{
			identities: map[string]*Identity{}, tokens: map[[sha256.Size]byte]*Identity{}, certificates: map[string]*Identity{},
			configs: map[string]issuer.Config{},
		},
	}
	d.readFile(data)
	if len(d.faults) > 0 {
		d.faults.Sort()
		return nil, d.tokenFiles, d.faults
	}
	return d.roster, d.tokenFiles, nil
}

// drafts collects the contents of a file while it is read.
type drafts struct {
	*roster
	file       string
	find       func(path string) ([]byte, error)
	tokenFiles []string
	faults     Faults

	// Where names, tokens and certificates were first given, as line:col.
	nameAt, tokenAt, certificateAt, issuerAt map[string]string
}

// draft is the identity or issuer that is being read.
type draft struct {
	*drafts
	identity *Identity
	known    bool // by a credential
	issuer   issuer.Config
	report   func(strictyaml.Fault)
}

func (d *drafts) readFile(data []byte) {
	root, ok := strictyaml.Parse(data, func(f strictyaml.Fault) { d.fault("", f) })
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
		none := strictyaml.Fault{File: d.file, Line: list.Line(), Col: list.Col(), Reason: "no identities: nobody may call"}
		d.warnings = append(d.warnings, none.Error())
	}
	for _, item := range items {
		d.readIdentity(item)
	}
}

func (d *drafts) readIdentity(v strictyaml.Value) {
	name := peekName(v)
	i := &Identity{models: map[string]bool{}, watches: -1, use: new(use)}
	draft := &draft{drafts: d, identity: i, report: d.reporter(v, "identity", name)}
	place := v.Under("", draft.report)
	if _, ok := draft.readFields(place, identityFields); !ok {
		return
	}
	i.use.share.set(i.bytes)
	d.identities[i.name] = i
	if !draft.known {
		draft.warn(place, "neither tokens nor certificates nor jwts: nobody is known as it")
	}
}

// reporter returns a function that reports the faults of an entry, by its name if that is known.
func (d *drafts) reporter(v strictyaml.Value, kind, name string) func(strictyaml.Fault) {
	return func(f strictyaml.Fault) {
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
		draft := &draft{drafts: d, report: d.reporter(item, "issuer", name)}
		if _, ok := draft.readFields(item.Under("", draft.report), issuerFields); ok && name != "" {
			d.configs[name] = draft.issuer
		}
	}
}

// peekName returns the name of an identity if it can be read, so that faults before it can name the
// identity.
func peekName(v strictyaml.Value) string {
	if m, ok := v.Under("", func(strictyaml.Fault) {}).Mapping("name"); ok {
		if value, given := m.Get("name"); given {
			if name, ok := value.Text(); ok && policy.IsName(name) {
				return name
			}
		}
	}
	return ""
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
		case f.needed != "":
			m.Need(f.name, f.needed)
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

func (d *drafts) fault(entry string, f strictyaml.Fault) {
	d.faults = append(d.faults, d.complete(entry, f))
}

// complete returns the fault with its file and the entry that it belongs to. An empty entry says
// that its name is not known.
func (d *drafts) complete(entry string, f strictyaml.Fault) strictyaml.Fault {
	f.File, f.Entry = d.file, entry
	return f
}

func (d *draft) warn(v strictyaml.Value, format string, args ...any) {
	warning := strictyaml.Fault{Line: v.Line(), Col: v.Col(), Field: v.Path(), Reason: fmt.Sprintf(format, args...)}
	entry := ""
	if d.identity.name != "" {
		entry = fmt.Sprintf("identity %q", d.identity.name)
	}
	d.warnings = append(d.warnings, d.complete(entry, warning).Error())
}
