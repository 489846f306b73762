package server

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/server/internal/wire"
)

// stopwatch tells how long a stream has been busy sending. Its times count from when it was made.
type stopwatch struct {
	begun time.Time
	since atomic.Int64 // 0: not sending
}

// now returns the time, which is never 0.
func (w *stopwatch) now() int64 { return int64(time.Since(w.begun)) | 1 }

func (w *stopwatch) start(at int64) { w.since.Store(at) }
func (w *stopwatch) stop()          { w.since.Store(0) }

// exceeds reports whether a send has lasted for the limit or longer.
func (w *stopwatch) exceeds(limit time.Duration) bool {
	since := w.since.Load()
	return since != 0 && time.Duration(w.now()-since) >= limit
}

// reply is a message to send.
type reply struct {
	message any   // nil: there is nothing to send
	cost    int64 // bytes of the budget, until it is sent
	made    int64 // when it was made, by the sender's stopwatch
}

// sender sends the replies of a stream, one at a time. A send blocks for as long as the client does
// not read.
type sender struct {
	stream  grpc.ServerStream
	account *account
	sending sync.Mutex
	watch   *stopwatch
	unsent  atomic.Int32                  // replies that were made and are not sent yet
	spare   atomic.Pointer[wire.Outgoing] // reply that was sent, reused for the next one
}

// made counts a reply that send will be called with.
func (s *sender) made() { s.unsent.Add(1) }

func (s *sender) send(r reply) error {
	out, _ := r.message.(*wire.Outgoing) // nil for the welcome
	if out != nil {
		out.ChargeTo(s.account, r.cost)
	}
	s.sending.Lock()
	s.watch.start(r.made)
	err := s.stream.SendMsg(r.message)
	s.watch.stop()
	s.sending.Unlock()
	if out != nil {
		if !out.Sent() {
			s.account.release(r.cost)
		}
		s.spare.Store(out)
	}
	s.unsent.Add(-1)
	return err
}
