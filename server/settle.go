package server

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/audit"
	"github.com/ckd-project/ckd/settle/follow"
)

// settling is a rule in force by which inputs are settled before their last pass, and
// the audits that watch over it. It belongs to the meaning of a policy, and so
// outlives reloads: also those that put another policy in force for a while.
type settling struct {
	hash    string // of the policy
	rule    *settle.Rule
	plan    *follow.Plan
	sampler audit.Sampler
	last    int                            // passes, after which the rule is not asked any more
	spare   [1 + bits.UintSize/2]sync.Pool // of *follow.Inputs that were released, by the size of their room
	opened  atomic.Uint64                  // inputs that may be settled, which numbers them for the sampler

	// What the watch has said last, for those who cannot wait for it.
	stopped, wary atomic.Bool
	verdicts      atomic.Uint64

	mu    sync.Mutex
	watch *audit.Watch
}

// newSettling is nil for a policy without a rule in force.
func newSettling(p *policy.Policy) (*settling, error) {
	rule := p.SettleRule()
	if rule == nil {
		return nil, nil
	}
	plan, err := follow.NewPlan(p)
	if err != nil {
		return nil, err
	}
	certified := p.Settle.Certificate
	o := audit.Options{Disagreement: certified.Disagreement}
	if released := certified.Released.AtMost; released < 1 {
		o.Retained = released
	}
	watch, err := audit.NewWatch(o)
	if err != nil {
		return nil, err
	}
	return &settling{hash: p.Hash, rule: rule, last: rule.Last(), plan: plan, watch: watch, sampler: audit.NewSampler(rand.Uint64())}, nil
}

// settles reports whether inputs of so many passes may be settled at present.
func (s *settling) settles(passes int) bool {
	return s != nil && passes == s.rule.Passes && !s.stopped.Load()
}

// inputs to follow, n of them, to be released.
func (s *settling) inputs(n int) *follow.Inputs {
	if in, ok := s.spare[sizeOf(n)].Get().(*follow.Inputs); ok {
		in.Resize(n)
		return in
	}
	return s.plan.NewInputs(n)
}

// release gives inputs back.
func (s *settling) release(in *follow.Inputs) { s.spare[sizeOf(in.Room())].Put(in) }

// sizeOf a number of inputs: those of one size are less than four times as many as
// others of it, since few must not hold the memory of many.
func sizeOf(n int) int { return bits.Len(uint(n)) / 2 }

// number n inputs, before their first pass; the first of them has the number that is
// returned.
func (s *settling) number(n int) uint64 { return s.opened.Add(uint64(n)) - uint64(n) }

// audits reports whether an input of that number runs on to its last pass.
func (s *settling) audits(number uint64) bool {
	return s.sampler.Audits(number, s.verdicts.Load(), s.wary.Load())
}

// judge takes the verdict of an audit, and reports whether it ends settling.
func (s *settling) judge(v audit.Verdict) (stops bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stops = s.watch.Add(v)
	s.stopped.Store(s.watch.State() == audit.Stopped)
	s.wary.Store(s.watch.Wary())
	s.verdicts.Add(1)
	return stops
}

func (s *settling) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Lose()
}

func (s *settling) status() audit.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch.Status()
}

// settled is what the rule has said of an input.
type settled struct {
	action   settle.Action // Open: nothing yet
	passes   int32         // that it had then
	critical bool          // the class predicted then was
}

// follow the inputs of a group that has just been opened, and choose those to be
// audited: before their first pass, so that it cannot depend on what passes say.
func (s *session) follow(g *group) {
	is := g.model.settling
	g.following = is.inputs(g.open)
	number := is.number(g.open)
	for i := range g.rows {
		if r := &g.rows[i]; r.open {
			r.audited = is.audits(number + uint64(r.slot))
		}
	}
}

