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
	numShares = 8   // most classes of a fingerprint
	maxIDSize = 256 // most bytes of an id
)

// Deferrals keeps the last deferred inputs of each model. It may be shared; a nil one keeps
// nothing.
type Deferrals struct {
	keep   int
	now    func() time.Time
	models sync.Map // *ring by name
}

// NewDeferrals returns Deferrals that keep the given number of inputs of each model; nil for none.
func NewDeferrals(keep int) *Deferrals {
	if keep <= 0 {
		return nil
	}
	return &Deferrals{keep: keep, now: time.Now}
}

// Add adds an input that was deferred under a policy. It keeps no reference to o.
func (d *Deferrals) Add(p *policy.Policy, id string, o *engine.Outcome) {
	if d == nil {
		return
	}
	input := deferred{
		at: d.now(), policy: p.Hash, decision: o.Decision,
		predicted: p.Classes[o.Predicted], passes: o.Passes, prints: fingerprintOf(o.C),
		risk: o.Risk, priority: o.Percentile,
		predictedCritical: has(p.Critical, o.Predicted),
	}
	if k := o.Decision.Class; k >= 0 {
		input.deciding, input.decidingCritical = p.Classes[k], has(p.Critical, k)
	}
	for i := range input.prints.n {
		s := &input.prints.shares[i]
		s.name, s.critical = p.Classes[s.class], has(p.Critical, s.class)
		s.unreliable = o.Skewness[s.class] > p.ReliabilityThreshold
	}

	kept, ok := d.models.Load(p.Name)
	if !ok {
		kept, _ = d.models.LoadOrStore(p.Name, &ring{keep: d.keep})
	}
	kept.(*ring).add(input, cut(id))
}

// keepOnly drops models that are not in the sorted list.
func (d *Deferrals) keepOnly(models []string) {
	d.models.Range(func(name, _ any) bool {
		if _, ok := slices.BinarySearch(models, name.(string)); !ok {
			d.models.Delete(name)
		}
		return true
	})
}

// recent returns the last inputs of a model, the latest first.
func (d *Deferrals) recent(model string) *Recent {
	recent := &Recent{Kept: d.keep, Inputs: []Deferred{}}
	if kept, ok := d.models.Load(model); ok {
		recent.Inputs = kept.(*ring).list(recent.Inputs)
	}
	return recent
}

// ring holds the last inputs of one model. Input n is at index n modulo keep.
type ring struct {
	keep int

	mu     sync.Mutex
	inputs []deferred // at most keep
	added  int
}

// deferred is a deferred input. It holds names and no reference to its policy.
type deferred struct {
	at       time.Time
	policy   string // its hash
	id       []byte // reuses the memory of the input that it replaces
	decision policy.Decision

	predicted, deciding                 string
	predictedCritical, decidingCritical bool
	passes                              int
	risk, priority                      float64 // NaN: unknown
	prints                              fingerprint
}

func (r *ring) add(input deferred, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.added % r.keep
	if at == len(r.inputs) {
		r.inputs = append(r.inputs, deferred{})
	}
	to := &r.inputs[at]
	to.id = append(to.id[:0], id...)
	input.id = to.id
	*to = input
	r.added++
}

// list appends the last inputs to a list, the latest first. It unlocks after each input, because
// add must not wait long.
func (r *ring) list(to []Deferred) []Deferred {
	r.mu.Lock()
	last := r.added - 1
	r.mu.Unlock()
	for n := last; n >= max(0, last-r.keep+1); n-- {
		r.mu.Lock()
		overwritten := r.added > n+r.keep
		if !overwritten {
			to = append(to, r.inputs[n%r.keep].describe())
		}
		r.mu.Unlock()
		if overwritten {
			break
		}
	}
	return to
}

func (d *deferred) describe() Deferred {
	by := &d.decision
	found := Deferred{
		At: d.at.UTC(), ID: string(d.id), Passes: d.passes, Policy: d.policy,
		Predicted: d.predicted, PredictedCritical: d.predictedCritical, Deciding: d.deciding, DecidingCritical: d.decidingCritical,
		Score: string(by.Score), Value: Number(by.Value), Reason: by.Reason.String(),
		Risk: Number(d.risk), Priority: Number(d.priority),
		Fingerprint: make([]Share, d.prints.n), Rest: Number(d.prints.rest),
	}
	if by.HasThreshold && (by.Reason == policy.AboveThreshold || by.Reason == policy.Unfamiliar) {
		threshold := by.Threshold
		found.Threshold = &threshold
	}
	for i := range found.Fingerprint {
		s := &d.prints.shares[i]
		found.Fingerprint[i] = Share{s.name, s.critical, s.c, s.unreliable}
	}
	return found
}

// fingerprint holds the largest C_k of an input, in descending order.
type fingerprint struct {
	shares [numShares]share
	n      int
	rest   float64 // sum of all other C_k
}

type share struct {
	class                int
	name                 string
	critical, unreliable bool
	c                    float64
}

// fingerprintOf returns the largest elements of C above 0; of equal ones the first.
func fingerprintOf(c []float64) (f fingerprint) {
	for k, v := range c {
		full := f.n == numShares
		if !(v > 0) || full && v <= f.shares[numShares-1].c {
			f.rest += v
			continue
		}
		if full {
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

// cut returns what is kept of an id: at most maxIDSize bytes of whole characters.
func cut(id string) string {
	if len(id) <= maxIDSize {
		return id
	}
	end := maxIDSize
	for end > maxIDSize-utf8.UTFMax && !utf8.RuneStart(id[end]) {
		end--
	}
	return id[:end]
}
