package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// SessionConfig says which model a session's passes belong to and how they are answered.
type SessionConfig struct {
	// Model names the policy that decides.
	Model string
	// Classes, if given, must equal the policy's, in the same order.
	Classes []string
	// Passes after which an input is finished; 0 takes the policy's number.
	Passes int
	// Detail of the results; the zero value means Decision.
	Detail ckdv1.Detail
	// Kind of the rows; if given, the policy must accept it. The zero value means the kind that it
	// accepts.
	Kind ckdv1.Kind
	// Posterior says how the passes are sampled, for example mc-dropout. The daemon counts and
	// logs inputs whose policy was calibrated for another posterior.
	Posterior string
	// AcceptSettled lets the daemon answer an input before its last pass, when the policy's
	// early-stopping rule allows it: see Group.Rows. Without a rule, or with a daemon that does not
	// support early stopping, nothing changes; Info says which.
	AcceptSettled bool
	// Receipts says which results carry a receipt: see Result.Receipt. Inputs are audited only where
	// it is set. The daemon refuses it if it has no keys for receipts.
	Receipts ckdv1.Receipts
	// ModelVersion names the version of the model for receipts, in at most 128 bytes. Without it they
	// hold the policy's version.
	ModelVersion string
	// InFlight limits the inputs that are open at one time. 0 takes the daemon's limit, which is
	// never exceeded.
	InFlight int
	// Reconnect says what to do when the stream breaks. The zero value opens it again and sends
	// again what has no answer.
	Reconnect Reconnect
}

// Session sends the inputs of many groups over a stream to the daemon. When the stream breaks,
// the session opens another.
type Session struct {
	client    *Client
	ctx       context.Context // context of all its streams
	cancel    context.CancelFunc
	header    *ckdv1.StreamHeader
	reconnect Reconnect
	terms     terms // terms that the first stream agreed on
	window    window
	done      chan struct{} // closed when the session has ended and every input has its answer

	// writing is held during stream.Send, which may block; mu is never held there. Whoever needs
	// both locks writing first.
	writing sync.Mutex

	mu     sync.Mutex
	moved  sync.Cond // signals answers, and that Group.Sync may be able to return
	link   *link     // nil while there is no stream
	open   []*Group  // groups with unanswered inputs, in the order in which they were opened
	closed bool      // Close was called
	ended  bool      // no further answers come
	err    error     // returned by Err once the session has ended
}

// Session opens a stream and waits for the daemon's first reply, which states what the daemon
// expects. The context covers the whole session: when it ends, the daemon abandons what is open.
// If the first attempt fails, Session tries again only when the daemon is overloaded.
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
	reconnect, err := config.Reconnect.withDefaults()
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
		Receipts:      config.Receipts,
		ModelVersion:  config.ModelVersion,
	}
	var st *stream
	err = retry(ctx, reconnect, overloaded, func() (err error) {
		st, err = c.openStream(ctx, 0, header, c.messageBytes)
		return err
	})
	if err == nil {
		err = st.terms.checkRowFits()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Session{
		client:    c,
		ctx:       ctx,
		cancel:    cancel,
		header:    header,
		reconnect: reconnect,
		terms:     st.terms,
		window:    newWindow(config.InFlight, st.terms),
		done:      make(chan struct{}),
	}
	s.moved.L = &s.mu
	s.link = s.newLink(st)
	return s, nil
}

// Info returns the daemon's first reply: classes, expected passes, limits. The caller must not
// change it. After the stream was opened again, the limits may differ, and early stopping may have
// begun or ended.
func (s *Session) Info() *ckdv1.StreamInfo { return s.terms.info }

// Window returns how many inputs may be in flight at one time. A group cannot be larger.
func (s *Session) Window() int { return s.window.size }

// Open starts a group of inputs, one for each id. An id may be empty; an id that is not empty must
// not be in flight already. Open waits while the window is full, until ctx ends: a goroutine that
// opens many groups before it sends anything may wait for itself.
//
// The daemon learns of the group with its first passes and decides under the policy in force at
// that moment.
func (s *Session) Open(ctx context.Context, ids []string) (*Group, error) {
	return s.OpenWithContexts(ctx, ids, nil)
}

