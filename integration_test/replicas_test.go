package integration_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestRollingRestart stops and restarts one replica after the other under load, and kills the last. No input may
// be lost or counted twice: of the killed one alone, those on a stream that does not reconnect. Streams grow
// old, so each new replica must get sessions. Prometheus must sum up what the replicas answered.
func TestRollingRestart(t *testing.T) {
	timed.Long(t)
	f := startFleet(t, policyText, "--max-stream-age", "500ms", "--shutdown-grace", "5m")
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 1)
	first := func() bool { return l.begun.Load() < 1500 }
	l.stream(first)()
	l.call(func() bool { return l.begun.Load() < 2000 })()
	f.agrees(l)
	f.canary(l)
	var done atomic.Bool
	more := func() bool { return !done.Load() }
	streamed, called := l.stream(more), l.call(more)
	for _, r := range f.replicas[:2] {
		// An open batch keeps the replica from exiting, so that its last count can be read.
		rest := l.hold(r.daemon)
		r.signal(syscall.SIGTERM)
		eventually(t, "the replica has answered all but what is held, and counted just that", func() bool {
			return r.gauge("ckd_inputs_open") == loadBatch && r.gauge("ckd_in_use", "resource", "streams") == 1 &&
				r.gauge("grpc_server_started_total", "grpc_method", "Decompose") == r.gauge("grpc_server_handled_total", "grpc_method", "Decompose") &&
				int(r.gauge("ckd_decisions_total")) == l.answered(r.version)
		})
		f.prometheus.Scraped(time.Now())
		f.asks(fmt.Sprintf("sum by (instance) (ckd_decisions_total{instance=%q})", r.instance()), "instance",
			map[string]interval{r.instance(): about(float64(l.answered(r.version)))})
		rest()
		<-r.Exited
		if code := r.Process.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		r.again()
		eventually(t, "the replica is given sessions again", func() bool { return l.onSessions(r.version) >= 10*loadBatch })
	}
	victim := f.replicas[2]
	lost := l.hold(victim.daemon)
	victim.kill()
	lost()
	victim.again()
	eventually(t, "the successor is given sessions", func() bool { return l.onSessions(victim.version) >= 10*loadBatch })
	done.Store(true)
	streamed()
	called()
	l.answeredOnce(f.replicas[0].policy, loadBatch)
	f.agrees(l)
}
