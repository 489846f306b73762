package triage

import (
	"maps"
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
	lookedAt  map[string]time.Time // when a page last asked for a model
}

func newModels() models {
	return models{names: []string{}, histories: make(map[string]*history), lookedAt: make(map[string]time.Time)}
}

// replace puts policies in force, sorted by name, at the time of the sample before. It drops the
// histories of removed models, and of those that others take the room of, and begins new ones.
func (m *models) replace(policies []*policy.Policy, before time.Time) {
	known := m.names
	m.policies = policies
	m.names = make([]string, len(policies))
	for i, p := range policies {
		m.names[i] = p.Name
	}
	maps.DeleteFunc(m.lookedAt, func(name string, _ time.Time) bool { return m.find(name) == nil })
	kept := slices.Clone(m.names)
	slices.SortStableFunc(kept, func(a, b string) int { return m.lookedAt[b].Compare(m.lookedAt[a]) })
	kept = kept[:min(len(kept), maxHistories)]
	maps.DeleteFunc(m.histories, func(name string, _ *history) bool { return !slices.Contains(kept, name) })
	for _, name := range kept {
		if m.histories[name] != nil {
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

// look notes that a model is looked at, for no name the first one, and returns its name. A model without a
// history begins one with the next sample.
func (m *models) look(name string, now time.Time) string {
	if name == "" && len(m.names) > 0 {
		name = m.names[0]
	}
	if m.find(name) != nil {
		m.lookedAt[name] = now
	}
	return name
}
