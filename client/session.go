package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// defaultInFlight is the window where neither the caller nor the daemon states one.
const defaultInFlight = 1024

// SessionConfig says whose passes a session carries and how it is answered.
type SessionConfig struct {
	// Model by the name that its policy states.
	Model string
	// Classes, if given, must be the policy's, in order.
	Classes []string
	// Passes after which an input is finished; 0 takes the policy's number.
	Passes int
	// Detail of the results; Decision unless said otherwise.
	Detail ckdv1.Detail
	// Kind of the rows, if given, must be what the policy accepts.
	Kind ckdv1.Kind
	// InFlight is the most inputs that are open at one time. 0 takes the daemon's
	// limit, which is never exceeded.
	InFlight int
}

// Session is one stream to the daemon, on which the inputs of many groups are in
// flight.
type Session struct {
	stream       grpc.BidiStreamingClient[ckdv1.DecomposeStreamRequest, ckdv1.DecomposeStreamResponse]
	cancel       context.CancelFunc // ends the stream
	info         *ckdv1.StreamInfo
	classes      int
	window       int
	messageBytes int

	// Room for inputs and for groups: taken by Open, given back by answers.
	inputs, groups *semaphore.Weighted
	// done is closed when the stream has ended and every input has its answer.
	done chan struct{}

	// writing is held over stream.Send, which may block; mu is not. Where both are
	// taken, writing comes first.
	writing sync.Mutex

	mu     sync.Mutex
	last   uint64              // number of the group that was opened last on the stream
	open   map[uint64]*Group   // groups on the stream with inputs that wait for an answer
	unsent map[*Group]struct{} // groups of which nothing was sent yet
	closed bool                // Close was called
	ended  bool                // the stream has ended
	err    error               // what Err returns, once the stream has ended
}

// Session opens a stream and waits for the daemon's first reply, which says what
// it expects. The context is the whole session's: when it ends, the daemon
// abandons what is open.
//
// A session holds a goroutine and a stream until Close returns or ctx ends.
func (c *Client) Session(ctx context.Context, config SessionConfig) (*Session, error) {
	s, err := c.newSession(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("session for model %q: %w", config.Model, err)
	}
	go s.read()
	return s, nil
}

