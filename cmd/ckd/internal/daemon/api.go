package daemon

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/web/gateway"
)

// api serves the API over HTTP: its requests become calls of the daemon's own gRPC server,
// over a connection inside the process.
type api struct {
	pipe   net.Listener // where the gRPC server takes these calls
	conn   *grpc.ClientConn
	server *http.Server
}

func newAPI(c *config.Config, s *server.Server, security *security, m *metrics.Metrics, refusals *server.Refusals, log *zap.Logger) (*api, error) {
	connections := s.HTTPConnections()
	pipe, conn, err := gateway.Pipe(func(ctx context.Context) context.Context { return connections.Outgoing(auth.Outgoing(ctx)) })
	if err != nil {
		return nil, err
	}
	l := limits(c)
	handler := gateway.New(conn, gateway.Options{
		MessageBytes: s.MessageBytes,
		Holder:       func(ctx context.Context) gateway.Holder { return connections.HolderOf(ctx) },
		Access:       security.access, Stopping: s.Stopping, Tensor: s.Tensor, NoLedger: withoutLedger(c),
		Refused: func(code int, requestID string) { // the log has none of the client's words
			m.Refused("http", strconv.Itoa(code))
			refusals.HTTP(code, zap.String("request_id", requestID))
		},
	})
	a := &api{pipe: pipe, conn: conn, server: gateway.NewServer(handler, zap.NewStdLog(log), l.FirstMessage, l.CallTime+l.SendStall)}
	if certs := security.certificates; certs != nil {
		a.server.TLSConfig, a.server.ConnState = certs.TLSConfig(), certs.ConnState
	}
	a.server.IdleTimeout = l.ConnectionIdle
	connections.Follow(a.server)
	return a, nil
}

// withoutLedger says where to ask about outcomes where this daemon cannot answer; empty where it can.
func withoutLedger(c *config.Config) string {
	switch {
	case c.Ledger != "":
		return ""
	case c.LedgerAt != "":
		return "this daemon keeps no ledger of outcomes: ask the one at " + c.LedgerAt + ", where it is kept"
	}
	return "this daemon keeps no ledger of outcomes: ask one that was started with --ledger"
}

// close closes the connection inside the process, when all calls are over.
func (a *api) close() {
	if a != nil {
		_ = a.conn.Close()
		_ = a.pipe.Close()
	}
}