// feedFollowed gives all rows of an even group so many passes one by one, so that the
// rule may look after each: passes after the one that settles an input are late, though
// they came with it.
func (s *session) feedFollowed(g *group, b *wire.Block, passes int) {
	w := s.work(g)
	w.read(&b.Values)
	n, width := len(g.rows), len(g.model.Policy().Classes)
	w.rows = w.values
	for pass := range passes {
		if g.open == 0 {
			break
		}
		rows := w.rows[:n*width]
		s.fill(g, 1, &w.rows)
		if had := g.inputs.Passes(0); had > g.model.settling.last {
			s.fill(g, passes-pass-1, &w.rows) // the policy decides
			return
		}
		for i := range g.rows {
			if r := &g.rows[i]; r.open && r.settled.action == settle.Open {
				_ = g.following.Add(r.slot, rows[i*width:][:width]) // as many classes
			}
		}
		open := g.open
		s.ask(g, 0, n)
		g.model.metrics.Late((open - g.open) * (passes - pass - 1))
	}
}

// rowValues are values that were read, as a decomp.Source.
type rowValues []float32

// Next implements decomp.Source.
func (v *rowValues) Next(to []float32) {
	copy(to, *v)
	*v = (*v)[len(to):]
}

// ask whether the inputs of a group that are open are settled by the pass that they
// have just had, n of them from a row on, and answer those that are. What the rule
// says of audited ones is noted, also once it is stopped: not to have asked would count
// as agreement.
func (s *session) ask(g *group, number, n int) {
	if g.following == nil {
		return
	}
	stopped := g.model.settling.stopped.Load()
	from := -1 // of the row that begins a run of neighbours to be answered at once
	for i := number; i < number+n; i++ {
		r := &g.rows[i]
		answer := false
		if r.open && r.settled.action == settle.Open && (r.audited || !stopped) {
			if a := g.following.Settled(r.slot, g.model.settling.rule); a != settle.Open {
				r.settled.action = a
				answer = !r.audited
				if r.audited {
					_, class := g.following.Decide(r.slot)
					r.settled.passes, r.settled.critical = int32(g.following.Passes(r.slot)), g.model.critical[class]
				}
			}
		}
		switch {
		case answer && from < 0:
			from = i
		case !answer && from >= 0:
			s.finish(g, from, i-from)
			from = -1
		}
	}
	if from >= 0 {
		s.finish(g, from, number+n-from)
	}
}

// account for an input that was decided and might have been settled, whether it was
// or not. The outcome is the full decision if it has all passes.
func (s *session) account(g *group, r *row, o *engine.Outcome) {
	m, all := g.model, g.passes
	if !r.audited {
		if r.settled.action == settle.Open {
			all = o.Passes // its client ended it, or it has all: nothing was saved
		}
		m.metrics.PassesUsed(o.Passes, all)
		return
	}
	if o.Passes < all {
		return // it is lost, as closeRow sees
	}
	r.audited = false
	would := all
	if r.settled.action != settle.Open {
		would = int(r.settled.passes)
	}
	v := verdictOf(r.settled, o.Decision.Action == policy.Defer, m.critical[o.Predicted])
	m.metrics.SettleAudited(v, would, all)
	if m.settling.judge(v) {
		s.server.logStopped(m)
	}
}

// verdictOf an audit: what the rule said, against all passes.
func verdictOf(early settled, defers, critical bool) audit.Verdict {
	switch {
	case early.action == settle.Retain && defers:
		return audit.WronglyRetained
	case early.action == settle.Defer && !defers:
		return audit.WronglyDeferred
	case early.action == settle.Retain && early.critical != critical:
		return audit.OtherSide
	case defers:
		return audit.SameDefer
	}
	return audit.SameRetain
}

// loseAudit of an input that ends without its last pass.
func (g *group) loseAudit(r *row) {
	r.audited = false
	g.model.metrics.SettleAuditLost()
	g.model.settling.lose()
}

// logStopped says why nothing is settled any more.
func (s *Server) logStopped(m *model) {
	is := m.settling.status()
	what, rate := "disagreement", is.All
	if is.Stop.Retained {
		what, rate = "released", is.Deferred
	}
	s.log.Warn("settling has stopped: audits show that more inputs are decided otherwise than was certified; all passes decide "+
		"until there is another policy",
		zap.String("model", m.ref.GetModel()), zap.String("policy_hash", m.ref.GetHash()), zap.String("what", what),
		zap.Float64("certified", rate.Certified), zap.Uint64("audited", rate.Audited), zap.Uint64("disagreements", rate.Disagreements),
		zap.Float64("low", rate.Low), zap.Float64("high", rate.High),
		zap.Uint64("recently_audited", is.Stop.Recent.Audited), zap.Uint64("recent_disagreements", is.Stop.Recent.Disagreements))
}
