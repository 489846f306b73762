package triage

import (
	"slices"
	"time"

	"github.com/ckd-project/ckd/policy"
)

// maxHistories is how many models have a history at one time. With more models, the ones
// looked at last have one.
const maxHistories = 64

// models holds the models in force and their histories. It has no lock of its own.
type models struct {
	policies  []*policy.Policy // by name
	names     []string         // names of the policies
	histories map[string]*history
	begunAt   time.Time // when look last began a history
}

func newModels() models {
	return models{names: []string{}, histories: make(map[string]*history)}
}

// replace puts policies in force, sorted by name, at the time of the sample before. It drops the
// histories of removed models, and begins histories of new ones while there is room.
func (m *models) replace(policies []*policy.Policy, before time.Time) {
	known := m.names
	m.policies = policies
	m.names = make([]string, len(policies))
	for i, p := range policies {
		m.names[i] = p.Name
	}
	for name := range m.histories {
		if _, ok := slices.BinarySearch(m.names, name); !ok {
			delete(m.histories, name)
		}
	}
	for _, name := range m.names {
		if m.histories[name] != nil || len(m.histories) >= maxHistories {
			continue
		}
		h := &history{}
		if _, ok := slices.BinarySearch(known, name); !ok {
			h.from = before // its counters began at 0 since; for the first sample this is zero: unknown
		}
		m.histories[name] = h
	}
}

// find returns the policy of a model, or nil.
func (m *models) find(name string) *policy.Policy {
	if i, ok := slices.BinarySearch(m.names, name); ok {
		return m.policies[i]
	}
	return nil
}

// look notes that a model is looked at, for no name the first one, and returns its name. If the
// model has no history, look begins one in place of the history not looked at for longest, and
// reports that this takes a sample; at most once in a rest, so that a request that comes sooner has to look
// again.
func (m *models) look(name string, now time.Time, rest time.Duration) (_ string, begins bool) {
	if name == "" && len(m.names) > 0 {
		name = m.names[0]
	}
	h := m.histories[name]
	if h == nil && m.find(name) != nil && now.Sub(m.begunAt) >= rest {
		begins = true
		m.begunAt = now
		h = &history{}
		m.makeRoom()
		m.histories[name] = h
	}
	if h != nil {
		h.lookedAt = now
	}
	return name, begins
}

// makeRoom drops the history that was not looked at for longest, if there is no room for another.
func (m *models) makeRoom() {
	if len(m.histories) < maxHistories {
		return
	}
	var longest string
	for name, h := range m.histories {
		if other := m.histories[longest]; other == nil || h.lookedAt.Before(other.lookedAt) {
			longest = name
		}
	}
	delete(m.histories, longest)
}
