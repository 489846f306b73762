package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// link is one stream of a session, with what is on it. A session has one link at
// a time; reconnect.go makes the next when it breaks. replies.go reads it, and
// what follows here writes to it.
type link struct {
	stream grpc.BidiStreamingClient[ckdv1.DecomposeStreamRequest, ckdv1.DecomposeStreamResponse]
	cancel context.CancelFunc // ends the stream
	info   *ckdv1.StreamInfo
	begun  time.Time
	token  int // the number of that which was presented
	// The daemon's limits. They may differ from those of the link before.
	messageBytes, mostInputs, mostGroups int

	blocks uint64 // that were sent; the session's writing guards it

	wake chan struct{} // the pump has something to do
	over chan struct{} // closed when the stream has ended, and what follows is decided

	// The session's mu guards what follows.
	last       uint64            // number of the lot that was opened last
	lots       map[uint64]*lot   // on the stream, with inputs that wait for an answer
	inputs     int               // those that wait
	answers    int               // that came
	dealt      uint64            // blocks that the daemon has dealt with, where it says so
	queue      []*lot            // to be opened when there is room
	later      []*lot            // to be queued when they are due
	refused    map[*lot][]uint32 // by the lot that they were in: rows for which the daemon has no room, until take is done
	crowded    error             // why it has none; nil if that was never so
	draining   bool              // the daemon takes no new inputs on this stream
	halfClosed bool
}

// lot is inputs of one group that are opened together on a link: to the daemon, a
// group. On the first link it is all of a group. On a later one it is what had no
// answer; or part of that, where the daemon's limits do not admit it at once.
type lot struct {
	group  *Group
	rows   []uint32 // of the group, rising; the position here is the row on the wire
	opened bool     // on the wire; the session's writing guards it

	// The session's mu guards what follows.
	number uint64    // on the wire; 0 while the lot is in the queue
	sent   int       // so many of the group's parts are sent
	last   uint64    // of the link's blocks, the last that was sent for the lot
	over   []bool    // by position: answered, or refused for now
	left   int       // those that are not over
	due    time.Time // of a lot that was refused before: not to be opened earlier
}

// openLink opens a stream, sends the header, and waits for the first reply, no
// longer than within; 0 is as long as ctx, in which the stream lives. It does so
// twice where the token was replaced meanwhile.
func (c *Client) openLink(
	ctx context.Context, within time.Duration, header *ckdv1.StreamHeader, messageBytes int,
) (*link, error) {
	token := c.token.current()
	l, err := openLink(ctx, within, c.rpc, header, messageBytes)
	if c.token.renewed(err, token) {
		token = c.token.current()
		l, err = openLink(ctx, within, c.rpc, header, messageBytes)
	}
	if err != nil {
		return nil, err
	}
	l.token = token
	return l, nil
}

func openLink(
	ctx context.Context, within time.Duration, rpc ckdv1.UncertaintyServiceClient, header *ckdv1.StreamHeader,
	messageBytes int,
) (l *link, err error) {
	ctx, cancel := context.WithCancel(ctx)
	late := func() bool { return false }
	if within > 0 {
		timer := time.AfterFunc(within, cancel) // a deadline would be that of the whole stream
		late = func() bool { return !timer.Stop() }
	}
	defer func() {
		if late() {
			l, err = nil, status.Errorf(codes.Unavailable, "the daemon did not answer the header within %v", within)
		}
		if err != nil {
			cancel()
		}
	}()
	stream, err := rpc.DecomposeStream(ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: header}})
	if err != nil && !errors.Is(err, io.EOF) { // of which Recv knows the reason
		return nil, err
	}
	reply, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, broken("the daemon ended the stream without a first reply")
	}
	if err != nil {
		return nil, err
	}
	info := reply.GetInfo()
	if len(info.GetClasses()) == 0 {
		return nil, broken("the first reply states no classes")
	}
	stated := func(limit uint32, unstated int) int {
		if limit == 0 {
			return unstated
		}
		return int(limit)
	}
	limits := info.GetLimits()
	return &link{
		stream:       stream,
		cancel:       cancel,
		info:         info,
		begun:        time.Now(),
		messageBytes: stated(limits.GetMessageBytes(), messageBytes),
		mostInputs:   stated(limits.GetOpenInputsPerStream(), math.MaxInt),
		mostGroups:   stated(limits.GetOpenGroupsPerStream(), math.MaxInt),
		wake:         make(chan struct{}, 1),
		over:         make(chan struct{}),
		lots:         map[uint64]*lot{},
		refused:      map[*lot][]uint32{},
	}, nil
}