// OpenWithContexts is Open for inputs whose receipts say more than the decision: contexts holds one
// for each id, or is empty. They must not change until all inputs are answered.
func (s *Session) OpenWithContexts(ctx context.Context, ids []string, contexts []*ckdv1.InputContext) (*Group, error) {
	if err := checkContexts(contexts, len(ids)); err != nil {
		return nil, err
	}
	if err := s.checkIDs(ids, contexts); err != nil {
		return nil, err
	}
	if err := s.window.acquire(ctx, len(ids)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusal(); err != nil {
		s.window.release(len(ids), 1)
		return nil, err
	}
	g := newGroup(s, ids, contexts)
	s.open = append(s.open, g)
	return g, nil
}

// DoRows computes and sends the passes of one group, and returns the results in the order of the
// ids. It calls forward until no row needs a pass: a model leaves answered inputs out. Each call gets the rows that still need one, as rising
// positions in ids, and returns one pass of these rows, laid out [rows][classes]. Between calls
// DoRows waits for the daemon, as Group.Sync does. The daemon must expect a number of passes: the
// policy's, or that of SessionConfig.
//
// If forward fails, DoRows ends the group and returns the error; its inputs have not been cleared.
// The daemon may still decide on inputs that were sent, and count them.
func (s *Session) DoRows(ctx context.Context, ids []string, forward func(rows []int) ([]float32, error)) ([]Result, error) {
	if s.Info().GetExpectedPasses() == 0 {
		return nil, errors.New("the daemon expects no number of passes, expected SessionConfig.Passes or passes.expected of the policy")
	}
	g, err := s.Open(ctx, ids)
	if err != nil {
		return nil, err
	}
	for rows := g.Rows(); len(rows) > 0; rows = g.Rows() {
		if err = g.forward(ctx, rows, forward); err != nil {
			_ = g.Finish() // otherwise the group would stay open for ever; the first error says more
			return nil, err
		}
	}
	return g.Wait(ctx)
}

// Close ends the session and returns Err. The daemon decides what is open on the passes it has, and
// Close waits for these answers. Groups may still be read afterwards. To abandon what is open, end
// the session's context instead.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	switch {
	case s.ended:
	case s.link != nil:
		// Groups that have sent nothing are opened too, so that the daemon answers them.
		for _, g := range s.open {
			if !g.begun {
				g.begun = true
				s.link.enqueue(g)
			}
		}
		s.link.wakePump()
	case len(s.open) == 0:
		s.end(nil) // no input needs another stream
	}
	s.mu.Unlock()
	<-s.done
	return s.Err()
}

// Err returns why the session ended by itself: a status, for package status, whose code is
// Internal where daemon and client do not understand each other. It returns nil while the session lives and after a normal end.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// checkIDs rejects ids for which the daemon would end the stream, and with it all groups.
func (s *Session) checkIDs(ids []string, contexts []*ckdv1.InputContext) error {
	if len(ids) == 0 || len(ids) > s.window.size {
		return fmt.Errorf("a group of %d inputs, expected 1 to %d, the window", len(ids), s.window.size)
	}
	for i, id := range ids {
		if !utf8.ValidString(id) {
			return fmt.Errorf("id %d is %q, expected UTF-8", i, id)
		}
	}
	if n, most := idsBytes(ids)+contextBytes(contexts), s.terms.messageBytes-blockOverhead; n > most {
		return fmt.Errorf("the ids and contexts of a group take %d bytes, expected at most %d", n, most)
	}
	return nil
}

// refusal returns why the session takes no more passes, or nil. The caller holds mu.
func (s *Session) refusal() error {
	switch {
	case s.err != nil:
		return s.err
	case s.closed || s.ended:
		return ErrClosed
	}
	return nil
}

// window admits a group when there is room for its inputs and for one more group. Answers give the
// room back. When the session ends, all inputs are answered, so whoever waits for room gets it and
// then learns of the end.
type window struct {
	size           int // inputs
	inputs, groups *semaphore.Weighted
}

// newWindow makes a window of at most inFlight inputs, within the daemon's limits.
func newWindow(inFlight int, limits terms) window {
	size := min(cmp.Or(inFlight, limits.maxInputs), limits.maxInputs)
	return window{size, semaphore.NewWeighted(int64(size)), semaphore.NewWeighted(int64(limits.maxGroups))}
}

// acquire takes room for one group of n inputs, and waits for it until ctx ends.
func (w window) acquire(ctx context.Context, n int) error {
	err := w.groups.Acquire(ctx, 1)
	if err == nil {
		if err = w.inputs.Acquire(ctx, int64(n)); err != nil {
			w.groups.Release(1)
		}
	}
	if err != nil {
		return fmt.Errorf("no room for %d inputs in a window of %d: %w", n, w.size, err)
	}
	return nil
}

func (w window) release(inputs, groups int) {
	w.inputs.Release(int64(inputs))
	w.groups.Release(int64(groups))
}
