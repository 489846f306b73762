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

// outstanding is how many groups, or calls, are under way at one time, where their messages have room.
const (
	outstanding      = 64
	outstandingBytes = 32 << 20
)

// window is how many groups of a shape are under way.
func window(s shape) int { return max(4, min(outstanding, outstandingBytes/(4*s.count()))) }

// load drives one server with one payload.
type load struct {
	server    *process
	connected []*grpc.ClientConn
	payload   *payload
	replies   int          // that a group gets: one, or of an echo one for each message
	lengths   []int        // of the last reply to each group, once it is known
	answered  atomic.Int64 // groups
}

// sample is what one turn measured.
type sample struct {
	Groups, Seconds float64
	CPU, Client     float64 // seconds that the server and the client used
}

func (s sample) rate() float64 { return s.Groups / s.Seconds }

// cpu is the server's, in seconds a group.
func (s sample) cpu() float64 { return s.CPU / s.Groups }

// busy is the client's share of a core.
func (s sample) busy() float64 { return s.Client / s.Seconds }

// dial connects to a server.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithReadBufferSize(readBuffer),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(2*maxMessage)))
}

// newLoad connects to a server, once for each stream; close must be called.
func newLoad(server *process, p *payload, streams, replies int) (*load, error) {
	l := &load{server: server, payload: p, replies: replies, lengths: make([]int, len(p.groups))}
	for range streams {
		c, err := dial(server.socket)
		if err != nil {
			l.close()
			return nil, err
		}
		l.connected = append(l.connected, c)
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.connected {
		_ = c.Close() // nothing is under way
	}
}

// drive keeps the server busy for a time and measures it over the last four fifths of that, or longer until it has
// answered something.
func (l *load) drive(ctx context.Context, d time.Duration) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	var stopped atomic.Bool
	ended := make(chan error, len(l.connected))
	share := len(l.payload.groups) / len(l.connected)
	for i, c := range l.connected {
		go func() {
			var err error
			if l.payload.mode == unary {
				err = l.calls(ctx, c, i*share, (i+1)*share, &stopped)
			} else {
				err = l.stream(ctx, c, i*share, (i+1)*share, &stopped)
			}
			if err != nil {
				cancel()
			}
			ended <- err
		}()
	}
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
	err = errors.Join(err, err2, err3, err4)
	for range l.connected {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return s, fmt.Errorf("%s, %s, %s: %w\n%s", l.server.name, l.payload.shape, l.payload.mode, err, l.server.said())
	}
	if s.Groups == 0 || s.CPU == 0 {
		return s, fmt.Errorf("%s, %s, %s: nothing was answered", l.server.name, l.payload.shape, l.payload.mode)
	}
	return s, nil
}

// waitFor waits until so much time has passed and at least one group was answered in it.
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

// openStream opens a stream and takes the answer to its header.
func openStream(ctx context.Context, c *grpc.ClientConn, s shape) (grpc.ClientStream, error) {
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		ckdv1.UncertaintyService_DecomposeStream_FullMethodName)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(newFrame(header(s))); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, stream.RecvMsg(&receipt{})
}

// stream sends the groups from one to another, over and over, each when its last reply has come: until then the
// transport may hold its messages.
func (l *load) stream(ctx context.Context, c *grpc.ClientConn, from, to int, stopped *atomic.Bool) error {
	stream, err := openStream(ctx, c, l.payload.shape)
	if err != nil {
		return err
	}
	free := make(chan int, to-from)
	for i := from; i < to; i++ {
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
	var r receipt
	for next := from; ; {
		for range l.replies {
			if err := stream.RecvMsg(&r); errors.Is(err, io.EOF) {
				return <-sent
			} else if err != nil {
				return err
			}
		}
		if err := l.check(next, r.length); err != nil {
			return err
		}
		l.answered.Add(1)
		select {
		case free <- next:
		default:
			return errUnasked
		}
		if next++; next == to {
			next = from
		}
	}
}

// errUnasked is a reply to nothing.
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

// check holds the length of a group's last reply against the one that was looked into.
func (l *load) check(group, length int) error {
	switch l.lengths[group] {
	case length:
	case 0:
		l.lengths[group] = length
	default:
		return fmt.Errorf("a reply of %d bytes, the first one had %d", length, l.lengths[group])
	}
	return nil
}

// calls makes calls with the groups from one to another, all at the same time.
func (l *load) calls(ctx context.Context, c *grpc.ClientConn, from, to int, stopped *atomic.Bool) error {
	var running sync.WaitGroup
	faults := make([]error, to-from)
	for i := from; i < to; i++ {
		running.Go(func() {
			var r receipt
			request := l.payload.groups[i].messages[0]
			for !stopped.Load() {
				err := c.Invoke(ctx, ckdv1.UncertaintyService_Decompose_FullMethodName, newFrame(request), &r)
				if err == nil {
					err = l.check(i, r.length)
				}
				if err != nil {
					faults[i-from] = err
					return
				}
				l.answered.Add(1)
			}
		})
	}
	running.Wait()
	return errors.Join(faults...)
}
