package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
)

// Group is the inputs of one batch on a session. An input is finished, and
// answered, when it has the passes that the daemon expects, or on Finish.
//
// A group takes room in the session's window until it is answered: finish those
// that are given up.
type Group struct {
	session *Session
	ids     []string
	done    chan struct{} // closed when every input is answered

	all    []uint32 // every row
	opened uint64   // groups that were opened earlier have a lower one

	// The session's mu guards what follows.
	results []Result // by row
	order   []int    // rows in the order in which they were answered
	arrived *sync.Cond

	begun  bool   // something was sent, or is to be
	parts  []part // all that was sent, in order, for the rows that have no answer
	passes []int  // by row: how many of them the parts have, or had; noMore where it is final or answered
	held   int    // rows that the parts have passes of
	lots   []*lot // where the group is on the session's link

	crowded outage // since the daemon had no room for some of the inputs
}

// Send sends one pass of every input, laid out [inputs][classes]. The values are
// copied, and may be overwritten when Send returns.
//
// Inputs that are answered already are left out of what is sent; when all are, nothing
// is. Send may wait for the daemon to take what was sent before. While the
// session opens its stream again Send does not wait: the passes are sent then.
//
// An error is of the arguments, and then nothing was sent; or the session has
// ended, and then the results say what became of the inputs.
func (g *Group) Send(values []float32) error { return g.SendPasses(1, values) }

// SendPasses sends several passes of every input, laid out
// [passes][inputs][classes], as Send does.
func (g *Group) SendPasses(passes int, values []float32) error {
	return g.send(passes, g.all, values)
}

// SendRows sends one pass of some inputs, laid out [rows][classes], as Send does.
// Rows are positions in the group's ids, in any order.
func (g *Group) SendRows(rows []int, values []float32) error {
	if len(rows) == 0 {
		return fmt.Errorf("no rows, expected at least one")
	}
	wire, err := g.rows(rows)
	if err != nil {
		return err
	}
	return g.send(1, wire, values)
}

