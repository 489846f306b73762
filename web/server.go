package web

import (
	"context"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/web/gateway"
)

// Server serves one HTTP address.
type Server struct {
	URL   string       // the address as clients ask for it
	Serve func() error // serves until Shutdown, and then returns http.ErrServerClosed

	server *http.Server
}

// NewServer returns a server that serves s at l. It speaks TLS if s has a TLSConfig, which
// must bring the certificates.
func NewServer(s *http.Server, l net.Listener) *Server {
	if s.TLSConfig != nil {
		return &Server{"https://" + l.Addr().String(), func() error { return s.ServeTLS(l, "", "") }, s}
	}
	return &Server{"http://" + l.Addr().String(), func() error { return s.Serve(l) }, s}
}

// Shutdown closes the address. Requests that are under way may finish until ctx ends.
func (s *Server) Shutdown(ctx context.Context) {
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close() // a request did not finish in time
	}
}

// NewHTTP returns an http.Server for a handler whose requests and answers are short, as
// those of the admin address are.
func NewHTTP(handler http.Handler, log *zap.Logger) *http.Server {
	return gateway.NewServer(handler, zap.NewStdLog(log), 10*time.Second, 110*time.Second)
}
