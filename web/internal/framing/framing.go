package framing

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// Guard makes s close a connection after a request that states its length twice, as Content-Length
// and as Transfer-Encoding, and returns the listener that s must serve.
//
// A proxy in front of s that goes by Content-Length takes the rest of such a request for another
// one (RFC 9112, section 6.1). net/http goes by Transfer-Encoding, as it should, and deletes the
// other header, so Guard looks at the bytes of connections. It cannot see bytes that TLS encrypts:
// there, every request that might have had both headers ends its connection.
func Guard(s *http.Server, l net.Listener) net.Listener {
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			c, _ := r.Context().Value(connKey{}).(*conn)
			if c.dropped(r) && mayStateTwo(r) {
				w.Header().Set("Connection", "close")
			}
		}
		next.ServeHTTP(w, r)
	})
	s.DisableGeneralOptionsHandler = true // net/http would answer OPTIONS * itself
	if s.TLSConfig != nil {
		return l
	}
	also := s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if also != nil {
			ctx = also(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	return listener{l}
}

type connKey struct{}

// mayStateTwo reports whether net/http would have dropped a second length of the request. It
// ignores Transfer-Encoding with HTTP/1.0.
func mayStateTwo(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) && r.ContentLength > 0
}

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn counts the lines that begin like a header that states a length. Lines of a body, or of a
// request sent ahead, count too: then a connection is closed that could have stayed open.
type conn struct {
	net.Conn
	stated atomic.Int64
	known  int64 // such lines in requests; only their handlers use it, one at a time

	start [len("transfer-encoding")]byte // the first bytes of the current line
	n     int                            // bytes in start; -1 once the line cannot be such a header
}

// dropped reports whether a header that states a length has come and belongs to no request up to r.
// It returns true for a nil conn, whose bytes cannot be seen.
func (c *conn) dropped(r *http.Request) bool {
	if c == nil {
		return true
	}
	c.known += int64(len(r.Header["Content-Length"]) + len(r.TransferEncoding))
	return c.stated.Load() > c.known
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.scan(p[:n])
	return n, err
}

// scan counts the headers in the next bytes of the connection.
func (c *conn) scan(p []byte) {
	for len(p) > 0 {
		if c.n < 0 {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return
			}
			p, c.n = p[end+1:], 0
			continue
		}
		b := p[0]
		p = p[1:]
		switch {
		case b == '\n':
			c.n = 0
		case b == ':':
			if name := c.start[:c.n]; bytes.EqualFold(name, []byte("Content-Length")) || bytes.EqualFold(name, []byte("Transfer-Encoding")) {
				c.stated.Add(1)
			}
			c.n = -1
		case c.n == len(c.start):
			c.n = -1
		default:
			c.start[c.n] = b
			c.n++
		}
	}
}

// CloseWrite ends what the server sends. net/http calls it before it closes a connection that still
// receives.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
