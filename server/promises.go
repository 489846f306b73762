package server

import (
	"slices"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// promises holds what outcomes say about policies, by their hashes. It is never changed.
type promises map[string][]*ckdv1.Promise

// SetPromises replaces what outcomes say about policies, which GetModel repeats. While an alarm of a
// policy is up, of whatever version of the model, and its audit says so, the inputs that it retains
// without calling them critical are deferred. Open inputs are too, also those of a policy that has been
// replaced.
func (s *Server) SetPromises(all []*ckdv1.Promise) {
	byKey := promises{}
	for _, p := range all {
		hash := p.GetPolicy().GetHash()
		byKey[hash] = append(byKey[hash], p)
	}
	s.catalog.promises.Store(&byKey)
}

// isViolated reports whether an alarm of the policy is up and its audit defers what it calls safe
// meanwhile. Then all of that is reviewed.
func (m *model) isViolated() bool {
	p := m.Policy()
	if p.Audit == nil || p.Audit.OnBreach != policy.DeferOnBreach {
		return false
	}
	violated := slices.ContainsFunc((*m.promises.Load())[p.Hash], (*ckdv1.Promise).GetAlarm)
	m.auditor.Surge(violated)
	return violated
}
