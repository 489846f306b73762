package auth

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ckd-project/ckd/internal/tlsfiles"
)

// identityKey is the metadata key that passes an identity on within the process. It is removed from
// the calls of any other peer.
const identityKey = "ckd-identity"

// openMethods lists the methods that need no identity, because probes have no credential. A watch
// of the health lasts as long as its client likes, so it needs one.
var openMethods = map[string]bool{
	"/grpc.health.v1.Health/Check":                true,
	"/grpc.health.v1.Health/List":                 true,
	"/inference.GRPCInferenceService/ServerLive":  true,
	"/inference.GRPCInferenceService/ServerReady": true,
}

// Unary is a grpc.UnaryServerInterceptor that lets in the calls of identities that are still known when
// their request has arrived. It needs Tap before it. A nil Store lets every caller in.
func (s *Store) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s == nil {
		return handler(ctx, req)
	}
	ctx, _, err := s.admit(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is Unary for streams. When
// a stream's credential or right is withdrawn, its context is cancelled and it carries no more messages.
// A handler that waits for its client should watch Gone.
func (s *Store) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s == nil {
		return handler(srv, stream)
	}
	ctx, call, err := s.admit(stream.Context())
	if err != nil {
		return err
	}
	if call.open {
		return handler(srv, &guardedStream{stream, ctx, call})
	}
	ctx = call.stay(ctx)
	defer call.leave()
	err = handler(srv, &guardedStream{stream, ctx, call})
	if ended := call.ended(); err != nil && ended != nil {
		return ended
	}
	return err
}

// Tap lets in a call or refuses it with a status, before any of its request is read, so that unknown
// callers cannot make the daemon hold requests. It is for grpc.InTapHandle, before the tap that counts
// calls. It returns the context by which Unary and Stream know who calls, and the identity; that of a
// nil Store is nil.
func (s *Store) Tap(ctx context.Context, method string) (context.Context, *Identity, error) {
	if s == nil {
		return ctx, nil, nil
	}
	c, isOpen, why := identify(ctx, method)
	if isOpen {
		ctx, opened := s.enterAsNobody(ctx)
		return ctx, opened.identity.Load(), nil
	}
	from := origin{what: method}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from.from = p.Addr.String()
	}
	if why == "" {
		var opened *session
		if ctx, opened, why = s.enter(ctx, from, c, NeedIdentity); why == "" {
			return ctx, opened.identity.Load(), nil
		}
	}
	s.refused(ctx, from, why)
	return ctx, nil, unauthenticated(why)
}

// admit returns the session of a call that Tap let in, or the status to refuse it with. A call that Tap
// did not see is refused.
func (s *Store) admit(ctx context.Context) (context.Context, *session, error) {
	call := sessionOf(ctx)
	if call == &unchecked {
		return ctx, nil, errUnauthenticated
	}
	if why := call.renew(); why != "" {
		s.refused(ctx, call.origin, why)
		return ctx, nil, unauthenticated(why)
	}
	if call.credential.passedOn == "" {
		ctx = withoutIdentity(ctx)
	}
	return ctx, call, nil
}

// identify returns the credential of a call, or the reason to refuse it. A method that is open to all
// needs none.
func identify(ctx context.Context, method string) (c credential, isOpen bool, why string) {
	if openMethods[method] {
		return c, true, ""
	}
	var auth credentials.AuthInfo
	if p, ok := peer.FromContext(ctx); ok {
		auth = tlsfiles.InfoOf(p.AuthInfo)
	}
	if !tlsfiles.IsInProcess(auth) {
		info, _ := auth.(credentials.TLSInfo)
		c, why = presented(metadata.ValueFromIncomingContext(ctx, "authorization"), &info.State)
		return c, false, why
	}
	switch passedOn := metadata.ValueFromIncomingContext(ctx, identityKey); {
	case len(passedOn) == 0:
		return c, false, ""
	case len(passedOn) > 1 || passedOn[0] == "":
		return c, false, badCredential
	default:
		c.passedOn = passedOn[0]
		return c, false, ""
	}
}

// withoutIdentity removes from a context the metadata that only the process itself may set.
func withoutIdentity(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, identityKey)) == 0 {
		return ctx
	}
	sent, _ := metadata.FromIncomingContext(ctx) // a copy
	sent.Delete(identityKey)
	return metadata.NewIncomingContext(ctx, sent)
}

// guardedStream carries messages until its session ends.
type guardedStream struct {
	grpc.ServerStream
	ctx     context.Context
	session *session
}

func (g *guardedStream) Context() context.Context { return g.ctx }

func (g *guardedStream) RecvMsg(to any) error {
	err := g.ServerStream.RecvMsg(to)
	if ended := g.session.ended(); ended != nil {
		return ended
	}
	return err
}

func (g *guardedStream) SendMsg(from any) error {
	if ended := g.session.ended(); ended != nil {
		return ended
	}
	return g.ServerStream.SendMsg(from)
}

// Outgoing passes the identity of ctx on to a call over the in-process connection. It replaces any
// other identity in the metadata.
func Outgoing(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	md.Delete(identityKey)
	if name := FromContext(ctx).Name(); name != "" {
		md.Set(identityKey, name)
	}
	return metadata.NewOutgoingContext(ctx, md)
}
