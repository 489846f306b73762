package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Set is the policies of all models. It is immutable.
type Set struct {
	sorted []*Policy
	byName map[string]*Policy
	hash   string
}

// Get is the policy of a model.
func (s *Set) Get(name string) (*Policy, bool) {
	p, ok := s.byName[name]
	return p, ok
}

// All is the policies in the order of their models' names.
func (s *Set) All() []*Policy { return slices.Clone(s.sorted) }

// Hash is the SHA-256, in hex, of the names, versions, hashes, tensors, calibrations
// and rules to settle by of all policies. It differs from that of another set when some answer, or what
// is recorded of a policy, would.
func (s *Set) Hash() string { return s.hash }

// newSet of policies whose names are unique.
func newSet(policies []*Policy) *Set {
	s := &Set{sorted: policies, byName: make(map[string]*Policy, len(policies))}
	slices.SortFunc(s.sorted, func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, p := range s.sorted {
		s.byName[p.Name] = p
		fmt.Fprintf(h, "%d:%s %d:%s %s\n", len(p.Name), p.Name, len(p.Version), p.Version, p.Hash)
		var w writer
		w.tensor(p.Tensor)
		if p.Calibration != nil {
			p.Calibration.write(&w, p.Classes)
		}
		if p.Settle != nil {
			p.Settle.write(&w)
		}
		h.Write(w.b.Bytes())
	}
	s.hash = fmt.Sprintf("%x", h.Sum(nil))
	return s
}
