package engine

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ckd-project/ckd/engine/internal/follow"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// EarlyStopper applies the early-stopping rule of a policy and watches it by full-pass checks: some
// inputs run on to their last pass, which shows whether the rule would have decided them as all
// passes do. It may be shared by models and goroutines.
type EarlyStopper struct {
	// Sampler chooses the inputs that are checked by all passes. It must not change once inputs are
	// open.
	Sampler fullpass.Sampler

	hash   string // hash of the policy without lines, which change no decision
	rule   *earlystop.Rule
	plan   *follow.Plan
	last   int                            // passes after which the rule stops no input
	spare  [1 + bits.UintSize/2]sync.Pool // released *follow.Inputs by sizeClass of their room
	opened atomic.Uint64                  // inputs opened so far, which numbers them for the sampler

	// Copies of the state of the watch, readable without its lock.
	stopped, wary atomic.Bool
	verdicts      atomic.Uint64

	mu    sync.Mutex
	watch *fullpass.Watch
}

// newEarlyStopper returns nil for a policy without a rule in force.
func newEarlyStopper(p *policy.Policy, sampler fullpass.Sampler) (*EarlyStopper, error) {
	rule := p.EarlyStop()
	if rule == nil {
		return nil, nil
	}
	plan, err := follow.NewPlan(p)
	if err != nil {
		return nil, err
	}
	certified := p.EarlyStopping.Certificate
	o := fullpass.Options{Disagreement: certified.Disagreement}
	if released := certified.Released.AtMost; released < 1 {
		o.Retained = released
	}
	watch, err := fullpass.NewWatch(o)
	if err != nil {
		return nil, err
	}
	return &EarlyStopper{Sampler: sampler, hash: p.HashWithoutLines(), rule: rule, last: rule.Last(), plan: plan, watch: watch}, nil
}

// applies reports whether inputs that complete with this many passes may stop early now.
func (e *EarlyStopper) applies(passes int) bool {
	return e != nil && passes == e.rule.Passes && !e.stopped.Load()
}

// Stopped reports whether full-pass checks have shown that the rule errs more often than was
// certified. It then stops no further input.
func (e *EarlyStopper) Stopped() bool { return e.stopped.Load() }

// Checks returns what the full-pass checks have shown so far.
func (e *EarlyStopper) Checks() fullpass.Status {
	e.mu.Lock()
	w := *e.watch
	e.mu.Unlock()
	return w.Status() // takes its time
}

// follow returns followers for n inputs; release gives them back.
func (e *EarlyStopper) follow(n int) *follow.Inputs {
	if in, ok := e.spare[sizeClass(n)].Get().(*follow.Inputs); ok {
		in.Resize(n)
		return in
	}
	return e.plan.NewInputs(n)
}

func (e *EarlyStopper) release(in *follow.Inputs) { e.spare[sizeClass(in.Room())].Put(in) }

// sizeClass groups numbers of inputs: the largest of a class is less than four times the smallest,
// so that few inputs never hold the memory of many.
func sizeClass(n int) int { return bits.Len(uint(n)) / 2 }

// number returns the number of the first of n inputs that are being opened.
func (e *EarlyStopper) number(n int) uint64 { return e.opened.Add(uint64(n)) - uint64(n) }

// checks reports whether the input with this number runs on to its last pass.
func (e *EarlyStopper) checks(number uint64) bool {
	return e.Sampler.Checks(number, e.verdicts.Load(), e.wary.Load())
}

// judge counts the verdict of a full-pass check and reports whether it is the one that ends early
// stopping.
func (e *EarlyStopper) judge(v fullpass.Verdict) (stops bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stops = e.watch.Add(v)
	e.stopped.Store(e.watch.Stopped())
	e.wary.Store(e.watch.Wary())
	e.verdicts.Add(1)
	return stops
}

// mostFormer bounds the early stoppers that EarlyStoppers remembers of policies not in force.
const mostFormer = 64

// EarlyStoppers remembers early stoppers while policies are replaced: a policy that is loaded again
// continues its full-pass checks, and one that was stopped stays stopped. It is for one goroutine
// at a time.
type EarlyStoppers struct {
	known []*EarlyStopper // those in force longest ago come first
}

// For returns the early stopper of a policy: the one it had before if that is remembered, or a new
// one; nil for a policy without a rule in force.
func (s *EarlyStoppers) For(p *policy.Policy, sampler fullpass.Sampler) (*EarlyStopper, error) {
	hash := p.HashWithoutLines()
	if i := slices.IndexFunc(s.known, func(e *EarlyStopper) bool { return e.hash == hash }); i >= 0 {
		return s.known[i], nil
	}
	return newEarlyStopper(p, sampler)
}

// Keep remembers the stoppers in force and up to 64 others. Open inputs of a former policy may
// still end its full-pass checks. Where there are too many it forgets the one in force longest ago,
// of those not stopped if there are any.
func (s *EarlyStoppers) Keep(inForce []*EarlyStopper) {
	former := slices.DeleteFunc(s.known, func(e *EarlyStopper) bool { return slices.Contains(inForce, e) })
	for len(former) > mostFormer {
		first := max(slices.IndexFunc(former, func(e *EarlyStopper) bool { return !e.Stopped() }), 0)
		former = slices.Delete(former, first, first+1)
	}
	s.known = slices.Concat(former, inForce)
}