// write keeps a part of a group, and sends it. Where there is no stream, or no
// room on it, it is sent later: the part stands in the group's list, of which
// every lot is sent everything in order.
func (s *Session) write(g *Group, p part) error {
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
	lots := g.lots
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	for _, t := range lots {
		if err = s.catchUp(l, t); err != nil {
			break
		}
	}
	if err == nil {
		err = s.fill(l)
	}
	if err != nil {
		// The stream is over. Its reader learns the reason, and whether there will be
		// another; then all is well.
		<-l.over
		return s.Err()
	}
	return nil
}

// pump opens what waits in the queue when answers have made room for it or its
// time has come, and half-closes when the session is closed, until the link is over.
func (s *Session) pump(l *link) {
	for {
		s.writing.Lock()
		_ = s.fill(l) // an error is the end of the stream, which the reader sees
		s.writing.Unlock()
		select {
		case <-l.wake:
		case <-s.due(l):
		case <-l.over:
			return
		}
	}
}

// due tells when the next lot is to be queued.
func (s *Session) due(l *link) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.later) == 0 {
		return nil
	}
	return time.After(time.Until(l.later[0].due))
}

// stir has the pump look at the link again.
func (l *link) stir() {
	select {
	case l.wake <- struct{}{}:
	default: // it will anyway
	}
}

// fill opens queued lots while there is room, and sends them what their groups
// have. When the session is closed it half-closes then; what is still queued is
// for the next link. writing is held, and all that is open has caught up.
func (s *Session) fill(l *link) error {
	for {
		s.mu.Lock()
		l.ripen()
		t := l.place()
		half := t == nil && s.closed && !l.halfClosed
		if half {
			l.halfClosed = true
		}
		s.mu.Unlock()
		if half {
			return l.stream.CloseSend()
		}
		if t == nil {
			return nil
		}
		if err := s.catchUp(l, t); err != nil {
			return err
		}
		if !t.opened { // there was nothing to send
			if err := l.put(t, &ckdv1.Block{}); err != nil {
				return err
			}
		}
	}
}

// catchUp sends a lot what it lacks of its group's parts. writing is held.
func (s *Session) catchUp(l *link, t *lot) error {
	for {
		s.mu.Lock()
		if t.number == 0 || t.left == 0 || t.sent >= len(t.group.parts) {
			s.mu.Unlock()
			return nil
		}
		p := t.share(t.group.parts[t.sent])
		if s.reconnect.Disabled {
			t.group.parts[t.sent] = part{} // it is sent once
		}
		t.sent++
		t.last = math.MaxUint64 // none that the daemon has dealt with, until all are sent
		s.mu.Unlock()
		for b := range p.blocks(len(t.rows), s.classes, l.messageBytes) {
			if err := l.put(t, b); err != nil {
				return err
			}
		}
		s.mu.Lock()
		t.last = l.blocks
		s.moved.Broadcast()
		s.mu.Unlock()
	}
}

// enqueue makes lots of the inputs of a group that have no answer, and queues
// them. mu is held.
func (l *link) enqueue(g *Group) {
	g.lots = nil
	if l.draining {
		return
	}
	var t *lot
	bytes := 0
	for _, row := range g.unanswered() {
		need := idsBytes(g.ids[row : row+1])
		if t == nil || len(t.rows) == l.mostInputs || bytes+need > l.messageBytes-blockOverhead {
			t, bytes = &lot{group: g}, 0
			g.lots = append(g.lots, t)
		}
		t.rows = append(t.rows, row)
		bytes += need
	}
	for _, t := range g.lots {
		t.over, t.left = make([]bool, len(t.rows)), len(t.rows)
	}
	l.queue = append(l.queue, g.lots...)
}

