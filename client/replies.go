package client

import (
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// read takes replies until the stream ends, and returns why. It waits for nothing
// else.
func (s *Session) read(l *link) error {
	for {
		reply, err := l.stream.Recv()
		if err == nil {
			err = s.take(l, reply)
		}
		if err != nil {
			return err
		}
	}
}

// take hands the results of one reply to their groups. A fault of a message ends
// the session: what the daemon would not do at all is an error of the caller's,
// anything else one of this package.
func (s *Session) take(l *link, reply *ckdv1.DecomposeStreamResponse) error {
	if faults := reply.GetFaults(); len(faults) > 0 {
		refused := newInputError(status.FromProto(faults[0]))
		switch refused.Reason {
		case ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS:
			return refused
		}
		return broken("the daemon refused a message: %v", refused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *Group
	for _, r := range reply.GetResults() {
		g, err := s.answer(l, r, reply.GetPolicies())
		if err != nil {
			return err
		}
		if last != nil && last != g {
			last.tidy()
		}
		last = g
	}
	if last != nil {
		last.tidy()
	}
	for t, rows := range l.refused {
		l.postpone(t.group, rows, t.group.crowded.delay(l.crowded))
	}
	clear(l.refused)
	l.dealt = max(l.dealt, reply.GetBlocks())
	s.moved.Broadcast()
	if len(l.queue) > 0 || len(l.later) > 0 {
		l.stir()
	}
	return nil
}

// answer hands one result to its group, which it returns. mu is held.
func (s *Session) answer(l *link, r *ckdv1.Result, policies []*ckdv1.PolicyRef) (*Group, error) {
	number, at := r.GetGroup(), r.GetRow()
	t, past := l.lots[number], number > 0 && number <= l.last
	var refused *InputError
	if r.GetError() != nil {
		refused = newInputError(status.FromProto(r.GetError()))
	}
	switch {
	case t == nil && past:
		return nil, broken("group %d is answered more than once in row %d", number, at)
	case t == nil:
		return nil, broken("group %d is answered and was never opened", number)
	case uint64(at) >= uint64(len(t.rows)):
		return nil, broken("row %d of group %d is answered, expected rows below %d", at, number, len(t.rows))
	case t.over[at]:
		return nil, broken("row %d of group %d is answered more than once", at, number)
	}
	if refused != nil && refused.Reason == ckdv1.ErrorReason_ERROR_REASON_DRAINING && !s.reconnect.Disabled {
		// No answer. What is on the stream goes on; then it ends, and the next link
		// takes the rest.
		l.draining = true
		l.settle(t, at)
		return nil, nil
	}
	if s.comesAgain(t.group, refused) {
		l.crowded = refused
		l.refused[t] = append(l.refused[t], t.rows[at])
		l.settle(t, at)
		return nil, nil
	}
	row := int(t.rows[at])
	result, err := newResult(t.group.ids[row], row, r, policies)
	if err != nil {
		return nil, err
	}
	l.answers++
	l.settle(t, at)
	s.settle(t.group, result)
	return t.group, nil
}

// comesAgain tells whether an input is to be sent again that was refused because the
// daemon has no room for it at the moment. mu is held.
func (s *Session) comesAgain(g *Group, refused *InputError) bool {
	if refused == nil || s.reconnect.Disabled || !overloaded(refused) {
		return false
	}
	g.crowded.Reconnect = s.reconnect
	return !g.crowded.over(refused)
}

// settle gives an input its answer and its room in the window to others. mu is
// held.
func (s *Session) settle(g *Group, r Result) {
	g.results[r.Row], g.passes[r.Row] = r, noMore
	g.order = append(g.order, r.Row)
	g.arrived.Broadcast()
	if !g.complete() {
		s.release(1, 0)
		return
	}
	delete(s.open, g)
	g.parts, g.lots = nil, nil
	s.release(1, 1)
	close(g.done)
}

// end ends the session, if it has not ended, and answers what has no answer. mu
// is held.
func (s *Session) end(err error) {
	if s.ended {
		return
	}
	s.err, s.ended = err, true
	s.cancel()
	for _, g := range s.inOrder() {
		for row, r := range g.results {
			if !r.answered() {
				s.settle(g, Result{ID: g.ids[row], Row: row, Err: unanswered(err)})
			}
		}
	}
	s.moved.Broadcast()
	close(s.done)
}
