package server

import (
	"unsafe"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/follow"
)

// group is inputs that were opened together.
type group struct {
	number    uint64
	model     *model
	inputs    *engine.Inputs // those that were opened, by slot; nil if none was
	passes    int            // that finish an input; 0: none does
	following *follow.Inputs // the same as the rule sees them; nil: nothing is settled
	told      *differences   // that were logged of its model; shared by the groups of that
	rows      []row
	open      int
	passing   bool // it closes with the message that opens it: its ids need not be known
	even      bool // all rows were opened, and have had equally many passes: row i has slot i
	cost      int64
	touched   int64  // when all rows last had a pass
	text      []byte // of the ids
}

// row is one input of a group.
type row struct {
	id      string // part of the group's text
	slot    int    // in the group's inputs
	open    bool   // neither finished nor failed
	touched int64  // when it last had a pass by itself

	audited bool // runs on to its last pass, whatever the rule says
	settled settled
}

// newGroup is a group with the ids of a message, none of them open.
func (s *session) newGroup(ids *wire.IDs) *group {
	g := s.spare
	if s.spare = nil; g == nil {
		g = &group{}
	}
	*g = group{rows: g.rows[:0], text: g.text[:0]}
	for i := range ids.Len() {
		g.text = append(g.text, ids.At(i)...)
	}
	at := 0
	for i := range ids.Len() {
		n := len(ids.At(i))
		// No copy of each id: the text stays as it is for as long as the rows do.
		g.rows = append(g.rows, row{id: unsafe.String(unsafe.SliceData(g.text[at:]), n)})
		at += n
	}
	return g
}

// closeRow ends an input of the group.
func (s *session) closeRow(g *group, number int) {
	r := &g.rows[number]
	r.open = false
	if r.audited {
		g.loseAudit(r)
	}
	g.open--
	s.inputs--
	if !g.passing {
		delete(s.ids, r.id)
		g.model.metrics.InputsOpen(-1)
	}
}

// closeIfDone gives back what a group holds that has no open inputs.
func (s *session) closeIfDone(g *group) {
	if g.open > 0 {
		return
	}
	delete(s.groups, g.number)
	if g.inputs != nil {
		g.inputs.Release()
		s.server.release(g.model)
	}
	if g.following != nil {
		g.model.settling.release(g.following)
	}
	s.held -= g.cost
	s.server.openBytes.Add(-g.cost)
	if cap(g.rows) <= sparedRows && cap(g.text) <= sparedRows*sparedRowBytes {
		g.inputs, g.following, g.model, g.told = nil, nil, nil, nil
		s.spare = g
	}
}

// A stream keeps room for a group that is not large: there may be a thousand idle
// ones.
const (
	sparedRows     = 256
	sparedRowBytes = 32
)

// finish answers the open ones of n neighbouring rows with what their passes say.
// More than one row must be those of an even group.
func (s *session) finish(g *group, number, n int) {
	w := s.work(g)
	detail := s.header.GetDetail()
	if err := g.inputs.Finish(w.batch, g.rows[number].slot, n); err != nil {
		s.failRows(g, number, n, err)
		return
	}
	open, last := int64(0), number
	for i := number; i < number+n; i++ {
		if g.rows[i].open {
			open, last = open+1, i
		}
	}
	if err := s.reserve(open * resultCost(g.model, detail)); err != nil {
		if open == 1 {
			if s.isEarly(g, last) { // it has passes to come, and perhaps there is room then
				g.rows[last].settled = settled{}
				return
			}
			s.failRow(g, last, err)
			return
		}
		for i := number; i < number+n; i++ { // as many as there is room for
			if g.rows[i].open {
				s.finish(g, i, 1)
			}
		}
		return
	}
	out, ref := s.out(g.model)
	counted := counter{model: g.model, hint: s.hint, trace: s.trace}
	defer counted.done()
	answered, passes := 0, 0
	for i := number; i < number+n; i++ {
		if !g.rows[i].open {
			continue
		}
		if err := w.batch.Outcome(i-number, w.outcome); err != nil {
			s.failRow(g, i, err)
			continue
		}
		r, o := &g.rows[i], w.outcome
		early := s.isEarly(g, i)
		if early && (o.Decision.Action == policy.Defer) != (r.settled.action == settle.Defer) {
			r.settled = settled{} // at the very threshold, where roundings differ: not settled, then
			continue
		}
		id := unsafe.Slice(unsafe.StringData(r.id), len(r.id))
		s.server.tellDeferred(&counted, id, o)
		counted.count(o, g.following == nil || r.audited)
		s.note(g.model, o)
		if r.audited {
			counted.done() // a verdict may wait for a scrape, or be logged
		}
		if g.following != nil {
			s.account(g, r, o)
		}
		answered++
		if passes = o.Passes; early {
			passes = g.passes // fewer are no difference from what the policy was calibrated on
		}
		answer := w.tell(detail)
		answer.Settled = early
		out.Result(id, g.number, uint32(i), ref, answer)
		s.closeRow(g, i)
	}
	s.compare(g, passes, answered)
}

