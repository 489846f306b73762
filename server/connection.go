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

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/tlsfiles"
)

// connections wraps a server's credentials so that every call can find its connection.
type connections struct {
	credentials.TransportCredentials
	stall   time.Duration // how long a client may read no reply
	metrics *metrics.Metrics
	log     *zap.Logger
	budget  *budget
}

// ServerHandshake implements credentials.TransportCredentials.
func (c connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	known := &connection{Conn: conn, of: c, inProcess: tlsfiles.IsInProcess(info)}
	if !known.inProcess {
		known.line = c.budget.open(known.hangUp)
	}
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
	inProcess bool         // it carries the calls of all HTTP connections
	line      *line        // nil within the process
	moves     atomic.Int64 // replies, and parts of replies, that were written, those of streams included

	mu     sync.Mutex
	unread map[*slot]struct{}
	timer  *time.Timer // calls look while there are unread replies; nil otherwise
	seen   int64       // moves at the last look
	quiet  int         // successive looks that saw no move
}

// quietLooks is how many successive looks without a move close a connection. So many looks take as
// long as a client may read no reply.
const quietLooks = 8

// lineOf returns the line of a call that came by a connection of its own, and nil for any other.
func lineOf(ctx context.Context) *line {
	if c := connectionOf(ctx); c != nil {
		return c.line
	}
	return nil
}

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
	c.of.log.Warn("a connection was closed: its client has read none of its replies to unary calls for too long",
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
		s.End(s.bytes)
	}
	c.line.close()
	return err
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.line.received(n)
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
