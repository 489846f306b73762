package client

import (
	"slices"
	"time"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// chunk holds inputs of one group that are opened together on a link; the daemon sees each chunk
// as a group of its own. On the first link a chunk is the whole group. On a later link it holds
// the inputs without an answer.
type chunk struct {
	group  *Group
	rows   []uint32 // rows of the group, rising; a row's position here is its number on the wire
	opened bool     // its first block was sent; Session.writing guards it

	// Session.mu guards the fields below.
	number    uint64    // the group number on the wire; 0 while the chunk waits
	sent      int       // how many of the group's payloads were sent
	lastBlock uint64    // the link's last block that carried passes of the chunk
	done      []bool    // by position: answered, or refused for now
	left      int       // inputs that are not done
	due       time.Time // when the chunk may be opened
}

// newChunk makes a chunk of some rows of a group, which must be sorted.
func newChunk(g *Group, rows []uint32) *chunk {
	return &chunk{group: g, rows: rows, done: make([]bool, len(rows)), left: len(rows)}
}

// whole reports whether the chunk holds its whole group, so that rows keep their numbers.
func (c *chunk) whole() bool { return len(c.rows) == len(c.group.ids) }

func (c *chunk) ids() []string { return ofRows(c, c.group.ids) }

func (c *chunk) contexts() []*ckdv1.InputContext {
	if len(c.group.contexts) == 0 {
		return nil
	}
	return ofRows(c, c.group.contexts)
}

// ofRows returns what a chunk has of something that its group has by row.
func ofRows[T any](c *chunk, all []T) []T {
	if c.whole() {
		return all
	}
	some := make([]T, len(c.rows))
	for i, row := range c.rows {
		some[i] = all[row]
	}
	return some
}

// share returns the part of a payload for those rows of the chunk that are not done, under their
// numbers on the wire. The caller holds mu.
func (c *chunk) share(p payload) payload {
	if c.whole() && !slices.ContainsFunc(p.rows, func(row uint32) bool { return c.done[row] }) {
		return p
	}
	return p.pick(func(row uint32) (uint32, bool) {
		at, ok := slices.BinarySearch(c.rows, row)
		return uint32(at), ok && !c.done[at]
	})
}

// openChunks holds the chunks of a link that are open on its stream and lack answers. Session.mu
// guards it.
type openChunks struct {
	last     uint64 // the number of the chunk opened last
	byNumber map[uint64]*chunk
	inputs   int // inputs that lack an answer
}

// add gives a chunk its number, so that numbers rise on the wire.
func (o *openChunks) add(c *chunk) {
	o.last++
	c.number = o.last
	o.byNumber[c.number] = c
	o.inputs += c.left
}

// finish marks the input at a position of a chunk as done on this link.
func (o *openChunks) finish(c *chunk, at uint32) {
	c.done[at] = true
	c.left--
	o.inputs--
	if c.left == 0 {
		delete(o.byNumber, c.number)
	}
}

// postpone puts rows of a group that the daemon refused for now into a chunk that falls due after a
// delay. The caller holds mu.
func (l *link) postpone(g *Group, rows []uint32, delay time.Duration) {
	slices.Sort(rows)
	c := newChunk(g, rows)
	c.due = time.Now().Add(delay)
	// A new slice: Session.write may range over the old one.
	chunks := []*chunk{c}
	for _, c := range g.chunks {
		if c.left > 0 {
			chunks = append(chunks, c)
		}
	}
	g.chunks = chunks
	l.waiting = append(l.waiting, c)
}
