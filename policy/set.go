package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Set holds the policies of all models. It is immutable.
type Set struct {
	sorted []*Policy
	byName map[string]*Policy
	hash   string
}

// Get returns the policy of a model.
func (s *Set) Get(name string) (*Policy, bool) {
	p, ok := s.byName[name]
	return p, ok
}

// All returns the policies in the order of their models' names.
func (s *Set) All() []*Policy { return slices.Clone(s.sorted) }

// Hash returns the SHA-256, in hex, of all policies as Marshal writes them. It changes if some answer,
// or what is recorded of a policy, would.
func (s *Set) Hash() string { return s.hash }

// newSet returns a set of policies, whose names must differ.
func newSet(policies []*Policy) *Set {
	s := &Set{sorted: policies, byName: make(map[string]*Policy, len(policies))}
	slices.SortFunc(s.sorted, func(a, b *Policy) int { return cmp.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, p := range s.sorted {
		s.byName[p.Name] = p
		h.Write(p.Marshal())
	}
	s.hash = fmt.Sprintf("%x", h.Sum(nil))
	return s
}
