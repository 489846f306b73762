package auth

import (
	"crypto/sha256"

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

// reader collects the contents of a file while it is read.
type reader struct {
	*roster
	file       string
	find       func(path string) ([]byte, error)
	tokenFiles []string

	// Where names, tokens and certificates were first given, as line:col.
	nameAt, tokenAt, certificateAt, issuerAt map[string]string

	// The identity, issuer or entry of jwts that is being read.
	identity *Identity
	known    bool // by a credential
	issuer   issuer.Config
	rule     jwtRule
}

// parse reads an access file; find returns the content of a token file. The paths of token files
// are returned even with an error.
func parse(file string, data []byte, find func(path string) ([]byte, error)) (*roster, []string, error) {
	r := &reader{
		file: file, find: find,
		nameAt: map[string]string{}, tokenAt: map[string]string{}, certificateAt: map[string]string{}, issuerAt: map[string]string{},
		roster: &roster{
			identities: map[string]*Identity{}, tokens: map[[sha256.Size]byte]*Identity{}, certificates: map[string]*Identity{},
			configs: map[string]issuer.Config{},
		},
	}
	var faults Faults
	if root, ok := strictyaml.Parse(file, data, &faults); ok {
		r.readFields(root, fileFields)
	}
	if len(faults) > 0 {
		faults.Sort()
		return nil, r.tokenFiles, faults
	}
	return r.roster, r.tokenFiles, nil
}

func (r *reader) readIdentities(v strictyaml.Value) {
	items, ok := v.List()
	if ok && len(items) == 0 {
		none := strictyaml.Fault{File: r.file, Line: v.Line(), Col: v.Col(), Reason: "no identities: nobody may call"}
		r.warnings = append(r.warnings, none.Error())
	}
	for _, item := range items {
		entry, _ := item.Entry("identity", policy.IsName)
		i := &Identity{models: map[string]bool{}, watches: -1, use: new(use)}
		r.identity, r.known = i, false
		if _, ok := r.readFields(entry, identityFields); !ok {
			continue
		}
		i.use.share.set(i.bytes)
		r.identities[i.name] = i
		if !r.known {
			r.warnings = append(r.warnings, entry.Warning("neither tokens nor certificates nor jwts: nobody is known as it"))
		}
	}
}

func (r *reader) readIssuers(v strictyaml.Value) {
	items, _ := v.List()
	if len(items) > mostIssuers {
		v.Fault("%d issuers, expected at most %d", len(items), mostIssuers)
		return
	}
	for _, item := range items {
		entry, name := item.Entry("issuer", policy.IsName)
		r.issuer = issuer.Config{}
		r.readFields(entry, issuerFields)
		r.configs[name] = r.issuer
	}
}

// readFields reads the fields of a mapping. It returns false if the value is no mapping.
func (r *reader) readFields(v strictyaml.Value, fields []field) (strictyaml.Mapping, bool) {
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
			f.read(r, value)
		case f.needed != "":
			m.Need(f.name, f.needed)
		}
	}
	return m, true
}

// taken reports a fault and returns true if a key was given before; otherwise it notes the key.
func taken(places map[string]string, key string, v strictyaml.Value, format string) bool {
	if first, ok := places[key]; ok {
		v.Fault(format, first)
		return true
	}
	places[key] = v.Where()
	return false
}