func (c *Client) newSession(ctx context.Context, config SessionConfig) (s *Session, err error) {
	if config.Passes < 0 || int64(config.Passes) > math.MaxUint32 {
		return nil, fmt.Errorf("%d passes, expected 0 to %d", config.Passes, uint32(math.MaxUint32))
	}
	if config.InFlight < 0 {
		return nil, fmt.Errorf("%d inputs in flight, expected 0 or more", config.InFlight)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	stream, err := c.rpc.DecomposeStream(ctx)
	if err != nil {
		return nil, err
	}
	header := &ckdv1.StreamHeader{
		Model:   config.Model,
		Classes: config.Classes,
		Passes:  uint32(config.Passes),
		Detail:  config.Detail,
		Kind:    config.Kind,
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

	limits := info.GetLimits()
	s = &Session{
		stream:       stream,
		cancel:       cancel,
		info:         info,
		classes:      len(info.GetClasses()),
		window:       config.InFlight,
		messageBytes: c.messageBytes,
		done:         make(chan struct{}),
		open:         map[uint64]*Group{},
		unsent:       map[*Group]struct{}{},
	}
	if n := int(limits.GetMessageBytes()); n > 0 {
		s.messageBytes = n
	}
	if !fits(s.classes, s.messageBytes) {
		return nil, fmt.Errorf("the daemon accepts messages of %d bytes, too few for a row of %d classes",
			s.messageBytes, s.classes)
	}
	if n := int(limits.GetOpenInputsPerStream()); n > 0 && (s.window == 0 || s.window > n) {
		s.window = n
	}
	if s.window == 0 {
		s.window = defaultInFlight
	}
	groups := int64(limits.GetOpenGroupsPerStream())
	if groups == 0 {
		groups = math.MaxInt64
	}
	s.inputs, s.groups = semaphore.NewWeighted(int64(s.window)), semaphore.NewWeighted(groups)
	return s, nil
}

// Info is the daemon's first reply: classes, expected passes, limits. It must not
// be changed.
func (s *Session) Info() *ckdv1.StreamInfo { return s.info }

// Window is the most inputs in flight, and so the most in one group.
func (s *Session) Window() int { return s.window }

// Open starts a group of inputs, one for each id. Ids may be empty; others must
// not be in flight already. Open waits while the window is full, until ctx ends:
// one goroutine that opens many groups before it sends any may wait for itself.
//
// The daemon learns of the group with its first passes, and decides under the
// policy that is in force then.
func (s *Session) Open(ctx context.Context, ids []string) (*Group, error) {
	if err := s.checkIDs(ids); err != nil {
		return nil, err
	}
	if err := s.reserve(ctx, len(ids)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusal(); err != nil {
		s.release(len(ids), 1)
		return nil, err
	}
	g := &Group{
		session: s,
		ids:     slices.Clone(ids),
		results: make([]Result, len(ids)),
		order:   make([]int, 0, len(ids)),
		arrived: sync.NewCond(&s.mu),
		done:    make(chan struct{}),
	}
	s.unsent[g] = struct{}{}
	return g, nil
}

// Do sends the passes of one group, each [inputs][classes], and waits for the
// results, in the order of the ids. Inputs that have fewer passes than the daemon
// expects are decided on those they have.
//
// On an error the inputs have not been cleared; those that were sent may still be
// decided on, and counted, by the daemon.
func (s *Session) Do(ctx context.Context, ids []string, passes iter.Seq[[]float32]) ([]Result, error) {
	g, err := s.Open(ctx, ids)
	if err != nil {
		return nil, err
	}
	sent := 0
	for values := range passes {
		if err = ctx.Err(); err == nil {
			err = g.Send(values)
		}
		if err != nil {
			break
		}
		sent++
	}
	// Also after an error, so that the group does not stay open for ever.
	if expected := int(s.info.GetExpectedPasses()); err != nil || expected == 0 || sent < expected {
		if finishErr := g.Finish(); err == nil {
			err = finishErr
		}
	}
	if err != nil {
		return nil, err
	}
	return g.Wait(ctx)
}

// Close ends the session: the daemon finishes what is open with the passes it
// has, and Close waits for those answers. The error is Err's. Groups may still be
// read afterwards. To abandon what is open, end the session's context instead.
func (s *Session) Close() error {
	s.writing.Lock()
	s.mu.Lock()
	halfClose := !s.closed && !s.ended
	s.closed = true
	var unsent []*Group
	for g := range s.unsent {
		unsent = append(unsent, g)
	}
	s.mu.Unlock()
	if halfClose {
		s.halfClose(unsent)
	}
	s.writing.Unlock()
	<-s.done
	return s.Err()
}

// Err tells why the session ended by itself: the stream's status, for package
// status, or a *ProtocolError. It is nil while the session lives and when it
// ended as it should.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// checkIDs refuses what would end the stream for all groups.
func (s *Session) checkIDs(ids []string) error {
	if len(ids) == 0 || len(ids) > s.window {
		return fmt.Errorf("a group of %d inputs, expected 1 to %d, the window", len(ids), s.window)
	}
	for i, id := range ids {
		if !utf8.ValidString(id) {
			return fmt.Errorf("id %d is %q, expected UTF-8", i, id)
		}
	}
	if n, most := idsBytes(ids), s.messageBytes-blockOverhead; n > most {
		return fmt.Errorf("the ids of a group take %d bytes, expected at most %d", n, most)
	}
	return nil
}

// reserve takes room for one group of n inputs. The end of the session gives all
// room back, so that whoever waits here then comes to see it.
func (s *Session) reserve(ctx context.Context, n int) error {
	err := s.groups.Acquire(ctx, 1)
	if err == nil {
		if err = s.inputs.Acquire(ctx, int64(n)); err != nil {
			s.groups.Release(1)
		}
	}
	if err != nil {
		return fmt.Errorf("no room for %d inputs in a window of %d: %w", n, s.window, err)
	}
	return nil
}

func (s *Session) release(inputs, groups int) {
	s.inputs.Release(int64(inputs))
	s.groups.Release(int64(groups))
}

// refusal tells why the session takes nothing more, if it does not. mu is held.
func (s *Session) refusal() error {
	switch {
	case s.err != nil:
		return s.err
	case s.closed || s.ended:
		return ErrClosed
	}
	return nil
}

// write sends one block of a group.
func (s *Session) write(g *Group, b *ckdv1.Block) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	err, needless := s.refusal(), g.complete()
	s.mu.Unlock()
	if err != nil || needless {
		return err
	}
	return s.put(g, b)
}

// put sends one block of a group, and opens the group with its first. writing is
// held.
func (s *Session) put(g *Group, b *ckdv1.Block) error {
	s.mu.Lock()
	opens := g.number == 0
	if opens {
		// Numbers are given here, and not by Open, so that they rise on the wire.
		s.last++
		g.number = s.last
		s.open[g.number] = g
		delete(s.unsent, g)
	}
	s.mu.Unlock()

	b.Group = g.number
	if !opens {
		return s.send(b)
	}
	ids := idsBytes(g.ids)
	if ids+rowBytes*len(b.Rows)+len(b.ValuesLe) <= s.messageBytes-blockOverhead {
		b.InputIds = g.ids
		return s.send(b)
	}
	if err := s.send(&ckdv1.Block{Group: g.number, InputIds: g.ids}); err != nil {
		return err
	}
	return s.send(b)
}

// send writes one message. An error means that the stream is over, of which the
// reader learns the reason.
func (s *Session) send(b *ckdv1.Block) error {
	err := s.stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}})
	if err == nil {
		return nil
	}
	<-s.done
	return s.Err()
}

// halfClose opens the groups of which nothing was sent, so that they are answered
// like all others, and says that nothing follows. writing is held.
func (s *Session) halfClose(unsent []*Group) {
	for _, g := range unsent {
		if err := s.put(g, &ckdv1.Block{}); err != nil {
			return // the session has ended and answered all of them
		}
	}
	// The error is always nil: the reader learns what became of the stream.
	_ = s.stream.CloseSend()
}
