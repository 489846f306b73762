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
	server   *http.Server
	listener net.Listener
	secure   bool // read from the TLSConfig once, which net/http sets while it serves
}

// NewServer returns a server that serves s at l. It speaks TLS if s has a TLSConfig, which
// must bring the certificates.
func NewServer(s *http.Server, l net.Listener) *Server {
	return &Server{server: s, listener: l, secure: s.TLSConfig != nil}
}

// URL returns the address as clients ask for it.
func (s *Server) URL() string {
	if s.secure {
		return "https://" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String()
}

// Serve serves until Shutdown, and then returns http.ErrServerClosed.
func (s *Server) Serve() error {
	if s.secure {
		return s.server.ServeTLS(s.listener, "", "")
	}
	return s.server.Serve(s.listener)
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
