package server

import (
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
	s.catalog.setPromises(byKey)
}

// setPromises makes the models in force, and those of later policies, heed promises. Models that have been
// replaced heed them at their next decision.
func (c *catalog) setPromises(by promises) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	c.promises.Store(&by)
	for _, m := range c.models() {
		m.heed(&by)
	}
}

// isViolated reports whether what the model calls safe is deferred. It heeds promises that are new.
func (m *model) isViolated() bool {
	if all := m.promises.Load(); all != m.heeded.Load() {
		m.heed(all)
	}
	return m.violated.Load()
}

// heed makes the model defer what it calls safe, or ends that.
func (m *model) heed(all *promises) {
	p := m.Policy()
	violated := false
	if p.Audit != nil && p.Audit.OnBreach == policy.DeferOnBreach {
		for _, one := range (*all)[p.Hash] {
			violated = violated || one.GetAlarm()
		}
	}
	m.violated.Store(violated)
	m.auditor.Surge(violated)
	m.heeded.Store(all)
}
