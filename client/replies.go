package client

import (
	"slices"

	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// read handles replies until the stream ends, and returns why it ended. It never waits for the
// writer.
func (l *link) read() error {
	for {
		reply, err := l.rpc.Recv()
		if err == nil {
			err = l.handle(reply)
		}
		if err != nil {
			return err
		}
	}
}

// handle hands the results of one reply to their groups. An error ends the session: an
// *InputError if the daemon can never do what the caller asked for, else that of a broken contract.
func (l *link) handle(reply *ckdv1.DecomposeStreamResponse) error {
	if faults := reply.GetFaults(); len(faults) > 0 {
		refused := newInputError(status.FromProto(faults[0]))
		switch refused.Reason {
		case ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS:
			return refused
		}
		return broken("the daemon refused a message: %v", refused)
	}
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *Group
	for _, r := range reply.GetResults() {
		g, err := l.answer(r, reply.GetPolicies())
		if err != nil {
			return err
		}
		if last != nil && last != g {
			last.dropAnswered()
		}
		last = g
	}
	if last != nil {
		last.dropAnswered()
	}
	for c, rows := range l.refused {
		l.postpone(c.group, rows, c.group.noRoom.delay(l.noRoom))
	}
	clear(l.refused)
	l.acknowledged = max(l.acknowledged, reply.GetBlocks())
	s.moved.Broadcast()
	if len(l.waiting) > 0 {
		l.wakePump()
	}
	return nil
}

// answer hands one result to its group and returns the group. It returns nil for an input that is
// to be sent again. The caller holds mu.
func (l *link) answer(r *ckdv1.Result, policies []*ckdv1.PolicyRef) (*Group, error) {
	s := l.session
	number, at := r.GetGroup(), r.GetRow()
	c, past := l.open.byNumber[number], number > 0 && number <= l.open.last
	var refused *InputError
	if r.GetError() != nil {
		refused = newInputError(status.FromProto(r.GetError()))
	}
	switch {
	case c == nil && past:
		return nil, broken("group %d is answered more than once in row %d", number, at)
	case c == nil:
		return nil, broken("group %d is answered and was never opened", number)
	case uint64(at) >= uint64(len(c.rows)):
		return nil, broken("row %d of group %d is answered, expected rows below %d", at, number, len(c.rows))
	case c.done[at]:
		return nil, broken("row %d of group %d is answered more than once", at, number)
	}
	if refused != nil && refused.Reason == ckdv1.ErrorReason_ERROR_REASON_DRAINING && !s.reconnect.Disabled {
		// The stream goes on until its open inputs are answered. The next stream sends this input.
		l.draining = true
		l.open.finish(c, at)
		return nil, nil
	}
	if s.retryLater(c.group, refused) {
		l.noRoom = refused
		l.refused[c] = append(l.refused[c], c.rows[at])
		l.open.finish(c, at)
		return nil, nil
	}
	row := int(c.rows[at])
	result, err := newResult(c.group.ids[row], row, r, policies)
	if err != nil {
		return nil, err
	}
	l.answers++
	l.open.finish(c, at)
	s.deliver(c.group, result)
	return c.group, nil
}

// retryLater reports whether to send an input again that the daemon refused for lack of room. The
// caller holds mu.
func (s *Session) retryLater(g *Group, refused *InputError) bool {
	if refused == nil || s.reconnect.Disabled || !overloaded(refused) {
		return false
	}
	g.noRoom.Reconnect = s.reconnect
	return !g.noRoom.exhausted(refused)
}

// deliver gives an input its result and frees its room in the window. The caller holds mu.
func (s *Session) deliver(g *Group, r Result) {
	g.results[r.Row], g.passes[r.Row] = r, noMore
	g.order = append(g.order, r.Row)
	if !g.complete() {
		s.window.release(1, 0)
		return
	}
	s.open = slices.DeleteFunc(s.open, func(open *Group) bool { return open == g })
	g.payloads, g.chunks = nil, nil
	s.window.release(1, 1)
	close(g.done)
}

// end ends the session, unless it has ended already, and gives every unanswered input an error.
// The caller holds mu.
func (s *Session) end(err error) {
	if s.ended {
		return
	}
	s.err, s.ended = err, true
	s.cancel()
	for _, g := range slices.Clone(s.open) {
		for row, r := range g.results {
			if !r.answered() {
				s.deliver(g, Result{ID: g.ids[row], Row: row, Err: unanswered(err)})
			}
		}
	}
	s.moved.Broadcast()
	close(s.done)
}
