package server

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
)

// HTTPConnections charges what comes over HTTP to the HTTP connection that it came by. All such
// calls share one connection inside the process, on which they name theirs.
type HTTPConnections struct {
	budget *budget
	log    *zap.Logger
	last   atomic.Uint64 // number of the latest connection
	open   sync.Map      // *httpConnection by number
}

// httpConnection is a connection of an HTTP server.
type httpConnection struct {
	number string
	line   *line
}

// httpKey is the context key of the httpConnection of a request.
type httpKey struct{}

// connectionKey is the metadata key of the number of a call's HTTP connection. It is only read from
// the connection inside the process.
const connectionKey = "ckd-connection"

// HTTPConnections returns the connections of the HTTP servers whose requests become calls of s.
func (s *Server) HTTPConnections() *HTTPConnections { return s.admission.http }

// Follow has s tell of its connections. Call it before s serves, and after its hook ConnState is set,
// which is called too.
func (h *HTTPConnections) Follow(s *http.Server) {
	state := s.ConnState
	var open sync.Map // *httpConnection by net.Conn
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		one := h.begin(c)
		open.Store(c, one)
		return context.WithValue(ctx, httpKey{}, one)
	}
	s.ConnState = func(c net.Conn, is http.ConnState) {
		if state != nil {
			state(c, is)
		}
		if is == http.StateClosed || is == http.StateHijacked {
			if one, ok := open.LoadAndDelete(c); ok {
				h.end(one.(*httpConnection))
			}
		}
	}
}

func (h *HTTPConnections) begin(c net.Conn) *httpConnection {
	httpConn := &httpConnection{number: strconv.FormatUint(h.last.Add(1), 10)}
	peer := c.RemoteAddr().String()
	httpConn.line = h.budget.open(func(cause string) {
		h.log.Warn("an HTTP connection was ended: "+cause, zap.String("peer", peer))
		_ = c.Close() // nothing more can be done about it
	})
	h.open.Store(httpConn.number, httpConn)
	return httpConn
}

func (h *HTTPConnections) end(one *httpConnection) {
	h.open.Delete(one.number)
	one.line.close()
}

// account returns the account of an identity's calls over the HTTP connection that a call names.
func (h *HTTPConnections) account(ctx context.Context, who *auth.Identity) (*account, error) {
	number := metadata.ValueFromIncomingContext(ctx, connectionKey)
	if len(number) == 0 {
		return h.budget.shared, nil // a call of the process itself
	}
	entry, ok := h.open.Load(number[0])
	if !ok {
		return nil, status.Error(codes.Canceled, "the HTTP connection has ended")
	}
	return entry.(*httpConnection).line.account(who), nil
}

// Outgoing returns the context of a call over the connection inside the process, which names the HTTP
// connection that ctx is of.
func (*HTTPConnections) Outgoing(ctx context.Context) context.Context {
	if one, ok := ctx.Value(httpKey{}).(*httpConnection); ok {
		return metadata.AppendToOutgoingContext(ctx, connectionKey, one.number)
	}
	return ctx
}

// Holder charges bytes that a request over HTTP makes the daemon hold outside of calls.
type Holder struct{ account *account }

// HolderOf returns who holds the bytes of the request that a context belongs to.
func (h *HTTPConnections) HolderOf(ctx context.Context) Holder {
	if one, ok := ctx.Value(httpKey{}).(*httpConnection); ok {
		return Holder{one.line.account(auth.FromContext(ctx))}
	}
	return Holder{h.budget.shared}
}

// Reserve charges bytes, or returns the status that refuses them.
func (h Holder) Reserve(bytes int64) error {
	if err := h.account.claim("body", bytes); err != nil {
		return statusOf(err, location{}).Err()
	}
	return nil
}

// Add charges bytes even if there is no room for them.
func (h Holder) Add(bytes int64) { h.account.Add(bytes) }

// Release gives back bytes that were reserved or added.
func (h Holder) Release(bytes int64) { h.account.release(bytes) }