// isEarly reports whether the rule has settled an input that has passes to come.
func (s *session) isEarly(g *group, number int) bool {
	r := &g.rows[number]
	return g.following != nil && r.settled.action != settle.Open && !r.audited && g.inputs.Passes(r.slot) < g.passes
}

// tellDeferred tells of an input that was decided and is to be counted, if that is
// wanted of it. Nobody is to wait for a shard of the metrics meanwhile.
func (s *Server) tellDeferred(counted *counter, id []byte, o *engine.Outcome) {
	if s.deferred != nil && o.Decision.Action == policy.Defer {
		counted.done()
		s.deferred(counted.model.Policy(), id, o)
	}
}

// counter counts outcomes, a few at a time: taking a shard of the metrics for each
// would cost as much as counting it, but others must not wait for it while much is
// computed.
type counter struct {
	model  *model
	hint   uint32
	trace  string            // that deferred inputs are exemplars of; empty for none
	record *metrics.Recorder // nil: the shard is not taken
	left   int               // classes until it is given back
}

// countedClasses is how many classes may be computed while a shard is taken: some
// tens of microseconds.
const countedClasses = 256

// count an outcome. Sampled is whether the input was not chosen by its passes, as
// those are that may be settled and are not audited.
func (c *counter) count(o *engine.Outcome, sampled bool) {
	if c.record == nil {
		c.record, c.left = c.model.metrics.Record(c.hint), countedClasses
	}
	if sampled {
		c.record.Observe(o.Result, o.Decision)
	} else {
		c.record.ObserveUnsampled(o.Result, o.Decision)
	}
	if c.trace != "" && o.Decision.Action == policy.Defer {
		c.record.Exemplify(c.trace, o.Result, o.Decision)
	}
	if c.left -= len(o.C); c.left <= 0 {
		c.done()
	}
}

func (c *counter) done() {
	if c.record != nil {
		c.record.Done()
		c.record = nil
	}
}

// work is the worker of the message at hand for a group.
func (s *session) work(g *group) *worker {
	shop := g.model.workshop(s.header.GetDetail())
	if s.worker != nil && s.worker.shop != shop {
		s.worker.release()
		s.worker = nil
	}
	if s.worker == nil {
		s.worker = shop.take()
	}
	return s.worker
}

// reserve takes what results occupy until they are sent out of the budget.
func (s *session) reserve(cost int64) error {
	limit := s.server.limits.OpenInputBytes
	if total := s.server.openBytes.Add(cost); total > limit {
		s.server.openBytes.Add(-cost)
		return overBudget("detail", "bytes of open inputs and replies", cost, total, limit)
	}
	s.building += cost
	return nil
}

// failRows answers the open ones of n neighbouring inputs with an error.
func (s *session) failRows(g *group, number, n int, err error) {
	for i := number; i < number+n; i++ {
		if g.rows[i].open {
			s.failRow(g, i, err)
		}
	}
}

// failRow answers an open input with an error.
func (s *session) failRow(g *group, number int, err error) {
	id := g.rows[number].id
	at := position(g.number, number, id)
	at.classes = g.model.Policy().Classes
	s.fail(g.model, at, id, err)
	s.closeRow(g, number)
}

// fail adds an input's error to the results.
func (s *session) fail(m *model, at location, id string, err error) {
	m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	s.log(m, at, err)
	out, ref := s.out(m)
	out.Error([]byte(s.server.echo(id)), at.group, uint32(at.row), ref, statusOf(err, at).Proto())
}

// position is the location of a row of a group.
func position(group uint64, number int, id string) location {
	return location{input: id, group: group, hasGroup: true, row: number, hasPosition: true}
}
