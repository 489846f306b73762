package server

import (
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle/audit"
)

// Settling is what audits have said, by the name of each model with a rule in force.
func (s *Server) Settling() map[string]audit.Status {
	all := map[string]audit.Status{}
	for name, m := range *s.catalog.Load() {
		if m.settling != nil {
			all[name] = m.settling.status()
		}
	}
	return all
}

// settlingOf a policy: the one that it has already, if it has one.
func (s *Server) settlingOf(p *policy.Policy) (*settling, error) {
	if is := s.settlings[p.Hash]; is != nil {
		return is, nil
	}
	return newSettling(p)
}

// keepSettlings of a catalog that takes effect, and of policies that were stopped: to
// load them again is no new policy.
func (s *Server) keepSettlings(next catalog) {
	keep := map[string]*settling{}
	for hash, is := range s.settlings {
		if is.stopped.Load() {
			keep[hash] = is
		}
	}
	for _, m := range next {
		if m.settling != nil {
			keep[m.settling.hash] = m.settling
		}
	}
	s.settlings = keep
}
