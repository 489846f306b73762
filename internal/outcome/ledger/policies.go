package ledger

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/policy"
)

// terms is what the ledger takes from a policy.
type terms struct {
	policy   *policy.Policy
	hash     [32]byte
	classes  map[string]int
	critical []bool // by class
}

// runLength returns the average number of outcomes before a false alarm, of all monitors of a promise
// together.
func (t *terms) runLength() float64 {
	if a := t.policy.Audit; a != nil {
		return a.RunLength
	}
	return policy.DefaultRunLength
}

// sensitivity returns the share of the critical inputs called safe that a reader is assumed to find.
// It moves Figure.AtSensitivity and what Holding demands. It moves no alarm.
func (t *terms) sensitivity() float64 {
	if a := t.policy.Audit; a != nil {
		return a.ReaderSensitivity
	}
	return 1
}

func newTerms(p *policy.Policy) (*terms, error) {
	t := &terms{policy: p, classes: make(map[string]int, len(p.Classes)), critical: make([]bool, len(p.Classes))}
	if n, err := hex.Decode(t.hash[:], []byte(p.Hash)); err != nil || n != len(t.hash) {
		return nil, fmt.Errorf("model %q: hash %q, expected SHA-256 in hex", p.Name, p.Hash)
	}
	for k, name := range p.Classes {
		t.classes[name] = k
	}
	for _, k := range p.Critical {
		t.critical[k] = true
	}
	return t, nil
}

// policies holds the policies that were told.
type policies struct {
	mu     sync.RWMutex
	byHash map[[32]byte]*terms
}

func (p *policies) get(hash [32]byte) *terms {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byHash[hash]
}

func (p *policies) set(t *terms) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byHash[t.hash] = t
}

func (p *policies) load(b *bolt.Bucket) error {
	return b.ForEach(func(hash, text []byte) error {
		set, err := policy.Parse(policy.File{Name: "policy " + hex.EncodeToString(hash), Data: text})
		if err != nil {
			return err
		}
		for _, one := range set.All() {
			t, err := newTerms(one)
			if err != nil {
				return err
			}
			p.set(t)
		}
		return nil
	})
}

// AddPolicy learns the policies of files, as a daemon has them in force: all of them, or none. Hashes are computed anew:
// receipts of a policy are counted only under the hash of its own text. A text that differs only in
// what the hash does not cover, such as its lines or audits, replaces the one before.
func (l *Ledger) AddPolicy(files ...[]byte) error {
	var learnt []*terms
	for _, yaml := range files {
		set, err := policy.Parse(policy.File{Name: "policy", Data: yaml})
		if err != nil {
			return err
		}
		for _, p := range set.All() {
			t, err := newTerms(p)
			if err != nil {
				return err
			}
			if known := l.policies.get(t.hash); known == nil || string(known.policy.Marshal()) != string(p.Marshal()) {
				learnt = append(learnt, t)
			}
		}
	}
	if len(learnt) == 0 {
		return nil
	}
	err := l.main.Update(func(tx *bolt.Tx) error {
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

func (st *store) addPolicy(tx *bolt.Tx, t *terms) error {
	b := tx.Bucket(bucketPolicies)
	kind := EventPolicy
	if b.Get(t.hash[:]) != nil {
		kind = EventPolicyChanged
	}
	if err := b.Put(t.hash[:], t.policy.Marshal()); err != nil {
		return err
	}
	return st.note(tx, Event{Kind: kind, Policy: t.policy.Hash, Model: t.policy.Name})
}

// Policy returns the model's name and the class names of a policy, and whether it is known.
func (l *Ledger) Policy(hash [32]byte) (model string, classes []string, known bool) {
	t := l.policies.get(hash)
	if t == nil {
		return "", nil, false
	}
	return t.policy.Name, slices.Clone(t.policy.Classes), true
}
