package triage

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

const (
	numShares  = 8   // classes of a fingerprint
	mostIDSize = 256 // bytes of an id that are kept
)

// Deferrals is the last deferred inputs of each model. It may be shared; nil keeps
// nothing.
type Deferrals struct {
	keep   int
	models sync.Map // of *ring, by name
}

// NewDeferrals keeps so many inputs of each model; for none it is nil.
func NewDeferrals(keep int) *Deferrals {
	if keep <= 0 {
		return nil
	}
	return &Deferrals{keep: keep}
}

// Add adds an input that was deferred under a policy. Nothing of o is kept.
func (d *Deferrals) Add(p *policy.Policy, id string, o *engine.Outcome) {
	if d == nil {
		return
	}
	prints := fingerprintOf(o.C)
	for i := range prints.n {
		s := &prints.shares[i]
		s.unreliable = o.Skewness[s.class] > p.ReliabilityThreshold
	}
	id = cut(id)

	kept, ok := d.models.Load(p.Name)
	if !ok {
		kept, _ = d.models.LoadOrStore(p.Name, &ring{})
	}
	r := kept.(*ring)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.inputs) < d.keep {
		r.inputs = append(r.inputs, deferred{})
	}
	to := &r.inputs[r.next%d.keep]
	r.next = (r.next + 1) % d.keep
	to.at, to.policy, to.id = time.Now(), p, append(to.id[:0], id...)
	to.decision, to.predicted, to.passes = o.Decision, o.Predicted, o.Passes
	to.fingerprint = prints
}

// ring is the inputs of one model.
type ring struct {
	mu     sync.Mutex
	inputs []deferred // as many as are kept, or fewer as yet
	next   int        // that is overwritten
}

type deferred struct {
	at          time.Time
	policy      *policy.Policy
	id          []byte
	decision    policy.Decision
	predicted   int
	passes      int
	fingerprint fingerprint
}

// fingerprint is the largest C_k of an input.
type fingerprint struct {
	shares [numShares]share // the largest first
	n      int
	rest   float64
}

type share struct {
	class      int
	c          float64
	unreliable bool
}

// fingerprintOf finds the largest of C that are not 0; of equal ones the first.
func fingerprintOf(c []float64) (f fingerprint) {
	for k, v := range c {
		if f.n == numShares && !(v > f.shares[numShares-1].c) || !(v > 0) {
			f.rest += v
			continue
		}
		if f.n == numShares {
			f.rest += f.shares[numShares-1].c
		} else {
			f.n++
		}
		at := f.n - 1
		for ; at > 0 && f.shares[at-1].c < v; at-- {
			f.shares[at] = f.shares[at-1]
		}
		f.shares[at] = share{class: k, c: v}
	}
	return f
}

// cut is what is kept of an id.
func cut(id string) string {
	if len(id) <= mostIDSize {
		return id
	}
	end := mostIDSize
	for end > mostIDSize-utf8.UTFMax && !utf8.RuneStart(id[end]) {
		end--
	}
	return id[:end]
}

// keepOnly drops the models that are not among those, which are in order.
func (d *Deferrals) keepOnly(models []string) {
	d.models.Range(func(name, _ any) bool {
		if _, ok := slices.BinarySearch(models, name.(string)); !ok {
			d.models.Delete(name)
		}
		return true
	})
}

// recent is the inputs of a model, the last one first.
func (d *Deferrals) recent(model string) *Recent {
	recent := &Recent{Kept: d.keep, Inputs: []Deferred{}}
	kept, ok := d.models.Load(model)
	if !ok {
		return recent
	}
	r := kept.(*ring)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.inputs {
		at := (r.next - 1 - i + 2*d.keep) % d.keep
		recent.Inputs = append(recent.Inputs, r.inputs[at].describe())
	}
	return recent
}

func (d *deferred) describe() Deferred {
	p, by := d.policy, &d.decision
	found := Deferred{
		At: d.at, ID: string(d.id), Predicted: p.Classes[d.predicted], Passes: d.passes, Policy: p.Hash,
		Score: string(by.Score), Value: Number(by.Value), Reason: by.Reason.String(),
		Fingerprint: []Share{}, Rest: Number(d.fingerprint.rest),
	}
	if by.HasThreshold && by.Reason == policy.AboveThreshold {
		threshold := by.Threshold
		found.Threshold = &threshold
	}
	if by.Class >= 0 {
		found.Deciding = p.Classes[by.Class]
	}
	for _, s := range d.fingerprint.shares[:d.fingerprint.n] {
		found.Fingerprint = append(found.Fingerprint, Share{p.Classes[s.class], has(p.Critical, s.class), s.c, s.unreliable})
	}
	return found
}
