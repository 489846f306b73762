package server

import (
	"slices"

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

// settlingOf a policy: the one that it has already, or had before, if that is kept.
func (s *Server) settlingOf(p *policy.Policy) (*settling, error) {
	if i := slices.IndexFunc(s.settlings, func(is *settling) bool { return is.hash == p.Hash }); i >= 0 {
		return s.settlings[i], nil
	}
	return newSettling(p)
}

// formerSettlings is how many are kept of policies that are not in force.
const formerSettlings = 64

// keepSettlings of a catalog that takes effect, and of policies that were in force
// before: to load one of these again is no new policy, and audits of inputs that are
// still open under it may stop it meanwhile. Of more than are kept, the one is forgotten
// that was in force longest ago among those that have not stopped, or else among all.
func (s *Server) keepSettlings(next catalog) {
	var current []*settling
	for _, m := range next {
		if m.settling != nil {
			current = append(current, m.settling)
		}
	}
	former := slices.DeleteFunc(s.settlings, func(is *settling) bool { return slices.Contains(current, is) })
	for len(former) > formerSettlings {
		settles := slices.IndexFunc(former, func(is *settling) bool { return !is.stopped.Load() })
		first := max(settles, 0)
		former = slices.Delete(former, first, first+1)
	}
	s.settlings = slices.Concat(former, current) // those in force longest ago come first
}
