package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Group holds the inputs of one batch on a session. The daemon answers an input when it has the
// passes that the daemon expects, or after Finish.
//
// A group takes room in the session's window until it is answered, so call Finish for inputs that
// you give up.
type Group struct {
	session  *Session
	ids      []string
	contexts []*ckdv1.InputContext // by row; empty: none has one
	done     chan struct{}         // closed when every input is answered

	all []uint32 // every row

	// The session's mu guards the fields below.
	results []Result // by row
	order   []int    // rows in the order in which they were answered

	begun    bool      // something was sent, or waits to be
	payloads []payload // everything sent so far, in order, for the rows without an answer
	passes   []int     // passes sent, by row; noMore when the row is final or answered
	held     int       // rows whose passes the payloads hold
	chunks   []*chunk  // the group's inputs on the session's link

	noRoom outage // begins when the daemon first has no room for an input
}

func newGroup(s *Session, ids []string, contexts []*ckdv1.InputContext) *Group {
	g := &Group{
		session:  s,
		ids:      slices.Clone(ids),
		contexts: contexts,
		done:     make(chan struct{}),
		all:      make([]uint32, len(ids)),
		results:  make([]Result, len(ids)),
		order:    make([]int, 0, len(ids)),
		passes:   make([]int, len(ids)),
		held:     len(ids),
	}
	for i := range g.all {
		g.all[i] = uint32(i)
	}
	return g
}

// Send sends one pass of every input, laid out [inputs][classes]. It copies the values, which may
// be overwritten when Send returns.
//
// Inputs that are answered already are left out. Send may wait for the daemon to read what was
// sent before. While the session opens its stream again Send does not wait: the passes are sent
// afterwards.
//
// An error either concerns the arguments, and then nothing was sent, or the session has ended, and
// then the results say what became of the inputs.
func (g *Group) Send(values []float32) error { return g.SendPasses(1, values) }

// SendPasses sends several passes of every input, laid out [passes][inputs][classes]. Otherwise it
// works like Send.
func (g *Group) SendPasses(passes int, values []float32) error {
	return g.send(passes, g.all, values)
}

// SendRows sends one pass of some inputs, laid out [rows][classes]. Rows are positions in the
// group's ids, in any order. Otherwise it works like Send.
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

// Rows returns the inputs that still need passes, rising. It leaves out inputs that are answered
// (decided or failed), that Finish has ended, or that were sent as many passes as the daemon
// expects. A model computes its next pass for these rows alone:
//
//	for rows := group.Rows(); len(rows) > 0; rows = group.Rows() {
//		err = group.SendRows(rows, forward(batch, rows))
//		err = group.Sync(ctx) // so that the answers to this pass are known
//	}
//
// Where the daemon expects no number of passes, rows need passes until they are answered.
//
// Without Sync the model need not wait, but computes more passes than needed: one too many, if
// answers come sooner than passes. SendRows leaves out what was answered meanwhile. A model that
// computes two groups in turn loses nothing.
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

// Sync waits until the daemon has dealt with what was sent, so that Rows knows which inputs it has
// answered. It does not wait for inputs that have no room on the stream. It returns at once where
// no input is answered early. Sync fails only when ctx ends.
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
	for !g.synced() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.moved.Wait()
	}
	return nil
}

// synced reports whether no further answer can come to what was sent so far. The caller holds mu.
func (g *Group) synced() bool {
	l := g.session.link
	if g.complete() || l != nil && !l.terms.info.GetSettles() {
		return true
	}
	if l == nil {
		return !g.begun
	}
	for _, c := range g.chunks {
		// A chunk that waits for room does not count: the caller may have to answer for others first.
		if c.number > 0 && c.left > 0 && (c.sent < len(g.payloads) || c.lastBlock > l.acknowledged) {
			return false
		}
	}
	return true
}

// Finish makes the daemon decide inputs on the passes they have: the given rows, or the whole
// group without any. Inputs that have all the passes that the daemon expects do not need it.
func (g *Group) Finish(rows ...int) error {
	wire, err := g.rows(rows)
	if err != nil {
		return err
	}
	return g.session.write(g, payload{final: true, rows: wire})
}

// Wait waits until every input is answered and returns one result for each, in the order of the
// ids. It fails only when ctx ends; the error of a single input is in its result.
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
	return slices.Clone(g.results), nil // nothing writes to the results any more
}

// Results yields every result once, as it arrives, and ends with the last. The end of the session
// answers every input that is left, so Results always ends.
func (g *Group) Results() iter.Seq[Result] {
	return func(yield func(Result) bool) {
		for i := range g.ids {
			if !yield(g.arrival(i)) {
				return
			}
		}
	}
}

// arrival waits for the i-th result that arrives and returns it.
func (g *Group) arrival(i int) Result {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	for len(g.order) <= i {
		g.session.moved.Wait()
	}
	return g.results[g.order[i]]
}

// complete reports whether every input is answered. The caller holds mu.
func (g *Group) complete() bool { return len(g.order) == len(g.ids) }

// unanswered returns the rows without an answer. The caller holds mu and must not change them.
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

// noMore exceeds every number of passes that the daemon may expect.
const noMore = math.MaxInt

// needs reports whether a row still needs passes. The caller holds mu.
func (g *Group) needs(row int) bool {
	expected := cmp.Or(int(g.session.terms.info.GetExpectedPasses()), noMore)
	return g.passes[row] < expected
}

// needed returns a payload without the rows that need neither passes nor finishing. The daemon
// would ignore them, and the session need not keep them. The caller holds mu.
func (g *Group) needed(p payload) payload {
	needed := func(row uint32) (uint32, bool) { return row, g.needs(int(row)) }
	for _, row := range p.rows {
		if _, ok := needed(row); !ok {
			return p.pick(needed)
		}
	}
	return p
}

// keep adds a payload to what was sent. The caller holds mu.
func (g *Group) keep(p payload) {
	g.payloads = append(g.payloads, p)
	for _, row := range p.rows {
		if p.final {
			g.passes[row] = noMore
		} else {
			g.passes[row] += p.passes
		}
	}
}

// dropAnswered drops the passes of answered rows once they make up half of those held. Otherwise
// inputs that finish early would take memory until the last of their group finishes. Payloads keep
// their positions, because chunks count them. The caller holds mu.
func (g *Group) dropAnswered() {
	left := len(g.ids) - len(g.order)
	if 2*left > g.held {
		return
	}
	g.held = left
	for i, p := range g.payloads {
		g.payloads[i] = p.pick(func(row uint32) (uint32, bool) { return row, !g.results[row].answered() })
	}
}

// rows checks row numbers and converts them to those of the wire. No rows mean all.
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

// forward computes a pass of some rows, sends it and waits for the daemon.
func (g *Group) forward(ctx context.Context, rows []int, compute func([]int) ([]float32, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	values, err := compute(slices.Clone(rows)) // compute may change its argument
	if err != nil {
		return err
	}
	if err := g.SendRows(rows, values); err != nil {
		return err
	}
	return g.Sync(ctx)
}

func (g *Group) send(passes int, rows []uint32, values []float32) error {
	classes := g.session.terms.classes()
	if passes < 1 {
		return fmt.Errorf("%d passes, expected at least 1", passes)
	}
	if len(values)%passes != 0 || len(values)/passes != len(rows)*classes {
		return fmt.Errorf("%d values, expected %d passes x %d inputs x %d classes", len(values), passes, len(rows), classes)
	}
	return g.session.write(g, payload{passes: passes, rows: rows, values: appendValues(make([]byte, 0, valueBytes*len(values)), values)})
}
