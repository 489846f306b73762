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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/server/internal/arriving"
	"github.com/ckd-project/ckd/server/internal/turns"
)

// connections wraps a server's credentials so that every call can find its connection.
type connections struct {
	credentials.TransportCredentials
	stall   time.Duration // how long a client may read no reply
	metrics *metrics.Metrics
	log     *zap.Logger
	budget  *budget
	network *turns.Network
}

// ServerHandshake implements credentials.TransportCredentials.
func (c connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	known := &connection{Conn: conn, of: c, inProcess: tlsfiles.IsInProcess(info)}
	known.accounts = accounts{budget: c.budget, peer: conn.RemoteAddr().String(), hangUp: known.hangUp}
	known.turns = c.network.NewConnection(known.inProcess)
	known.reading = turns.New(known.turns)
	known.frames = arriving.NewFrames(known.arrived)
	return known, tlsfiles.Connected{AuthInfo: info, Conn: known}, nil
}

// Clone implements credentials.TransportCredentials.
func (c connections) Clone() credentials.TransportCredentials {
	c.TransportCredentials = c.TransportCredentials.Clone()
	return c
}

// connection knows which replies to unary calls its client has not read, and closes when none
// of them has moved for too long.
type connection struct {
	net.Conn
	of        connections
	inProcess bool     // it carries the calls of all HTTP connections, and is never ended
	accounts  accounts // of the calls that it carries, unless it is the one in the process
	frames    *arriving.Frames
	unwhole   *account // charged with messages that are not whole; nil before the first
	turns     *turns.Connection
	reading   turns.Turn   // of the goroutine that reads
	ahead     []byte       // what was read and gRPC has not been given
	buffer    []byte       // that ahead is the end of
	light     bool         // what was read last was no more work than a piece
	moves     atomic.Int64 // replies, and parts of replies, that were written, those of streams included

	mu     sync.Mutex
	unread map[*slot]struct{}
	timer  *time.Timer // calls look while there are unread replies; nil otherwise
	seen   int64       // moves at the last look
	quiet  int         // successive looks that saw no move
}

// quietLooks successive looks without a move close a connection. There are as many to a
// send-stall-timeout.
const quietLooks = 8

// connectionOf returns the connection of a call, or nil if it is unknown.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(tlsfiles.Connected); ok {
			c, _ := info.Conn.(*connection)
			return c
		}
	}
	return nil
}

// moved notes that a reply, or a part of one, was written.
func (c *connection) moved() {
	if c != nil {
		c.moves.Add(1)
	}
}

// add begins to watch over an unread reply.
func (c *connection) add(s *slot) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread == nil {
		c.unread = map[*slot]struct{}{}
	}
	if len(c.unread) == 0 {
		c.moves.Add(1) // the time before had nothing to read
	}
	c.unread[s] = struct{}{}
	if c.timer == nil {
		c.seen, c.quiet = c.moves.Load(), 0
		c.timer = time.AfterFunc(c.period(), c.look)
	}
}

// remove ends what add began.
func (c *connection) remove(s *slot) {
	if c == nil {
		return
	}
	c.moves.Add(1)
	c.mu.Lock()
	delete(c.unread, s)
	c.mu.Unlock()
}

// period returns the time from look to look.
func (c *connection) period() time.Duration { return max(c.of.stall/quietLooks, time.Millisecond) }

// look closes the connection if none of its unread replies has moved for too long. It counts
// looks instead of time, so that a process that was suspended closes nothing.
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
	for s := range c.unread {
		bytes += s.bytes
		who[s.who.Name()] = true
	}
	c.mu.Unlock()
	c.of.metrics.ConnectionsEnded("unread", 1)
	c.of.log.Warn("a connection was closed: its client has read none of its replies to unary calls for send-stall-timeout",
		zap.String("peer", c.RemoteAddr().String()), zap.Int("replies", replies), zap.Int64("bytes", bytes),
		zap.String("identities", strings.Join(slices.Sorted(maps.Keys(who)), " ")), zap.Duration("send_stall_timeout", c.of.stall))
	_ = c.Close() // nothing more can be done about it
}

// Close implements net.Conn. The transport closes every connection, and forgets what it has
// not sent.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	lost := c.unread
	c.unread = nil
	c.mu.Unlock()
	for s := range lost {
		s.End()
	}
	c.frames.Close()
	c.accounts.close()
	return err
}

// arrived charges what has arrived of messages that are not whole, or gives it back. Nobody knows yet
// whose calls they are of, and so no identity is charged. c.frames calls it, once at a time.
func (c *connection) arrived(bytes int64) {
	if c.inProcess { // HTTP's bodies have been charged already, and it must not end
		c.of.budget.shared.Add(bytes)
		return
	}
	if c.unwhole == nil {
		c.unwhole = c.accounts.of(nil)
	}
	c.of.budget.arrive(c.unwhole, bytes)
}

// Read implements net.Conn. A client that sends without a pause must not keep a processor reading, nor
// begin calls by the hundred before others get their turn. So gRPC is given no more at once than it has
// a piece of work with.
func (c *connection) Read(p []byte) (int, error) {
	n, nanos := 0, int64(0)
	if len(c.ahead) > 0 {
		n, nanos = c.readAhead(p)
	} else {
		if !c.light {
			p = p[:min(len(p), mostBuffer)]
		}
		came, err := c.Conn.Read(p)
		if came == 0 || err != nil {
			return came, err
		}
		n, nanos = c.frames.Read(p[:came], turns.Piece)
		c.light = n == came
		c.keep(p[n:came])
	}
	c.turns.Read()
	if c.reading.Due(nanos) {
		turns.Yield()
	}
	return n, nil
}

// keep keeps what was read for the next Read. If it is more than mostBuffer it counts as arriving.
func (c *connection) keep(rest []byte) {
	if len(rest) == 0 {
		return
	}
	c.buffer = append(c.buffer[:0], rest...)
	c.ahead = c.buffer
	if len(rest) > mostBuffer {
		c.frames.Hold(int64(len(rest)))
	}
}

// readAhead reads what was kept.
func (c *connection) readAhead(p []byte) (n int, nanos int64) {
	n, nanos = c.frames.Read(c.ahead[:min(len(c.ahead), len(p))], turns.Piece)
	copy(p, c.ahead[:n])
	c.ahead = c.ahead[n:]
	if kept := len(c.buffer); len(c.ahead) == 0 && kept > mostBuffer {
		c.frames.Hold(-int64(kept))
		c.buffer = nil
	}
	return n, nanos
}

// mostBuffer is what every connection may keep of what it reads ahead. So that it is rarely more, no more
// is read at once until a read was little work.
const mostBuffer = 16 << 10

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.frames.Written(p[:n])
	}
	return n, err
}

// hangUp ends the connection, and its calls with it.
func (c *connection) hangUp(cause string) {
	c.of.log.Warn("a connection was ended: "+cause, zap.String("peer", c.RemoteAddr().String()))
	_ = c.Close() // nothing more can be done about it
}

// SyscallConn implements syscall.Conn.
func (c *connection) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
