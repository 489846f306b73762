package daemon

import (
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/server"
)

// rpc serves gRPC at any number of listeners, and ends the calls of all of them together.
type rpc struct {
	server   *server.Server
	log      *zap.Logger
	shutdown *shutdown

	stopping sync.Once
	drained  chan struct{} // closed when the calls have ended
}

func newRPC(s *server.Server, log *zap.Logger, end *shutdown) *rpc {
	return &rpc{server: s, log: log, shutdown: end, drained: make(chan struct{})}
}

// limits returns the limits of the settings in the server's terms.
func limits(c *config.Config) server.Limits {
	l := server.LimitsFor(c.MaxOpenBytes)
	l.MessageBytes = c.MaxMessageBytes
	l.Streams = c.MaxStreams
	l.InputIdle, l.StreamAge, l.DrainGrace = c.InputIdleTimeout, c.MaxStreamAge, c.ShutdownGrace
	return l
}

// serve serves calls at l until they have ended. It does not wait for peers in the midst of
// a handshake, as gRPC itself would.
func (r *rpc) serve(l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- r.server.GRPC().Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-r.drained:
		return nil
	}
}

// stop ends the calls at all listeners, once: as soon as none of ours is under way, or when
// the grace is over. It does not wait for connections that say nothing, nor for clients that
// watch the health.
func (r *rpc) stop() { r.stopping.Do(r.drain) }

func (r *rpc) drain() {
	defer close(r.drained)
	r.shutdown.begin()
	r.log.Info("stopping", zap.Duration("grace", r.shutdown.grace))
	r.server.Drain()
	graceful := make(chan struct{})
	go func() {
		r.server.GRPC().GracefulStop()
		close(graceful)
	}()
	if r.endsByItself(graceful) {
		return
	}
	stopped := make(chan struct{})
	go func() {
		r.server.GRPC().Stop()
		close(stopped)
	}()
	closesWithin(stopped, 500*time.Millisecond) // what is left has no call of ours
}

// endsByItself waits until no call of ours is under way, for as long as the grace lasts, and
// then ends those that are. It reports whether gRPC has stopped by then.
func (r *rpc) endsByItself(graceful <-chan struct{}) bool {
	grace := time.NewTimer(r.shutdown.grace)
	defer grace.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for idle := 0; idle < idleLooks; {
		select {
		case <-graceful:
			return true
		case <-grace.C:
			r.log.Warn("calls still open after the shutdown grace are ended")
			r.server.Kill()
			return closesWithin(graceful, trailerTime)
		case <-look.C:
			if idle++; !r.server.Idle() {
				idle = 0
			}
		}
	}
	return false
}

const (
	// idleLooks counts the looks in a row that must find no call. A call that came in just
	// before has begun by then, and the last answer has been sent.
	idleLooks = 5
	// trailerTime lets clients read, after the grace, why their streams were ended. Closing
	// the connections at once would tear that off.
	trailerTime = 500 * time.Millisecond
)
