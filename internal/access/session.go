package access

import (
	"context"
	"sync"
	"sync/atomic"
)

// session is a call, with the credential that it was let in by.
type session struct {
	store      *Store
	credential credential
	at         place
	need       Need // that its identity meets, for as long as the call goes on
	identity   atomic.Pointer[Identity]
	model      atomic.Pointer[string] // the last that was asked for

	gone   chan struct{} // closed when the call has to end; nil where it is too short to matter
	ending sync.Once
	err    error // why, once gone is closed
	cancel context.CancelCauseFunc
}

// place is what was called, and where the call came from.
type place struct{ what, from string }

type sessionKey struct{}

func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// Allow is nil where the caller may use a model, and otherwise the status to
// answer with. Ask it before the model is looked for: who may not use a model does
// not learn whether there is one. A stream ends when the model that it last asked
// for is withdrawn.
func Allow(ctx context.Context, model string) error {
	s := sessionOf(ctx)
	if s == nil {
		return nil
	}
	if s.gone != nil {
		if last := s.model.Load(); last == nil || *last != model {
			s.model.Store(&model) // before the identity is read, so that recheck sees one or the other
		}
	}
	if !s.identity.Load().MayUse(model) {
		s.store.refused(ctx, s.at, NotAllowed)
		return errModel(model)
	}
	return nil
}

// Gone is closed when a stream has to end, since what let it in was withdrawn:
// Ended then says why. It is nil, which never is ready, where that cannot happen.
func Gone(ctx context.Context) <-chan struct{} {
	if s := sessionOf(ctx); s != nil {
		return s.gone
	}
	return nil
}

// Ended is the status to end a stream with whose Gone is closed, and nil before.
func Ended(ctx context.Context) error {
	if s := sessionOf(ctx); s != nil {
		return s.ended()
	}
	return nil
}

// enter begins a call of who meets the need, which its identity may or may not: see
// Identity.meets. One that may last is in the store's care until leave.
func (s *Store) enter(ctx context.Context, at place, c credential, need Need, lasting bool) (context.Context, *session, Reason) {
	r := s.current.Load()
	who, why := s.who(r, c)
	if why != "" {
		return ctx, nil, why
	}
	one := &session{store: s, at: at, credential: c, need: need}
	one.identity.Store(who)
	if lasting {
		one.gone = make(chan struct{})
		ctx, one.cancel = context.WithCancelCause(ctx)
	}
	ctx = context.WithValue(ctx, sessionKey{}, one)
	if lasting {
		s.tracking.Lock()
		s.open[one] = struct{}{}
		s.tracking.Unlock()
		if s.current.Load() != r {
			one.recheck() // what has changed since may not have found it
		}
	}
	return ctx, one, ""
}

// enterAsNobody begins a call that is open to all.
func (s *Store) enterAsNobody(ctx context.Context) context.Context {
	one := &session{store: s}
	one.identity.Store(nobody)
	return context.WithValue(ctx, sessionKey{}, one)
}

// leave ends what enter began.
func (s *session) leave() {
	if s.gone == nil {
		return
	}
	s.store.tracking.Lock()
	delete(s.store.open, s)
	s.store.tracking.Unlock()
	s.cancel(context.Canceled)
}

// recheck the credential by what is in force.
func (s *session) recheck() {
	was := s.identity.Load()
	is, why := s.store.who(s.store.current.Load(), s.credential)
	if why != "" || is.name != was.name {
		s.end(errUnauthenticated)
		return
	}
	s.identity.Store(is)
	if was.meets(s.need) && !is.meets(s.need) {
		s.end(errNotAllowed("do this"))
		return
	}
	if model := s.model.Load(); model != nil && !is.MayUse(*model) && was.MayUse(*model) {
		s.end(errModel(*model))
	}
}

func (s *session) end(err error) {
	s.ending.Do(func() {
		s.err = err
		close(s.gone)
		s.cancel(err)
	})
}

func (s *session) ended() error {
	select {
	case <-s.gone: // never ready where it is nil
		return s.err
	default:
		return nil
	}
}

func (s *Store) refused(ctx context.Context, at place, why Reason) {
	if s.options.Refused != nil {
		s.options.Refused(ctx, Refusal{Why: why, What: at.what, From: at.from, Who: FromContext(ctx).Name()})
	}
}
