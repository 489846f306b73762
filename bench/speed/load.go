package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outstanding is how many groups, or calls, are in flight at one time.
const outstanding = 64

// load drives one server with one payload.
type load struct {
	server   *process
	conn     *grpc.ClientConn
	payload  *payload
	lengths  []int        // by group, of every reply to it; 0 before the first
	blind    bool         // the replies say nothing
	answered atomic.Int64 // groups
}

// sample holds what one turn measured: groups a second, and the server's CPU seconds a group.
type sample struct{ rate, cpu float64 }

// rawCodec sends a []byte as it is, and receives messages undecoded.
type rawCodec struct{}

// Name returns the name of the codec that this one replaces.
func (rawCodec) Name() string { return "proto" }

// Marshal returns a message of bytes, which must not change while it is being sent.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal copies a message to a *[]byte, unless nothing reads it.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if to, ok := v.(*[]byte); ok {
		*to = data.Materialize()
	}
	return nil
}

// dial connects to a server.
func dial(server *process) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+server.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
}

// drive keeps the server busy for d and measures the last four fifths of that time, or longer if
// nothing was answered yet.
func (l *load) drive(ctx context.Context, d time.Duration) (s sample, err error) {
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
	l.waitFor(ctx, d/5)
	cpu, err := l.server.cpuSeconds()
	began, before, used := time.Now(), l.answered.Load(), cpu
	for d -= d / 5; err == nil && used == cpu && ctx.Err() == nil; d = 10 * time.Millisecond { // the system counts it at times
		l.waitFor(ctx, d)
		used, err = l.server.cpuSeconds()
	}
	groups, seconds := float64(l.answered.Load()-before), time.Since(began).Seconds()
	stopped.Store(true)
	err = errors.Join(err, <-ended)
	if err == nil && (groups == 0 || used == cpu) {
		err = errors.New("nothing was answered")
	}
	if err != nil {
		return s, fmt.Errorf("%s, %s, %s: %w\n%s", l.server.name, l.payload.shape, l.payload.mode, err, l.server.said())
	}
	return sample{groups / seconds, (used - cpu) / groups}, nil
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
	first, err := streamHeader(s)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(first); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, stream.RecvMsg(new([]byte))
}

// stream sends the groups over and over. It opens a group again only after its reply.
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
		for i := range free {
			if stopped.Load() {
				break
			}
			for _, message := range l.payload.groups[i].messages {
				if err := stream.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
					sent <- err
					return
				}
			}
		}
		sent <- stream.CloseSend()
	}()
	defer close(free)
	for next := 0; ; next = (next + 1) % n {
		var reply []byte
		if err := stream.RecvMsg(&reply); errors.Is(err, io.EOF) {
			return <-sent
		} else if err != nil {
			return err
		}
		if err := l.check(next, reply); err != nil {
			return err
		}
		l.answered.Add(1)
		select {
		case free <- next:
		default:
			return errors.New("a reply more than were due")
		}
	}
}

// check verifies the first reply to a group, and compares the lengths of others with its own.
func (l *load) check(group int, reply []byte) error {
	switch l.lengths[group] {
	case len(reply):
		return nil
	case 0:
		if l.lengths[group] = len(reply); l.blind {
			return nil
		}
		return l.payload.verify(group, reply)
	}
	return fmt.Errorf("a reply of %d bytes, the first one had %d", len(reply), l.lengths[group])
}

// calls makes calls with all groups at the same time, over and over.
func (l *load) calls(ctx context.Context, stopped *atomic.Bool) error {
	var running sync.WaitGroup
	faults := make([]error, len(l.payload.groups))
	for i := range faults {
		running.Go(func() {
			for faults[i] == nil && !stopped.Load() {
				var reply []byte
				faults[i] = l.conn.Invoke(ctx, ckdv1.UncertaintyService_Decompose_FullMethodName, l.payload.groups[i].messages[0], &reply)
				if faults[i] == nil {
					faults[i] = l.check(i, reply)
					l.answered.Add(1)
				}
			}
		})
	}
	running.Wait()
	return errors.Join(faults...)
}