// postpone makes a lot of inputs for which the daemon has no room, and which are
// in no other any more, to be queued after a delay. mu is held.
func (l *link) postpone(g *Group, rows []uint32, delay time.Duration) {
	slices.Sort(rows)
	t := &lot{group: g, rows: rows, over: make([]bool, len(rows)), left: len(rows), due: time.Now().Add(delay)}
	lots := []*lot{t} // others, of which nothing is left, are forgotten; whoever ranges over them has the old ones
	for _, t := range g.lots {
		if t.left > 0 {
			lots = append(lots, t)
		}
	}
	g.lots = lots
	at, _ := slices.BinarySearchFunc(l.later, t, func(a, b *lot) int { return a.due.Compare(b.due) })
	l.later = slices.Insert(l.later, at, t)
}

// ripen queues the lots that are due. mu is held.
func (l *link) ripen() {
	for len(l.later) > 0 && !l.later[0].due.After(time.Now()) {
		l.queue = append(l.queue, l.later[0])
		l.later = l.later[1:]
	}
}

// place takes the next lot from the queue, if there is room for it on the
// stream. mu is held.
func (l *link) place() *lot {
	if len(l.queue) == 0 || l.draining || l.halfClosed {
		return nil
	}
	t := l.queue[0]
	if l.inputs+t.left > l.mostInputs || len(l.lots) == l.mostGroups {
		return nil
	}
	l.queue = l.queue[1:]
	// Numbers are given here, so that they rise on the wire.
	l.last++
	t.number = l.last
	l.lots[t.number] = t
	l.inputs += t.left
	return t
}

// settle takes an input off the link, at its position in its lot. mu is held.
func (l *link) settle(t *lot, at uint32) {
	t.over[at] = true
	t.left--
	l.inputs--
	if t.left == 0 {
		delete(l.lots, t.number)
	}
}

// put sends one block of a lot, and opens the lot with its first. writing is held.
func (l *link) put(t *lot, b *ckdv1.Block) error {
	b.Group = t.number
	if t.opened {
		return l.send(b)
	}
	t.opened = true
	ids := t.ids()
	if idsBytes(ids)+rowBytes*len(b.Rows)+len(b.ValuesLe) <= l.messageBytes-blockOverhead {
		b.InputIds = ids
		return l.send(b)
	}
	if err := l.send(&ckdv1.Block{Group: t.number, InputIds: ids}); err != nil {
		return err
	}
	return l.send(b)
}

// fitsRow refuses a stream on which not even one row can be sent.
func (l *link) fitsRow() error {
	if classes := len(l.info.GetClasses()); !fits(classes, l.messageBytes) {
		return fmt.Errorf("the daemon accepts messages of %d bytes, too few for a row of %d classes", l.messageBytes, classes)
	}
	return nil
}

func (l *link) send(b *ckdv1.Block) error {
	l.blocks++
	return l.stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
}

// whole tells whether a lot is all of its group, where rows have one number.
func (t *lot) whole() bool { return len(t.rows) == len(t.group.ids) }

func (t *lot) ids() []string {
	if t.whole() {
		return t.group.ids
	}
	ids := make([]string, len(t.rows))
	for i, row := range t.rows {
		ids[i] = t.group.ids[row]
	}
	return ids
}

// share is what a part of the group has for those of the lot's rows that are not over,
// under their numbers on the wire. The session's mu is held.
func (t *lot) share(p part) part {
	if t.whole() && !slices.ContainsFunc(p.rows, func(row uint32) bool { return t.over[row] }) {
		return p
	}
	return p.only(func(row uint32) (uint32, bool) {
		at, ok := slices.BinarySearch(t.rows, row)
		return uint32(at), ok && !t.over[at]
	})
}
