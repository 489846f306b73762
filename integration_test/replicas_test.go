package integration_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestReplicaKilled kills one of three replicas with inputs open on it. Every input must have one
// answer, or one error where its stream does not reconnect. Prometheus must sum up what the
// replicas answered, the killed one up to its last scrape, and its successor must count from 0.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t, policyText)
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 2)
	l.send(1500)
	f.agrees(l)
	f.canary(l)

	// Every session stops in the middle of a batch, while calls go on.
	victim, scraped := f.replicas[0], l.answered(f.replicas[0].version)
	halfway, goOn := barrier(t)
	lost := l.hold(victim.daemon)
	before := l.total()
	var killed atomic.Bool
	more := func() bool { return l.begun.Load() < 3000 || !killed.Load() }
	streamed, called := l.stream(more, halfway), l.call(more)
	eventually(t, "500 more are answered, while every session stands", func() bool {
		return l.total() >= before+500 && f.open() == loadBatch*(l.atOnce()+1)
	})
	victim.kill()
	killed.Store(true)
	lost()
	goOn()
	streamed()
	called()
	l.answeredOnce(victim.policy, loadBatch)

	// Sums now cover the living replicas. The last count of the killed one can still be asked for.
	// It may include inputs that were in flight.
	f.prometheus.Scraped(time.Now())
	survivors := map[string]interval{}
	for _, r := range f.replicas[1:] {
		survivors[r.instance()] = about(float64(l.answered(r.version)))
	}
	f.asks("sum by (instance) (ckd_decisions_total)", "instance", survivors)
	f.asks("sum by (model) (ckd_decisions_total)", "model", map[string]interval{
		loadModel: about(float64(l.answered(f.replicas[1].version) + l.answered(f.replicas[2].version))),
	})
	inFlight := loadBatch * (l.atOnce() + callers)
	f.asks(fmt.Sprintf("sum by (instance) (last_over_time(ckd_decisions_total{instance=%q}[1h]))", victim.instance()), "instance",
		map[string]interval{victim.instance(): {float64(scraped), float64(l.answered(victim.version) + inFlight)}})

	victim.again()
	l.call(func() bool { return l.answered(victim.version) == 0 })()
	f.agrees(l)
	l.answeredOnce(victim.policy, loadBatch)
}

// TestRollingRestart stops and restarts one replica after the other under load. No input may be
// lost or counted twice. Streams grow old, so each new replica must get sessions.
func TestRollingRestart(t *testing.T) {
	timed.Long(t)
	f := startFleet(t, policyText, "--max-stream-age", "500ms", "--shutdown-grace", "5m")
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 1)
	var done atomic.Bool
	more := func() bool { return !done.Load() }
	streamed, called := l.stream(more, nil), l.call(more)
	for _, r := range f.replicas {
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
	done.Store(true)
	streamed()
	called()
	l.answeredOnce(f.replicas[0].policy, 0)
	f.agrees(l)
}

// barrier returns a function at which sessions stop, and one that lets them go on.
func barrier(t *testing.T) (halfway, goOn func()) {
	open := make(chan struct{})
	halfway = func() {
		select {
		case <-open:
		case <-t.Context().Done():
		}
	}
	return halfway, func() { close(open) }
}
