package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

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
	// Posterior is how the passes are sampled, if given, as in mc-dropout. The daemon
	// counts and logs inputs whose policy was calibrated for another.
	Posterior string
	// AcceptSettled takes answers before the last pass, of inputs whose decision is
	// settled by the policy's rule: see Group.Rows. Without a rule, and with a daemon
	// that knows of none, nothing changes; Info says so.
	AcceptSettled bool
	// InFlight is the most inputs that are open at one time. 0 takes the daemon's
	// limit, which is never exceeded.
	InFlight int
	// Reconnect says what to do when the stream breaks: the zero value opens it
	// again, and sends what has no answer.
	Reconnect Reconnect
}

// Session is a stream to the daemon, on which the inputs of many groups are in
// flight. When the stream breaks, another takes its place.
type Session struct {
	client    *Client
	ctx       context.Context // of all its streams
	cancel    context.CancelFunc
	header    *ckdv1.StreamHeader
	reconnect Reconnect

	// What the first stream said.
	info         *ckdv1.StreamInfo
	classes      int
	window       int
	messageBytes int

	// Room for inputs and for groups: taken by Open, given back by answers.
	inputs, groups *semaphore.Weighted
	// done is closed when the session has ended and every input has its answer.
	done chan struct{}

	// writing is held over stream.Send, which may block; mu is not. Where both are
	// taken, writing comes first.
	writing sync.Mutex

	mu     sync.Mutex
	moved  sync.Cond           // told when Group.Sync may have come to its end
	link   *link               // the stream; nil while there is none
	opened uint64              // groups opened so far
	open   map[*Group]struct{} // groups with inputs that wait for an answer
	closed bool                // Close was called
	ended  bool                // no answer comes any more
	err    error               // what Err returns, once the session has ended
}

// Session opens a stream and waits for the daemon's first reply, which says what
// it expects. The context is the whole session's: when it ends, the daemon
// abandons what is open. This first stream is not tried for again, unless the daemon
// has too much to do.
//
// A session holds two goroutines and a stream until Close returns or ctx ends.
func (c *Client) Session(ctx context.Context, config SessionConfig) (*Session, error) {
	s, err := c.newSession(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("session for model %q: %w", config.Model, err)
	}
	go s.run(s.link)
	return s, nil
}

func (c *Client) newSession(ctx context.Context, config SessionConfig) (*Session, error) {
	if config.Passes < 0 || int64(config.Passes) > math.MaxUint32 {
		return nil, fmt.Errorf("%d passes, expected 0 to %d", config.Passes, uint32(math.MaxUint32))
	}
	if config.InFlight < 0 {
		return nil, fmt.Errorf("%d inputs in flight, expected 0 or more", config.InFlight)
	}
	reconnect, err := config.Reconnect.complete()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	header := &ckdv1.StreamHeader{
		Model:         config.Model,
		Classes:       slices.Clone(config.Classes),
		Passes:        uint32(config.Passes),
		Detail:        config.Detail,
		Kind:          config.Kind,
		Posterior:     config.Posterior,
		AcceptSettled: config.AcceptSettled,
	}
	var l *link
	err = persist(ctx, reconnect, overloaded, func() (err error) {
		l, err = c.openLink(ctx, 0, header, c.messageBytes)
		return err
	})
	if err == nil {
		err = l.fitsRow()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Session{
		client:       c,
		ctx:          ctx,
		cancel:       cancel,
		header:       header,
		reconnect:    reconnect,
		info:         l.info,
		classes:      len(l.info.GetClasses()),
		window:       min(cmp.Or(config.InFlight, math.MaxInt), l.mostInputs),
		messageBytes: l.messageBytes,
		done:         make(chan struct{}),
		link:         l,
		open:         map[*Group]struct{}{},
	}
	s.moved.L = &s.mu
	if s.window == math.MaxInt {
		s.window = defaultInFlight
	}
	s.inputs, s.groups = semaphore.NewWeighted(int64(s.window)), semaphore.NewWeighted(int64(l.mostGroups))
	return s, nil
}

// Info is the daemon's first reply: classes, expected passes, limits. It must not
// be changed. The limits may be others when the stream was opened again, and inputs
// may be settled early by then, or not any more.
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
	s.opened++
	g := &Group{
		session: s,
		ids:     slices.Clone(ids),
		done:    make(chan struct{}),
		all:     make([]uint32, len(ids)),
		opened:  s.opened,
		results: make([]Result, len(ids)),
		order:   make([]int, 0, len(ids)),
		arrived: sync.NewCond(&s.mu),
		passes:  make([]int, len(ids)),
		held:    len(ids),
	}
	for i := range g.all {
		g.all[i] = uint32(i)
	}
	s.open[g] = struct{}{}
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

// DoRows is Do for a model that leaves inputs out of its next pass when they are
// answered: forward computes one pass of the rows that still need one, which are
// positions in ids, rising, and returns it laid out [rows][classes]. It is called until
// no row does. The daemon must expect a number of passes, the policy's or that of
// SessionConfig. Each pass is waited for as Group.Sync does.
//
// An error of forward ends the group: it is returned, and the inputs have not been
// cleared.
func (s *Session) DoRows(ctx context.Context, ids []string, forward func(rows []int) ([]float32, error)) ([]Result, error) {
	if s.info.GetExpectedPasses() == 0 {
		return nil, errors.New("the daemon expects no number of passes, expected SessionConfig.Passes or passes.expected of the policy")
	}
	g, err := s.Open(ctx, ids)
	if err != nil {
		return nil, err
	}
	for rows := g.Rows(); len(rows) > 0; rows = g.Rows() {
		if err = g.forward(ctx, rows, forward); err != nil {
			_ = g.Finish() // so that the group does not stay open for ever; the first error says more
			return nil, err
		}
	}
	return g.Wait(ctx)
}

// Close ends the session: the daemon finishes what is open with the passes it
// has, and Close waits for those answers. The error is Err's. Groups may still be
// read afterwards. To abandon what is open, end the session's context instead.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	switch {
	case s.ended:
	case s.link != nil:
		// Groups of which nothing was sent are opened, to be answered like all others.
		for _, g := range s.inOrder() {
			if !g.begun {
				g.begun = true
				s.link.enqueue(g)
			}
		}
		s.link.stir()
	case len(s.open) == 0:
		s.end(nil) // there is nothing to open the stream again for
	}
	s.mu.Unlock()
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

// inOrder is the open groups in the order in which they were opened. mu is held.
func (s *Session) inOrder() []*Group {
	return slices.SortedFunc(maps.Keys(s.open), func(a, b *Group) int { return cmp.Compare(a.opened, b.opened) })
}
