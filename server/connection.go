package server

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/certs"
	"github.com/ckd-project/ckd/internal/wire"
)

// place is a unary call's share of max-calls and of its identity's calls. The call's
// stream, its handler and its reply each hold it, and it comes back when the last lets
// go: the transport keeps a reply for as long as its client does not read it.
type place struct {
	server  *Server
	who     *access.Identity
	stream  context.Context // of the transport: done when the call is answered, or its stream is closed
	conn    *connection     // nil: unknown
	holders atomic.Int32

	reply atomic.Int32 // one of noReply, unreadReply and endedReply
	bytes int64        // of the reply, once it is unread
}

// States of the reply of a place.
const (
	noReply int32 = iota
	unreadReply
	endedReply
)

type placeKey struct{}

// takePlace gives a unary call its place, until its stream ends, or refuses it. It may
// take as long as limit.
func (s *Server) takePlace(ctx context.Context, who *access.Identity, limit time.Duration) (context.Context, error) {
	if !who.AcquireCall() {
		return ctx, s.overloaded("calls under way of "+who.Name(), int64(who.Calls())+1, int64(who.Calls()))
	}
	if is, most := s.calls.Add(1), int64(s.limits.Calls); is > most {
		s.calls.Add(-1)
		who.ReleaseCall()
		return ctx, s.overloaded("calls under way", is, most)
	}
	p := &place{server: s, who: who, stream: ctx, conn: connectionOf(ctx)}
	p.holders.Store(1)
	ctx, cancel := context.WithTimeout(ctx, limit)
	context.AfterFunc(ctx, func() { // gRPC ends it with the call
		cancel()
		p.drop()
	})
	return context.WithValue(ctx, placeKey{}, p), nil
}

// hold adds a holder, unless the place has been given back.
func (p *place) hold() bool {
	for {
		n := p.holders.Load()
		if n == 0 {
			return false
		}
		if p.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop takes a holder away, and gives the place back with the last.
func (p *place) drop() {
	if p.holders.Add(-1) == 0 {
		p.server.calls.Add(-1)
		p.who.ReleaseCall()
	}
}

// Begin implements wire.Sending: the reply takes its place over from the handler.
func (p *place) Begin(bytes int) {
	p.bytes = int64(bytes)
	p.server.openBytes.Add(p.bytes)
	p.server.unread.Add(1)
	p.reply.Store(unreadReply)
	p.conn.add(p)
}

// Moved implements wire.Sending.
func (p *place) Moved() { p.conn.moved() }

// Gone implements wire.Sending. A deadline alone does not tell: gRPC may have answered
// just before it.
func (p *place) Gone() bool { return errors.Is(p.stream.Err(), context.Canceled) }

// End implements wire.Sending. Whatever tells first that the transport does not hold
// the reply any more calls it: its last buffer, or the end of its connection.
func (p *place) End() {
	was := p.reply.Swap(endedReply)
	if was == endedReply {
		return
	}
	if was == unreadReply {
		p.conn.remove(p)
		p.server.openBytes.Add(-p.bytes)
		p.server.unread.Add(-1)
	}
	p.drop()
}

// placed is a handler whose call keeps its place until its reply is sent. Replies are
// not compressed: the transport would hold buffers that nobody counts.
func placed(handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		p, ok := ctx.Value(placeKey{}).(*place)
		if !ok {
			return handler(srv, ctx, read, intercept) // a probe
		}
		if !p.hold() {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
		if ok && stream.RecvCompress() != "" {
			if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
				p.drop()
				return nil, err
			}
		}
		sent := false
		defer func() {
			if !sent {
				p.drop()
			}
		}()
		reply, err := handler(srv, ctx, read, intercept)
		if err != nil {
			return nil, err
		}
		sent = true
		return wire.Track(reply, p), nil
	}
}

// connection knows which of its replies are unread, and closes where none of them has
// moved for too long.
type connection struct {
	net.Conn
	server *Server
	moves  atomic.Int64 // counts replies and parts of them that moved, those of streams too

	mu     sync.Mutex
	unread map[*place]struct{}
	timer  *time.Timer // calls look while there are unread replies; nil otherwise
	seen   int64       // moves at the last look
	quiet  int         // looks in a row that saw no move
}

// quietLooks in a row, of as many to a send-stall-timeout, close a connection.
const quietLooks = 8

// connectionOf a call; nil where it is not known.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(certs.Connected); ok {
			c, _ := info.Conn.(*connection)
			return c
		}
	}
	return nil
}

// moved notes that a reply, or a part of one, was sent.
func (c *connection) moved() {
	if c != nil {
		c.moves.Add(1)
	}
}

func (c *connection) add(p *place) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread == nil {
		c.unread = map[*place]struct{}{}
	}
	if len(c.unread) == 0 {
		c.moves.Add(1) // what was unread before is no part of this
	}
	c.unread[p] = struct{}{}
	if c.timer == nil {
		c.seen, c.quiet = c.moves.Load(), 0
		c.timer = time.AfterFunc(c.period(), c.look)
	}
}

func (c *connection) remove(p *place) {
	if c == nil {
		return
	}
	c.moves.Add(1)
	c.mu.Lock()
	delete(c.unread, p)
	c.mu.Unlock()
}

func (c *connection) period() time.Duration {
	return max(c.server.limits.SendStall/quietLooks, time.Millisecond)
}

// look closes the connection if none of its unread replies has moved for long. It
// counts looks and not the time, so that a process that was suspended closes nothing.
func (c *connection) look() {
	c.mu.Lock()
	if len(c.unread) == 0 {
		c.timer = nil
		c.mu.Unlock()
		return
	}
	if moves := c.moves.Load(); moves != c.seen {
		c.seen, c.quiet = moves, 0
	} else {
		c.quiet++
	}
	if c.quiet < quietLooks {
		c.timer.Reset(c.period())
		c.mu.Unlock()
		return
	}
	c.timer = nil
	replies, bytes, who := len(c.unread), int64(0), map[string]bool{}
	for p := range c.unread {
		bytes += p.bytes
		who[p.who.Name()] = true
	}
	c.mu.Unlock()
	c.server.metrics.ConnectionStalled()
	c.server.log.Warn("a connection was closed: its client has read none of its replies to unary calls for send-stall-timeout",
		zap.String("peer", c.RemoteAddr().String()), zap.Int("replies", replies), zap.Int64("bytes", bytes),
		zap.String("identities", strings.Join(slices.Sorted(maps.Keys(who)), " ")), zap.Duration("send_stall_timeout", c.server.limits.SendStall))
	_ = c.Close() // nothing more can be done about it
}

// Close implements net.Conn. The transport, which closes every connection, forgets what
// it has not sent.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	lost := c.unread
	c.unread = nil
	c.mu.Unlock()
	for p := range lost {
		p.End()
	}
	return err
}

// SyscallConn implements syscall.Conn, for channelz.
func (c *connection) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// connections makes every connection known to its calls.
type connections struct {
	credentials.TransportCredentials
	server *Server
}

// ServerHandshake implements credentials.TransportCredentials.
func (c connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	known := &connection{Conn: conn, server: c.server}
	return known, certs.Connected{AuthInfo: info, Conn: known}, nil
}

// Clone implements credentials.TransportCredentials.
func (c connections) Clone() credentials.TransportCredentials {
	return connections{c.TransportCredentials.Clone(), c.server}
}
