package client

import (
	"errors"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// read takes replies until the stream ends. It waits for nothing else.
func (s *Session) read() {
	for {
		reply, err := s.stream.Recv()
		if err == nil {
			err = s.take(reply)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// take hands the results of one reply to their groups.
func (s *Session) take(reply *ckdv1.DecomposeStreamResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reply.GetResults() {
		if err := s.answer(r, reply.GetPolicies()); err != nil {
			return err
		}
	}
	return nil
}

// answer hands one result to its group. mu is held.
func (s *Session) answer(r *ckdv1.Result, policies []*ckdv1.PolicyRef) error {
	number, row := r.GetGroup(), r.GetRow()
	g, past := s.open[number], number > 0 && number <= s.last
	if r.GetError() != nil {
		if err := newInputError(status.FromProto(r.GetError())); refusesMessage(err) {
			if err.Reason == ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP && g == nil && past {
				return nil // all of it was refused while passes were under way
			}
			return broken("the daemon refused a message of group %d: %v", number, err)
		}
	}
	switch {
	case g == nil && past:
		return broken("group %d is answered more than once in row %d", number, row)
	case g == nil:
		return broken("group %d is answered and was never opened", number)
	case uint64(row) >= uint64(len(g.ids)):
		return broken("row %d of group %d is answered, expected rows below %d", row, number, len(g.ids))
	case g.results[row].answered():
		return broken("row %d of group %d is answered more than once", row, number)
	}
	result, err := newResult(g.ids[row], int(row), r, policies)
	if err != nil {
		return err
	}
	s.settle(g, result)
	return nil
}

// settle gives an input its answer and its room in the window to others. mu is
// held.
func (s *Session) settle(g *Group, r Result) {
	g.results[r.Row] = r
	g.order = append(g.order, r.Row)
	g.arrived.Broadcast()
	if !g.complete() {
		s.release(1, 0)
		return
	}
	delete(s.open, g.number)
	s.release(1, 1)
	close(g.done)
}

// end answers what has no answer when the stream has ended.
func (s *Session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.Concat(slices.Collect(maps.Values(s.open)), slices.Collect(maps.Keys(s.unsent)))
	switch {
	case errors.Is(err, io.EOF) && !s.closed:
		err = broken("the daemon ended the stream before it was half-closed")
	case errors.Is(err, io.EOF) && len(left) > 0:
		err = broken("the daemon ended the stream with inputs unanswered")
	case errors.Is(err, io.EOF):
		err = nil
	}
	s.err, s.ended = err, true
	s.cancel()
	for _, g := range left {
		for row, r := range g.results {
			if !r.answered() {
				s.settle(g, Result{ID: g.ids[row], Row: row, Err: unanswered(err)})
			}
		}
	}
	close(s.done)
}