// Rows is the inputs that still need passes, rising: all but those that are answered,
// whether decided, settled or failed, that were finished, or that were sent as many
// passes as the daemon expects. A model leaves the others out of its next pass:
//
//	for rows := group.Rows(); len(rows) > 0; rows = group.Rows() {
//		err = group.SendRows(rows, forward(batch, rows))
//		err = group.Sync(ctx) // so that the answers to this pass are known
//	}
//
// Where the daemon expects no number of passes, rows need them until they are answered.
//
// Without Sync the model need not wait, but an input that t passes settle is computed
// for t + ceil(r/c) of them, where a pass takes c and the answer to it r: for one too
// many, if answers come sooner than passes. SendRows leaves out what was answered
// meanwhile; what it could not know of is late, and the daemon ignores it and counts it.
// Two groups in turn lose nothing either way: the answers to one come while the other is
// computed.
func (g *Group) Rows() []int {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	rows := make([]int, 0, len(g.ids)-len(g.order))
	for row := range g.ids {
		if g.needs(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// Sync waits until the daemon has dealt with what was sent, as far as there was room for
// it, so that Rows knows what is settled by then. It returns at once where nothing is
// settled early, or the daemon does not say what it has dealt with. The error is that of
// ctx.
func (g *Group) Sync(ctx context.Context) error {
	s := g.session
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.moved.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !g.dealtWith() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.moved.Wait()
	}
	return nil
}

// dealtWith tells that no answer is to come to what was sent so far. The session's mu is
// held.
func (g *Group) dealtWith() bool {
	l := g.session.link
	if g.complete() || l != nil && !(l.info.GetAcknowledges() && l.info.GetSettles()) {
		return true
	}
	if l == nil {
		return !g.begun
	}
	for _, t := range g.lots {
		// For one that waits for room, others must be answered first, perhaps by this caller.
		if t.number > 0 && t.left > 0 && (t.sent < len(g.parts) || t.last > l.dealt) {
			return false
		}
	}
	return true
}

// Finish has inputs decided on the passes they have: those of the rows, or all of
// the group where none are given. It is not needed for inputs that have all the
// passes that the daemon expects.
func (g *Group) Finish(rows ...int) error {
	wire, err := g.rows(rows)
	if err != nil {
		return err
	}
	return g.session.write(g, part{final: true, rows: wire})
}

// Wait returns when every input is answered, with one result for each, in the
// order of the ids. It fails only when ctx ends; an input's own error is in its
// result.
func (g *Group) Wait(ctx context.Context) ([]Result, error) {
	select {
	case <-g.done:
	default:
		select {
		case <-g.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return slices.Clone(g.results), nil // nothing writes to them any more
}

// Done is closed when every input is answered: a model server need not compute
// further passes.
func (g *Group) Done() <-chan struct{} { return g.done }

// Results yields every result once, as they arrive, and waits for those that are
// still to come. It ends with the last, of which the end of the session makes
// sure.
func (g *Group) Results() iter.Seq[Result] {
	return func(yield func(Result) bool) {
		for i := range g.ids {
			if !yield(g.arrival(i)) {
				return
			}
		}
	}
}

// arrival waits for the i-th result that arrives.
func (g *Group) arrival(i int) Result {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	for len(g.order) <= i {
		g.arrived.Wait()
	}
	return g.results[g.order[i]]
}

// complete tells whether every input is answered. The session's mu is held.
func (g *Group) complete() bool { return len(g.order) == len(g.ids) }

// unanswered is the rows that have no answer. The session's mu is held.
func (g *Group) unanswered() []uint32 {
	if len(g.order) == 0 {
		return g.all
	}
	rows := make([]uint32, 0, len(g.ids)-len(g.order))
	for _, row := range g.all {
		if !g.results[row].answered() {
			rows = append(rows, row)
		}
	}
	return rows
}

// noMore is more passes than finish any input.
const noMore = math.MaxInt

// needs tells whether a row is to have further passes. The session's mu is held.
func (g *Group) needs(row int) bool {
	expected := cmp.Or(int(g.session.info.GetExpectedPasses()), noMore)
	return g.passes[row] < expected
}

// needed is what a part has for rows that still need passes, or to be finished: the
// daemon would ignore the rest, and the session need not keep it. The session's mu is
// held.
func (g *Group) needed(p part) part {
	needed := func(row uint32) (uint32, bool) { return row, g.needs(int(row)) }
	for _, row := range p.rows {
		if _, ok := needed(row); !ok {
			return p.only(needed)
		}
	}
	return p
}

// keep adds a part to what was sent. The session's mu is held.
func (g *Group) keep(p part) {
	g.parts = append(g.parts, p)
	for _, row := range p.rows {
		if p.final {
			g.passes[row] = noMore
		} else {
			g.passes[row] += p.passes
		}
	}
}

// tidy forgets the passes of answered rows when they are half of those held, so
// that inputs which finish early do not weigh on memory until the last of their
// group does. Parts keep their places, which lots count by. The session's mu is
// held.
func (g *Group) tidy() {
	left := len(g.ids) - len(g.order)
	if 2*left > g.held {
		return
	}
	g.held = left
	for i, p := range g.parts {
		g.parts[i] = p.only(func(row uint32) (uint32, bool) { return row, !g.results[row].answered() })
	}
}

// rows checks row numbers, and gives them as the wire has them; none are all.
func (g *Group) rows(rows []int) ([]uint32, error) {
	if len(rows) == 0 {
		return g.all, nil
	}
	seen := make([]bool, len(g.ids))
	wire := make([]uint32, len(rows))
	for i, row := range rows {
		if row < 0 || row >= len(g.ids) {
			return nil, fmt.Errorf("row %d, expected 0 to %d", row, len(g.ids)-1)
		}
		if seen[row] {
			return nil, fmt.Errorf("row %d twice, expected every row once", row)
		}
		seen[row] = true
		wire[i] = uint32(row)
	}
	return wire, nil
}

// forward computes a pass of some rows, and sends it.
func (g *Group) forward(ctx context.Context, rows []int, compute func([]int) ([]float32, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	values, err := compute(slices.Clone(rows)) // which it may change
	if err != nil {
		return err
	}
	if err := g.SendRows(rows, values); err != nil {
		return err
	}
	return g.Sync(ctx)
}

func (g *Group) send(passes int, rows []uint32, values []float32) error {
	classes := g.session.classes
	if passes < 1 {
		return fmt.Errorf("%d passes, expected at least 1", passes)
	}
	if len(values)%passes != 0 || len(values)/passes != len(rows)*classes {
		return fmt.Errorf("%d values, expected %d passes x %d inputs x %d classes", len(values), passes, len(rows), classes)
	}
	return g.session.write(g, part{passes: passes, rows: rows, values: encode(values)})
}
