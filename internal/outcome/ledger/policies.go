package ledger

import (
	"encoding/hex"
	"slices"
	"sync"

	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// policies holds the policies that were told.
type policies struct {
	mu     sync.RWMutex
	byHash map[[32]byte]*truth.Terms
}

func (p *policies) get(hash [32]byte) *truth.Terms {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byHash[hash]
}

func (p *policies) set(t *truth.Terms) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byHash == nil {
		p.byHash = make(map[[32]byte]*truth.Terms)
	}
	p.byHash[t.Hash] = t
}

// load reads the policies.
func (p *policies) load(tx *store.Tx) error {
	return tx.Policies(func(hash [32]byte, body []byte) error {
		if known := p.get(hash); known != nil && string(known.Policy.Marshal()) == string(body) {
			return nil
		}
		all, err := parse("policy "+hex.EncodeToString(hash[:]), body)
		for _, t := range all {
			p.set(t)
		}
		return err
	})
}

// parse reads the policies of a file.
func parse(name string, yaml []byte) ([]*truth.Terms, error) {
	set, err := policy.Parse(policy.File{Name: name, Data: yaml})
	if err != nil {
		return nil, err
	}
	var all []*truth.Terms
	for _, p := range set.All() {
		all = append(all, truth.NewTerms(p))
	}
	return all, nil
}

// AddPolicy learns the policies of files, as a daemon has them in force: all of them, or none. Hashes are computed anew:
// receipts of a policy are counted only under the hash of its own text. A text that differs only in
// what the hash does not cover, such as its audits, replaces the one before.
func (l *Ledger) AddPolicy(files ...[]byte) error {
	var learnt []*truth.Terms
	for _, yaml := range files {
		all, err := parse("policy", yaml)
		if err != nil {
			return err
		}
		for _, t := range all {
			if known := l.policies.get(t.Hash); known == nil || string(known.Policy.Marshal()) != string(t.Policy.Marshal()) {
				learnt = append(learnt, t)
			}
		}
	}
	if len(learnt) == 0 {
		return nil
	}
	err := l.store.Update(func(tx *store.Tx) error {
		for _, t := range learnt {
			if err := l.addPolicy(tx, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range learnt {
		l.policies.set(t)
	}
	return nil
}

func (l *Ledger) addPolicy(tx *store.Tx, t *truth.Terms) error {
	kind := eventPolicy
	if l.policies.get(t.Hash) != nil {
		kind = eventPolicyChanged
	}
	if err := tx.PutPolicy(t.Hash, t.Policy.Marshal()); err != nil {
		return err
	}
	return l.note(tx, Event{Kind: kind, Policy: t.Policy.Hash, Model: t.Policy.Name})
}

// Policy returns the model's name and the class names of a policy, and whether it is known.
func (l *Ledger) Policy(hash [32]byte) (model string, classes []string, known bool) {
	t := l.policies.get(hash)
	if t == nil {
		return "", nil, false
	}
	return t.Policy.Name, slices.Clone(t.Policy.Classes), true
}
