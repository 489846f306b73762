package client

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// stream holds an open gRPC stream and what its first reply stated.
type stream struct {
	rpc    grpc.BidiStreamingClient[ckdv1.DecomposeStreamRequest, ckdv1.DecomposeStreamResponse]
	cancel context.CancelFunc // ends the stream
	terms  terms
	begun  time.Time
	token  string // the token that the stream presented
}

// openStream opens a stream, sends the header and waits for the first reply. It waits at most
// the duration within, or as long as ctx where within is 0; the stream itself lives as long as
// ctx.
func (c *Client) openStream(
	ctx context.Context, within time.Duration, header *ckdv1.StreamHeader, messageBytes int,
) (st *stream, err error) {
	token := c.token.current()
	ctx, cancel := context.WithCancel(ctx)
	late := func() bool { return false }
	if within > 0 {
		// A context with a deadline would end the whole stream, not only the wait for its opening.
		timer := time.AfterFunc(within, cancel)
		late = func() bool { return !timer.Stop() }
	}
	defer func() {
		if late() {
			st, err = nil, status.Errorf(codes.Unavailable, "the daemon did not answer the header within %v", within)
		}
		if err != nil {
			cancel()
		}
	}()
	rpc, err := c.rpc.DecomposeStream(ctx)
	if err != nil {
		return nil, err
	}
	err = rpc.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: header}})
	if err != nil && !errors.Is(err, io.EOF) { // after io.EOF, Recv returns the stream's status
		return nil, err
	}
	reply, err := rpc.Recv()
	if errors.Is(err, io.EOF) {
		return nil, broken("the daemon ended the stream without a first reply")
	}
	if err != nil {
		return nil, err
	}
	if len(reply.GetInfo().GetClasses()) == 0 {
		return nil, broken("the first reply states no classes")
	}
	return &stream{rpc, cancel, newTerms(reply.GetInfo(), messageBytes), time.Now(), token}, nil
}

// link carries the inputs of a session over one stream. A session has one link at a time and
// makes the next one when the stream breaks (reconnect.go). This file writes to the stream;
// replies.go reads from it.
type link struct {
	*stream
	session *Session

	blocks uint64 // blocks sent so far; Session.writing guards it

	wake  chan struct{} // tells the pump to look at the link again
	ended chan struct{} // closed when the stream has ended and the session has decided what follows

	// Session.mu guards the fields below.
	waiting      []*chunk            // to be opened in this order, when they are due and the daemon has room
	refused      map[*chunk][]uint32 // rows of the group that the reply at hand refused, by chunk
	noRoom       error               // the daemon's latest refusal for lack of room, or nil
	open         openChunks
	answers      int    // answers received
	acknowledged uint64 // blocks that the daemon reports as dealt with
	draining     bool   // the daemon takes no new inputs on this stream
	halfClosed   bool
}

func (s *Session) newLink(st *stream) *link {
	return &link{
		stream:  st,
		session: s,
		wake:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
		refused: map[*chunk][]uint32{},
		open:    openChunks{byNumber: map[uint64]*chunk{}},
	}
}

// write keeps a payload in its group and sends it. Without a stream, or without room on it, the
// payload is sent later: every chunk is sent all payloads of its group, in order.
func (s *Session) write(g *Group, p payload) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	l, err := s.link, s.refusal()
	if p = g.needed(p); err != nil || len(p.rows) == 0 {
		s.mu.Unlock()
		return err
	}
	g.keep(p)
	if !g.begun {
		g.begun = true
		if l != nil {
			l.enqueue(g)
		}
	}
	chunks := g.chunks
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	for _, c := range chunks {
		if err = l.catchUp(c); err != nil {
			break
		}
	}
	if err == nil {
		err = l.fill()
	}
	if err != nil {
		// The stream has ended. Its reader learns why and whether another follows. If one does,
		// that stream sends the payload, and this call has succeeded.
		<-l.ended
		return s.Err()
	}
	return nil
}

// pump runs until the link has ended. It opens waiting chunks when answers make room for them or
// when they fall due, and half-closes the stream once the session is closed.
func (l *link) pump() {
	for {
		looked := time.Now()
		l.session.writing.Lock()
		_ = l.fill() // an error means that the stream has ended, which the reader sees too
		l.session.writing.Unlock()
		select {
		case <-l.wake:
		case <-l.due(looked):
		case <-l.ended:
			return
		}
	}
}

