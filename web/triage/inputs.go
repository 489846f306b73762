package triage

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	numShares = 8   // most classes of a fingerprint
	maxIDSize = 256 // most bytes of an id
	maxRecent = 100 // most deferred inputs that are shown with their details
	maxPassed = 64  // most waiting inputs that a full ring passes over to keep them
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
	return &Inputs{keep: keep, now: clock.Now}
}

// Add adds an input that was deferred under a policy, or is to be reviewed. The receipt is that of a
// review, and empty for none. Add keeps no reference to the id, o or the receipt.
func (list *Inputs) Add(p *policy.Policy, id []byte, o *engine.Outcome, sealed []byte) {
	if list == nil {
		return
	}
	kept, ok := list.models.Load(p.Name)
	if !ok {
		kept, _ = list.models.LoadOrStore(p.Name, &ring{keep: list.keep})
	}
	r := kept.(*ring)
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.next()
	*slot = input{
		Deferred: pagestate.Deferred{
			At: list.now().UTC(), Policy: p.Hash, Passes: o.Passes, Predicted: p.Classes[o.Predicted], PredictedCritical: has(p.Critical, o.Predicted),
			Score: string(o.Decision.Score), Value: pagestate.Number(o.Decision.Value), Reason: o.Decision.Reason.String(),
			Priority: pagestate.Number(o.Percentile), Fingerprint: slot.Fingerprint[:0],
		},
		id: append(slot.id[:0], cut(id)...), classes: p.Classes, decision: o.Decision, audited: p.Audit != nil, review: len(sealed) == receipt.Size,
	}
	if k := o.Decision.Class; k >= 0 {
		slot.Deciding, slot.DecidingCritical = p.Classes[k], has(p.Critical, k)
	}
	slot.addFingerprint(p, o)
	if slot.review {
		slot.receipt = [receipt.Size]byte(sealed)
	}
}

// Reported notes the answers to outcomes of inputs to be reviewed, from the page or from elsewhere.
func (list *Inputs) Reported(outcomes []*ckdv1.Outcome, answers []*ckdv1.OutcomeAnswer) {
	if list == nil {
		return
	}
	read := map[[receipt.Size]byte]reading{}
	for i, o := range outcomes {
		if len(o.GetReceipt()) == receipt.Size && answers[i].GetError() == nil {
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
// whose decision readers may not know yet. Such an input may have been decided more than once: all that
// has its id is left out.
func (list *Inputs) recent(model string, ledger bool) *pagestate.Recent {
	recent := &pagestate.Recent{Kept: min(list.keep, maxRecent), Inputs: []pagestate.Deferred{}}
	kept, ok := list.models.Load(model)
	if !ok {
		return recent
	}
	waiting := map[string]bool{} // by id
	kept.(*ring).each(func(referred *input) bool {
		if referred.blind(ledger) {
			recent.Blind, waiting[string(referred.id)] = true, len(referred.id) > 0
		}
		return true
	})
	kept.(*ring).each(func(referred *input) bool {
		if referred.decision.Action == policy.Defer && !referred.blind(ledger) && !waiting[string(referred.id)] {
			recent.Inputs = append(recent.Inputs, referred.describe())
		}
		return len(recent.Inputs) < maxRecent
	})
	slices.SortStableFunc(recent.Inputs, func(a, b pagestate.Deferred) int { return b.At.Compare(a.At) })
	return recent
}

// ring holds the last inputs of one model, and those before that wait for a reading.
type ring struct {
	keep int

	mu     sync.Mutex
	inputs []input // at most keep
	added  int     // modulo keep, the place of the next one
	lost   int     // inputs that waited when another took their place
}

// input is an input that went to a person.
type input struct {
	// Deferred lacks the id and the threshold. Its fingerprint and id reuse the memory of the input that
	// this one replaces.
	pagestate.Deferred
	id       []byte
	classes  []string // of its policy
	decision policy.Decision

	audited bool // its policy draws audits
	review  bool // it is to be reviewed, with the receipt
	receipt [receipt.Size]byte
	sources []string             // of its outcomes
	answer  *ckdv1.OutcomeAnswer // to the last outcome that counts; nil for none
	truth   string               // of that outcome
}

// next returns the place of another input. If the ring is full, that is the place of the oldest one, after
// those that wait for a reading: these are passed over, and count as new.
func (r *ring) next() *input {
	if len(r.inputs) < r.keep {
		r.inputs = append(r.inputs, input{Deferred: pagestate.Deferred{Fingerprint: make([]pagestate.Share, 0, numShares)}})
	} else {
		for passed := range min(r.keep, maxPassed) {
			if !r.inputs[(r.added+passed)%r.keep].waits() {
				r.added += passed
				break
			}
		}
	}
	slot := &r.inputs[r.added%r.keep]
	r.added++
	if slot.waits() {
		r.lost++
	}
	return slot
}

// each calls do with the inputs, about the latest first, while it returns true. It unlocks after each input,
// because add must not wait long. do must not keep the input.
func (r *ring) each(do func(*input) bool) {
	r.mu.Lock()
	last, held := r.added-1, len(r.inputs)
	r.mu.Unlock()
	for n := last; n > last-held; n-- {
		r.mu.Lock()
		going := do(&r.inputs[n%r.keep]) // or a new one that took its place meanwhile
		r.mu.Unlock()
		if !going {
			break
		}
	}
}

// describe returns the details of a deferred input, which share no memory with it.
func (d *input) describe() pagestate.Deferred {
	found, threshold := d.Deferred, d.decision.Threshold
	found.ID, found.Fingerprint = string(d.id), slices.Clone(d.Fingerprint)
	if d.decision.HasThreshold && (d.decision.Reason == policy.AboveThreshold || d.decision.Reason == policy.Unfamiliar) {
		found.Threshold = &threshold
	}
	return found
}

// addFingerprint adds the classes with the largest C above 0, of equal ones the first, and the sum of
// all others.
func (d *input) addFingerprint(p *policy.Policy, o *engine.Outcome) {
	for k, c := range o.C {
		full := len(d.Fingerprint) == numShares
		if !(c > 0) || full && c <= d.Fingerprint[numShares-1].C {
			d.Rest += pagestate.Number(c)
			continue
		}
		if full {
			d.Rest += pagestate.Number(d.Fingerprint[numShares-1].C)
			d.Fingerprint = d.Fingerprint[:numShares-1]
		}
		place := slices.IndexFunc(d.Fingerprint, func(s pagestate.Share) bool { return s.C < c })
		if place < 0 {
			place = len(d.Fingerprint)
		}
		d.Fingerprint = slices.Insert(d.Fingerprint, place, pagestate.Share{
			Class: p.Classes[k], Critical: has(p.Critical, k), C: c, Unreliable: o.Skewness[k] > p.ReliabilityThreshold,
		})
	}
}

// cut returns the kept part of an id: at most maxIDSize bytes of whole characters.
func cut(id []byte) []byte {
	if len(id) <= maxIDSize {
		return id
	}
	end := maxIDSize
	for end > maxIDSize-utf8.UTFMax && !utf8.RuneStart(id[end]) {
		end--
	}
	return id[:end]
}
