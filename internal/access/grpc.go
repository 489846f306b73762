package access

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ckd-project/ckd/internal/certs"
)

// identityKey is the metadata key by which an identity is passed on within the
// process. From any other peer it is taken away.
const identityKey = "ckd-identity"

// openMethods are the methods that need no identity. A probe has no credential; a
// watch of the health lasts as long as its client likes, and needs one.
var openMethods = map[string]bool{
	"/grpc.health.v1.Health/Check":                true,
	"/grpc.health.v1.Health/List":                 true,
	"/inference.GRPCInferenceService/ServerLive":  true,
	"/inference.GRPCInferenceService/ServerReady": true,
}

// channelzService tells of everybody's connections.
const channelzService = "/grpc.channelz.v1.Channelz/"

// Unary lets in the calls of those who are known. It passes all where s is nil.
func (s *Store) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if s == nil {
		return handler(ctx, req)
	}
	ctx, _, err := s.admit(ctx, info.FullMethod, false)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is Unary for streams. Their context is cancelled, and no message goes
// either way any more, when what let them in is withdrawn. A handler that waits for
// its client, or knows a way round the interceptors, should mind Gone itself.
func (s *Store) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s == nil {
		return handler(srv, stream)
	}
	ctx, one, err := s.admit(stream.Context(), info.FullMethod, true)
	if err != nil {
		return err
	}
	if one == nil {
		return handler(srv, &guardedStream{ServerStream: stream, ctx: ctx})
	}
	defer one.leave()
	err = handler(srv, &guardedStream{stream, ctx, one})
	if ended := one.ended(); err != nil && ended != nil {
		return ended
	}
	return err
}

// Tap refuses the calls of those who are not known before any of a request is
// read, so that they cannot make the daemon hold it, and is who calls otherwise. It
// is for grpc.InTapHandle, and comes before whatever counts calls. Unary and Stream
// are needed as well. Everybody is nil where s is nil.
func (s *Store) Tap(ctx context.Context, method string) (*Identity, error) {
	if s == nil {
		return nil, nil
	}
	c, isOpen, why := identify(ctx, method)
	if isOpen {
		return nobody, nil
	}
	who := nobody
	if why == "" {
		who, why = s.who(s.current.Load(), c)
	}
	if why != "" {
		s.refused(ctx, placeOf(ctx, method), why)
		return nil, errUnauthenticated
	}
	return who, nil
}

// placeOf a gRPC call.
func placeOf(ctx context.Context, method string) place {
	at := place{what: method}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		at.from = p.Addr.String()
	}
	return at
}

// admit a call, or say with which status it is refused. The session is nil for a
// call that is open to all.
func (s *Store) admit(ctx context.Context, method string, lasting bool) (context.Context, *session, error) {
	c, isOpen, why := identify(ctx, method)
	if c.passedOn == "" {
		ctx = withoutIdentity(ctx)
	}
	if isOpen {
		return s.enterAsNobody(ctx), nil, nil
	}
	at := placeOf(ctx, method)
	if why == "" {
		var one *session
		if ctx, one, why = s.enter(ctx, at, c, NeedIdentity, lasting); why == "" {
			if strings.HasPrefix(method, channelzService) && !one.identity.Load().MayAdmin() {
				one.leave()
				s.refused(ctx, at, NotAllowed)
				return ctx, nil, errNotAllowed("look into connections")
			}
			return ctx, one, nil
		}
	}
	s.refused(ctx, at, why)
	return ctx, nil, errUnauthenticated
}

// identify what a call is known by, or what is wrong with that. Calls that are
// open need nothing.
func identify(ctx context.Context, method string) (c credential, isOpen bool, why Reason) {
	if openMethods[method] {
		return c, true, ""
	}
	var auth credentials.AuthInfo
	if p, ok := peer.FromContext(ctx); ok {
		auth = certs.InfoOf(p.AuthInfo)
	}
	if !certs.IsInProcess(auth) {
		info, _ := auth.(credentials.TLSInfo)
		c, why = presented(metadata.ValueFromIncomingContext(ctx, "authorization"), &info.State)
		return c, false, why
	}
	switch passedOn := metadata.ValueFromIncomingContext(ctx, identityKey); {
	case len(passedOn) == 0:
		return c, false, ""
	case len(passedOn) > 1 || passedOn[0] == "":
		return c, false, BadCredential
	default:
		c.passedOn = passedOn[0]
		return c, false, ""
	}
}

// withoutIdentity is the context without what only the process itself may say.
func withoutIdentity(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, identityKey)) == 0 {
		return ctx
	}
	sent, _ := metadata.FromIncomingContext(ctx) // a copy
	sent.Delete(identityKey)
	return metadata.NewIncomingContext(ctx, sent)
}

// guardedStream ends with its session.
type guardedStream struct {
	grpc.ServerStream
	ctx     context.Context
	session *session // nil where it is open to all
}

func (g *guardedStream) Context() context.Context { return g.ctx }

func (g *guardedStream) RecvMsg(to any) error {
	err := g.ServerStream.RecvMsg(to)
	if ended := g.ended(); ended != nil {
		return ended
	}
	return err
}

func (g *guardedStream) SendMsg(from any) error {
	if ended := g.ended(); ended != nil {
		return ended
	}
	return g.ServerStream.SendMsg(from)
}

func (g *guardedStream) ended() error {
	if g.session == nil {
		return nil
	}
	return g.session.ended()
}

// Outgoing passes the identity of ctx on to a call over the in-process connection.
// Whatever else claims to be one is replaced.
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

// OutgoingOptions have every call of a connection go through Outgoing, as the last
// thing that happens to its context.
func OutgoingOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(Outgoing(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(Outgoing(ctx), desc, cc, method, opts...)
		}),
	}
}