// due returns a channel that fires when the next chunk falls due that was not at a time, or nil
// without one.
func (l *link) due(at time.Time) <-chan time.Time {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	var next time.Time
	for _, c := range l.waiting {
		if c.due.After(at) && (next.IsZero() || c.due.Before(next)) {
			next = c.due
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// wakePump makes the pump look at the link again.
func (l *link) wakePump() {
	select {
	case l.wake <- struct{}{}:
	default: // the pump has been told already
	}
}

// fill opens waiting chunks while there is room and sends them what their groups have. When the
// session is closed, fill then half-closes the stream; chunks that still wait are left to the next
// link. The caller holds writing, and all open chunks have caught up.
func (l *link) fill() error {
	s := l.session
	for {
		s.mu.Lock()
		c := l.openNext()
		half := c == nil && s.closed && !l.halfClosed
		if half {
			l.halfClosed = true
		}
		s.mu.Unlock()
		if half {
			return l.rpc.CloseSend()
		}
		if c == nil {
			return nil
		}
		if err := l.catchUp(c); err != nil {
			return err
		}
		if !c.opened { // its group has sent nothing yet
			if err := l.sendBlock(c, &ckdv1.Block{}); err != nil {
				return err
			}
		}
	}
}

// catchUp sends a chunk the payloads of its group that it lacks. The caller holds writing.
func (l *link) catchUp(c *chunk) error {
	s := l.session
	for {
		s.mu.Lock()
		if c.number == 0 || c.left == 0 || c.sent >= len(c.group.payloads) {
			s.mu.Unlock()
			return nil
		}
		p := c.share(c.group.payloads[c.sent])
		if s.reconnect.Disabled {
			c.group.payloads[c.sent] = payload{} // nothing is ever sent twice
		}
		c.sent++
		c.lastBlock = math.MaxUint64 // no acknowledgement reaches this until all blocks are sent
		s.mu.Unlock()
		for b := range p.blocks(len(c.rows), s.terms.classes(), l.terms.messageBytes) {
			if err := l.sendBlock(c, b); err != nil {
				return err
			}
		}
		s.mu.Lock()
		c.lastBlock = l.blocks
		s.moved.Broadcast()
		s.mu.Unlock()
	}
}

// enqueue makes a chunk of the unanswered inputs of a group, to be opened when there is room. The
// caller holds mu.
func (l *link) enqueue(g *Group) {
	g.chunks = nil
	if l.draining {
		return
	}
	g.chunks = []*chunk{newChunk(g, g.unanswered())}
	l.waiting = append(l.waiting, g.chunks...)
}

// openNext gives the next chunk that is due its number on the stream, or returns nil if there is no
// room for it. The caller holds mu.
func (l *link) openNext() *chunk {
	now := time.Now()
	next := slices.IndexFunc(l.waiting, func(c *chunk) bool { return !c.due.After(now) })
	if next < 0 || l.draining || l.halfClosed {
		return nil
	}
	c := l.waiting[next]
	if len(l.open.byNumber) > 0 && // else a limit that is lower than the first stream's is the daemon's to name
		(l.open.inputs+c.left > l.terms.maxInputs || len(l.open.byNumber) >= l.terms.maxGroups) {
		return nil
	}
	l.waiting = slices.Delete(l.waiting, next, next+1)
	l.open.add(c)
	return c
}

// sendBlock sends one block of a chunk; the first block also opens the chunk. The caller holds
// writing.
func (l *link) sendBlock(c *chunk, b *ckdv1.Block) error {
	b.Group = c.number
	if c.opened {
		return l.send(b)
	}
	c.opened = true
	ids, contexts := c.ids(), c.contexts()
	if idsBytes(ids)+contextBytes(contexts)+rowBytes*len(b.Rows)+len(b.ValuesLe) <= l.terms.messageBytes-blockOverhead {
		b.InputIds, b.Contexts = ids, contexts
		return l.send(b)
	}
	if err := l.send(&ckdv1.Block{Group: c.number, InputIds: ids, Contexts: contexts}); err != nil {
		return err
	}
	return l.send(b)
}

func (l *link) send(b *ckdv1.Block) error {
	l.blocks++
	return l.rpc.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
}
