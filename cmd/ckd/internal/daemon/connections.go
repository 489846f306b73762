package daemon

import (
	"cmp"
	"container/list"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/metrics"
)

// connectionLimit bounds the connections of clients, over gRPC and HTTP together. A connection
// beyond the limit is closed at once.
type connectionLimit struct {
	all, perAddress int                // 0 means no limit
	refused         func(limit string) // is called with "all" or "address"

	mu        sync.Mutex
	open      int
	byAddress map[string]int
}

func newConnectionLimit(c *config.Config, m *metrics.Metrics) *connectionLimit {
	l := &connectionLimit{
		all: cmp.Or(c.MaxConnections, defaultConnections()), perAddress: c.MaxConnectionsPerAddress,
		refused: func(limit string) { m.Refused("connections", limit) }, byAddress: map[string]int{},
	}
	m.ReadUse(l.inUse)
	return l
}

// inUse returns how many connections clients have open, beside the limit.
func (c *connectionLimit) inUse() []metrics.Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []metrics.Use{{Resource: "connections", InUse: int64(c.open), Limit: int64(c.all)}}
}

const (
	// reservedDescriptors is left of the limit on open files for the admin address, for files, and for
	// connections that the daemon makes.
	reservedDescriptors = 128
	// mostConnections bounds the default, since a connection takes up to 192 KiB too.
	mostConnections = 1024
)

// defaultConnections returns how many connections the process's limit on open files leaves room for.
func defaultConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return connectionsFor(files.Cur)
}

func connectionsFor(files uint64) int {
	return int(min(max(files, 2*reservedDescriptors)-reservedDescriptors, mostConnections))
}

// guard returns l, whose connections count from now on.
func (c *connectionLimit) guard(l net.Listener) net.Listener { return &limitedListener{l, c} }

// enter counts a connection from an address, or returns the limit that it exceeds. Addresses that
// are not of IP, such as unix sockets, have no limit of their own.
func (c *connectionLimit) enter(address string) (limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all > 0 && c.open >= c.all:
		return "all"
	case c.perAddress > 0 && address != "" && c.byAddress[address] >= c.perAddress:
		return "address"
	}
	c.open++
	if c.perAddress > 0 && address != "" {
		c.byAddress[address]++
	}
	return ""
}

// leave counts the end of a connection.
func (c *connectionLimit) leave(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if n := c.byAddress[address]; n > 1 {
		c.byAddress[address] = n - 1
	} else {
		delete(c.byAddress, address)
	}
}

type limitedListener struct {
	net.Listener
	limit *connectionLimit
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // empty for a unix socket
		if limit := l.limit.enter(address); limit != "" {
			_ = conn.Close() // nothing was said
			l.limit.refused(limit)
			continue
		}
		return &limitedConn{Conn: conn, left: sync.OnceFunc(func() { l.limit.leave(address) })}, nil
	}
}

// limitedConn counts until it is closed. It forwards the methods of socket connections that servers use.
type limitedConn struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn.
func (c *limitedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends the server's direction. net/http calls it before it closes a connection that still
// receives.
func (c *limitedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// adminConnections bounds the open connections of the admin address. Files, and connections that the
// daemon makes, have the other half of the reserved descriptors.
const adminConnections = reservedDescriptors / 2

// liveliest keeps a number of connections of a listener. One that comes when there are as many closes
// the one that has been answered nothing for longest, so that a probe is answered although others leave
// connections open.
type liveliest struct {
	net.Listener
	most int

	mu   sync.Mutex
	open list.List // of *livelyConn, the quietest first
}

// Accept implements net.Listener.
func (l *liveliest) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &livelyConn{listener: l}
	l.mu.Lock()
	place := l.open.PushBack(c)
	c.place = place
	c.limitedConn = limitedConn{Conn: conn, left: sync.OnceFunc(func() {
		l.mu.Lock()
		l.open.Remove(place)
		l.mu.Unlock()
	})}
	var quietest *livelyConn
	if l.open.Len() > l.most {
		quietest = l.open.Front().Value.(*livelyConn)
	}
	l.mu.Unlock()
	if quietest != nil {
		_ = quietest.Close() // its server sees the end
	}
	return c, nil
}

// livelyConn tells its listener of every answer, so that the listener knows which connection has been
// silent for longest.
type livelyConn struct {
	limitedConn
	listener *liveliest
	place    *list.Element
}

// Write implements net.Conn.
func (c *livelyConn) Write(p []byte) (int, error) {
	c.listener.mu.Lock()
	c.listener.open.MoveToBack(c.place) // nothing, if the connection has been closed
	c.listener.mu.Unlock()
	return c.Conn.Write(p)
}
