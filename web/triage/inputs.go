package triage

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	numShares = 8   // most classes of a fingerprint
	maxIDSize = 256 // most bytes of an id
	maxRecent = 100 // most deferred inputs that are shown with their details
)

// Inputs keeps the last inputs of each model that went to a person: deferred ones, and ones to be
// reviewed. It may be shared; a nil one keeps nothing.
type Inputs struct {
	keep   int
	now    func() time.Time
	models sync.Map // *ring by name
}

// NewInputs returns Inputs that keep the given number of inputs of each model; nil for none.
func NewInputs(keep int) *Inputs {
	if keep <= 0 {
		return nil
	}
	return &Inputs{keep: keep, now: time.Now}
}

// Add adds an input that was deferred under a policy, or is to be reviewed. The receipt is that of a
// review, and empty for none. Add keeps no reference to o or the receipt.
func (list *Inputs) Add(p *policy.Policy, id string, o *engine.Outcome, sealed []byte) {
	if list == nil {
		return
	}
	referred := input{
		added: list.now(), policy: p.Hash, classes: p.Classes, decision: o.Decision,
		predicted: p.Classes[o.Predicted], passes: o.Passes, prints: fingerprintOf(o.C),
		priority: o.Percentile, audited: p.Audit != nil,
		predictedCritical: has(p.Critical, o.Predicted),
	}
	if k := o.Decision.Class; k >= 0 {
		referred.deciding, referred.decidingCritical = p.Classes[k], has(p.Critical, k)
	}
	for i := range referred.prints.n {
		s := &referred.prints.shares[i]
		s.name, s.critical = p.Classes[s.class], has(p.Critical, s.class)
		s.unreliable = o.Skewness[s.class] > p.ReliabilityThreshold
	}
	referred.review = len(sealed) == receipt.Size
	if referred.review {
		referred.receipt = [receipt.Size]byte(sealed)
	}

	kept, ok := list.models.Load(p.Name)
	if !ok {
		kept, _ = list.models.LoadOrStore(p.Name, &ring{keep: list.keep})
	}
	kept.(*ring).add(&referred, cut(id))
}

// Reported notes the answers to outcomes of inputs to be reviewed, from the page or from elsewhere.
func (list *Inputs) Reported(outcomes []*ckdv1.Outcome, answers []*ckdv1.OutcomeAnswer) {
	if list == nil {
		return
	}
	read := map[[receipt.Size]byte]reading{}
	for i, o := range outcomes {
		if len(o.GetReceipt()) == receipt.Size && isRead(answers[i]) {
			read[[receipt.Size]byte(o.GetReceipt())] = reading{o, answers[i]}
		}
	}
	if len(read) == 0 {
		return
	}
	list.models.Range(func(_, kept any) bool {
		kept.(*ring).each(func(one *input) bool {
			if r, ok := read[one.receipt]; ok && one.review {
				one.read(&r)
				kept.(*ring).read++
			}
			return true
		})
		return true
	})
}

// keepOnly drops models that are not in the sorted list.
func (list *Inputs) keepOnly(models []string) {
	list.models.Range(func(name, _ any) bool {
		if _, ok := slices.BinarySearch(models, name.(string)); !ok {
			list.models.Delete(name)
		}
		return true
	})
}

// recent returns the last deferred inputs of a model, the latest first, without inputs
// whose decision readers may not know yet.
func (list *Inputs) recent(model string) *pagestate.Recent {
	recent := &pagestate.Recent{Kept: min(list.keep, maxRecent), Inputs: []pagestate.Deferred{}}
	if kept, ok := list.models.Load(model); ok {
		kept.(*ring).each(func(referred *input) bool {
			if referred.decision.Action == policy.Defer && !referred.blind() {
				recent.Inputs = append(recent.Inputs, referred.describe())
			}
			recent.Blind = recent.Blind || referred.blind()
			return len(recent.Inputs) < maxRecent
		})
	}
	return recent
}

// ring holds the last inputs of one model. Input n is at index n modulo keep.
type ring struct {
	keep int

	mu     sync.Mutex
	inputs []input // at most keep
	added  int
	read   int // number of noted outcomes
}

// input is an input that went to a person. It holds names, and of its policy the classes alone.
type input struct {
	added    time.Time
	policy   string // its hash
	classes  []string
	id       []byte // reuses the memory of the input that it replaces
	decision policy.Decision

	predicted, deciding                 string
	predictedCritical, decidingCritical bool
	passes                              int
	priority                            float64 // NaN: unknown
	prints                              fingerprint

	audited bool // its policy draws audits
	review  bool // it is to be reviewed, with the receipt
	receipt [receipt.Size]byte
	sources []string             // of its outcomes
	answer  *ckdv1.OutcomeAnswer // to the last outcome; nil for none
	truth   string               // of the last outcome
}

// add adds an input in the place of the oldest one. It takes over the input's slices.
func (r *ring) add(referred *input, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.added % r.keep
	if slot == len(r.inputs) {
		r.inputs = append(r.inputs, input{})
	}
	kept := &r.inputs[slot]
	kept.id = append(kept.id[:0], id...)
	referred.id = kept.id
	*kept = *referred
	r.added++
}

// each calls do with the inputs, the latest first, while it returns true. It unlocks after each input,
// because add must not wait long. do must not keep the input.
func (r *ring) each(do func(*input) bool) {
	r.mu.Lock()
	last := r.added - 1
	r.mu.Unlock()
	for n := last; n >= max(0, last-r.keep+1); n-- {
		r.mu.Lock()
		going := r.added <= n+r.keep // else it is overwritten
		if going {
			going = do(&r.inputs[n%r.keep])
		}
		r.mu.Unlock()
		if !going {
			break
		}
	}
}

// describe returns the details of a deferred input.
func (d *input) describe() pagestate.Deferred {
	decision := &d.decision
	found := pagestate.Deferred{
		At: d.added.UTC(), ID: string(d.id), Passes: d.passes, Policy: d.policy,
		Predicted: d.predicted, PredictedCritical: d.predictedCritical, Deciding: d.deciding, DecidingCritical: d.decidingCritical,
		Score: string(decision.Score), Value: pagestate.Number(decision.Value), Reason: decision.Reason.String(),
		Priority:    pagestate.Number(d.priority),
		Fingerprint: make([]pagestate.Share, d.prints.n), Rest: pagestate.Number(d.prints.rest),
	}
	if decision.HasThreshold && (decision.Reason == policy.AboveThreshold || decision.Reason == policy.Unfamiliar) {
		threshold := decision.Threshold
		found.Threshold = &threshold
	}
	for i := range found.Fingerprint {
		s := &d.prints.shares[i]
		found.Fingerprint[i] = pagestate.Share{Class: s.name, Critical: s.critical, C: s.c, Unreliable: s.unreliable}
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
		last := f.n - 1
		for ; last > 0 && f.shares[last-1].c < v; last-- {
			f.shares[last] = f.shares[last-1]
		}
		f.shares[last] = share{class: k, c: v}
	}
	return f
}

// cut returns the kept part of an id: at most maxIDSize bytes of whole characters.
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
