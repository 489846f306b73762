package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// session is a call, with the credential that it was let in by.
type session struct {
	store      *Store
	credential credential
	origin     origin
	need       Need // must be met as long as the call goes on
	open       bool // the call is open to all, and needs no credential
	identity   atomic.Pointer[Identity]
	judged     *roster                // where identity was found
	model      atomic.Pointer[string] // the model asked for last

	gone    chan struct{} // closed when the call has to end; nil until stay
	ending  sync.Once
	err     error // says why gone is closed
	cancel  context.CancelCauseFunc
	expired chan struct{} // closed when the JWT has expired; nil without one, or until stay
	expiry  []*time.Timer // of the JWT and, after the time to drain, of the call
}

// origin names the called method and the caller's address.
type origin struct{ what, from string }

type sessionKey struct{}

// unchecked is the session of all calls without access control: no identity, and nothing that ends it.
var unchecked session

// sessionOf returns the session of a call. It is unchecked if no Store has let the call in.
func sessionOf(ctx context.Context) *session {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s
	}
	return &unchecked
}

// Allow returns nil if the caller may use a model, and otherwise the status to answer with. Call it
// before looking for the model: a caller without the right must not learn whether the model exists.
// A stream ends when the model that it last asked for is withdrawn.
func Allow(ctx context.Context, model string) error {
	s := sessionOf(ctx)
	if s.gone != nil {
		if last := s.model.Load(); last == nil || *last != model {
			s.model.Store(&model) // before the identity is read, so that recheck sees one or the other
		}
	}
	if !s.identity.Load().MayUse(model) {
		s.store.refused(ctx, s.origin, notAllowed)
		return errModel(model)
	}
	return nil
}

// Require returns nil if the caller has a right, such as [Identity.MayClear], and otherwise the status to
// answer with: "the identity may not", followed by what.
func Require(ctx context.Context, right func(*Identity) bool, what string) error {
	s := sessionOf(ctx)
	if right(s.identity.Load()) {
		return nil
	}
	s.store.refused(ctx, s.origin, notAllowed)
	return errNotAllowed(what)
}

// Gone returns a channel that is closed when a stream has to end because its credential or right was
// withdrawn; Ended then says why. It returns nil, which never is ready, if that cannot happen.
func Gone(ctx context.Context) <-chan struct{} {
	return sessionOf(ctx).gone
}

// Ended returns the status to end a stream with once Gone is closed, and nil before.
func Ended(ctx context.Context) error { return sessionOf(ctx).ended() }

// enter returns the session of a call with a credential, or the reason why the credential is not
// accepted. The caller checks whether the identity meets the need: see Identity.meets.
func (s *Store) enter(ctx context.Context, from origin, c credential, need Need) (context.Context, *session, string) {
	r := s.current.Load()
	c, why := s.verified(r, c)
	if why != "" {
		return ctx, nil, why
	}
	who, why := r.who(c)
	if why != "" {
		return ctx, nil, why
	}
	opened := &session{store: s, origin: from, credential: c, need: need, judged: r}
	opened.identity.Store(who)
	return context.WithValue(ctx, sessionKey{}, opened), opened, ""
}

// enterAsNobody returns the session of a call that is open to all.
func (s *Store) enterAsNobody(ctx context.Context) (context.Context, *session) {
	opened := &session{store: s, open: true}
	opened.identity.Store(nobody)
	return context.WithValue(ctx, sessionKey{}, opened), opened
}

// Expired returns a channel that is closed when the token of a stream has expired. A handler that
// watches it has [Options.Drain] to answer the inputs that it has taken, before the stream ends anyway. It
// returns nil, which never is ready, if the stream's credential does not expire.
func Expired(ctx context.Context) <-chan struct{} {
	return sessionOf(ctx).expired
}

// renew finds the caller's identity again if it may have changed since enter: a request may take
// its time to arrive. A token that expires meanwhile stays good for it.
func (s *session) renew() string {
	r := s.store.current.Load()
	if s.open || r == s.judged {
		return ""
	}
	who, why := r.who(s.credential)
	if why == "" {
		s.identity.Store(who)
		s.judged = r
	}
	return why
}

// stay registers a call that may last with the store, until leave, so that recheck can end it. The
// context that it returns is cancelled when the call has to end.
func (s *session) stay(ctx context.Context) context.Context {
	s.gone = make(chan struct{})
	ctx, s.cancel = context.WithCancelCause(ctx)
	if jwt := s.credential.jwt; jwt != nil {
		s.expired = make(chan struct{})
		left := time.Until(jwt.Expiry)
		s.expiry = []*time.Timer{
			time.AfterFunc(left, func() { close(s.expired) }),
			time.AfterFunc(left+s.store.options.Drain, func() { s.end(errExpired) }),
		}
	}
	s.store.tracking.Lock()
	s.store.open[s] = struct{}{}
	s.store.tracking.Unlock()
	if s.store.current.Load() != s.judged || s.credential.jwt != nil {
		s.recheck() // a change since enter may not have found it
	}
	return ctx
}

// leave unregisters a call that stay registered.
func (s *session) leave() {
	s.store.tracking.Lock()
	delete(s.store.open, s)
	s.store.tracking.Unlock()
	for _, timer := range s.expiry {
		timer.Stop()
	}
	s.cancel(context.Canceled)
}

// recheck judges the credential by the access file in force now, and ends the call if it has lost a right.
func (s *session) recheck() {
	was := s.identity.Load()
	now, why := s.store.current.Load().who(s.credential)
	if why != "" || now.name != was.name {
		s.end(errUnauthenticated)
		return
	}
	s.identity.Store(now)
	if was.meets(s.need) && !now.meets(s.need) {
		s.end(errNotAllowed("do this"))
		return
	}
	if model := s.model.Load(); model != nil && !now.MayUse(*model) && was.MayUse(*model) {
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
	case <-s.gone: // never ready if nil
		return s.err
	default:
		return nil
	}
}

func (s *Store) refused(ctx context.Context, at origin, why string) {
	if s.options.Refused != nil {
		s.options.Refused(ctx, Refusal{Why: why, What: at.what, From: at.from, Who: FromContext(ctx).Name()})
	}
}
