package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outstanding is how many groups, or calls, are in flight at one time, unless their messages take
// more than outstandingBytes.
const (
	outstanding      = 64
	outstandingBytes = 32 << 20
)

// window returns how many groups of a shape are in flight.
func window(s shape) int { return max(4, min(outstanding, outstandingBytes/(4*s.count()))) }

// load drives one server with one payload.
type load struct {
	server   *process
	conn     *grpc.ClientConn
	payload  *payload
	replies  int          // replies to a group: one, or from an echo server one per message
	decides  bool         // the server does, so that its first reply to each group is verified
	lengths  []int        // length of the last reply to each group, once known
	answered atomic.Int64 // groups answered
}

// sample holds what one turn measured.
type sample struct {
	Groups, Seconds float64
	CPU, Client     float64 // seconds that the server and the client used
}

func (s sample) rate() float64 { return s.Groups / s.Seconds }

// cpu returns the server's CPU seconds for a group.
func (s sample) cpu() float64 { return s.CPU / s.Groups }

// busy returns the share of a core that the client used.
func (s sample) busy() float64 { return s.Client / s.Seconds }

// dial connects to a server.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithReadBufferSize(readBuffer),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(2*maxMessage)))
}

// newLoad connects to a server; close must be called.
func newLoad(server *process, p *payload, replies int, decides bool) (*load, error) {
	c, err := dial(server.socket)
	return &load{server: server, conn: c, payload: p, replies: replies, decides: decides, lengths: make([]int, len(p.groups))}, err
}

func (l *load) close() { _ = l.conn.Close() } // nothing is under way

// drive keeps the server busy for d and measures the last four fifths of that time, or longer if
// nothing was answered yet.
func (l *load) drive(ctx context.Context, d time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	var stopped atomic.Bool
	ended := make(chan error, 1)
	go func() {
		send := l.stream
		if l.payload.mode == unary {
			send = l.calls
		}
		err := send(ctx, &stopped)
		if err != nil {
			cancel()
		}
		ended <- err
	}()
	var s sample
	l.waitFor(ctx, d/5)
	cpu, err := cpuTime(l.server.pid())
	own, err2 := cpuTime(os.Getpid())
	began, before := time.Now(), l.answered.Load()
	l.waitFor(ctx, d-d/5)
	s.Groups, s.Seconds = float64(l.answered.Load()-before), time.Since(began).Seconds()
	used, err3 := cpuTime(l.server.pid())
	ownUsed, err4 := cpuTime(os.Getpid())
	s.CPU, s.Client = (used - cpu).Seconds(), (ownUsed - own).Seconds()
	stopped.Store(true)
	if err := errors.Join(err, err2, err3, err4, <-ended); err != nil {
		return s, fmt.Errorf("%s, %s, %s: %w\n%s", l.server.name, l.payload.shape, l.payload.mode, err, l.server.said())
	}
	if s.Groups == 0 || s.CPU == 0 {
		return s, fmt.Errorf("%s, %s, %s: nothing was answered", l.server.name, l.payload.shape, l.payload.mode)
	}
	return s, nil
}

// waitFor waits for d, and until a group was answered meanwhile.
func (l *load) waitFor(ctx context.Context, d time.Duration) {
	before := l.answered.Load()
	for wait(ctx, d); l.answered.Load() == before && ctx.Err() == nil; {
		wait(ctx, 10*time.Millisecond)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// openStream opens a stream and receives the answer to its header.
func openStream(ctx context.Context, c *grpc.ClientConn, s shape) (grpc.ClientStream, error) {
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		ckdv1.UncertaintyService_DecomposeStream_FullMethodName)
	if err != nil {
		return nil, err
	}
	first, err := header(s)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(newFrame(first)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, stream.RecvMsg(&receipt{})
}

// stream sends the groups over and over. It sends a group again only after its reply, since the
// transport may hold its messages until then.
func (l *load) stream(ctx context.Context, stopped *atomic.Bool) error {
	stream, err := openStream(ctx, l.conn, l.payload.shape)
	if err != nil {
		return err
	}
	n := len(l.payload.groups)
	free := make(chan int, n)
	for i := range n {
		free <- i
	}
	sent := make(chan error, 1)
	go func() {
		number := uint64(firstGroup)
		for i := range free {
			if stopped.Load() {
				break
			}
			if err := l.send(stream, i, number); err != nil {
				sent <- err
				return
			}
			number++
		}
		sent <- stream.CloseSend()
	}()
	defer close(free)
	for next := 0; ; next = (next + 1) % n {
		r := l.receiptOf(next)
		for range l.replies {
			if err := stream.RecvMsg(r); errors.Is(err, io.EOF) {
				return <-sent
			} else if err != nil {
				return err
			}
		}
		if err := l.check(next, r); err != nil {
			return err
		}
		l.answered.Add(1)
		select {
		case free <- next:
		default:
			return errUnasked
		}
	}
}

// errUnasked is returned for a reply that answers nothing.
var errUnasked = errors.New("a reply more than were due")

// send sends the messages of a group under a number.
func (l *load) send(stream grpc.ClientStream, group int, number uint64) error {
	g := &l.payload.groups[group]
	g.number(number)
	for _, message := range g.messages {
		if err := stream.SendMsg(newFrame(message)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// receiptOf returns a receipt for a reply to a group, which keeps the first one if it is verified.
func (l *load) receiptOf(group int) *receipt {
	return &receipt{keep: l.decides && l.lengths[group] == 0}
}

// check verifies the first reply to a group, and compares the lengths of others with its own.
func (l *load) check(group int, r *receipt) error {
	switch l.lengths[group] {
	case r.length:
		return nil
	case 0:
		l.lengths[group] = r.length
		if l.decides {
			return l.verify(group, r.bytes)
		}
		return nil
	}
	return fmt.Errorf("a reply of %d bytes, the first one had %d", r.length, l.lengths[group])
}

// calls makes calls with all groups at the same time, over and over.
func (l *load) calls(ctx context.Context, stopped *atomic.Bool) error {
	var running sync.WaitGroup
	faults := make([]error, len(l.payload.groups))
	for i := range faults {
		running.Go(func() {
			request := l.payload.groups[i].messages[0]
			for !stopped.Load() {
				r := l.receiptOf(i)
				err := l.conn.Invoke(ctx, ckdv1.UncertaintyService_Decompose_FullMethodName, newFrame(request), r)
				if err == nil {
					err = l.check(i, r)
				}
				if err != nil {
					faults[i] = err
					return
				}
				l.answered.Add(1)
			}
		})
	}
	running.Wait()
	return errors.Join(faults...)
}
