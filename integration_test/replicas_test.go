package integration_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/timed"
)

var kills = flag.Duration("kills", 5*time.Second, "how long TestKilledEverySecond goes on")

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

// TestRetryCountedTwice loses answers on their way from a replica that then dies, so that the
// client asks for them again. The client must have one answer of each, and Prometheus must have
// counted exactly those inputs twice.
func TestRetryCountedTwice(t *testing.T) {
	t.Parallel()
	f := startFleet(t, policyText)
	victim := f.replicas[0]
	way := wireTo(t, victim.GRPC[0])
	l := newLoad(t, f.dial(way.address, f.replicas[1].GRPC[0], f.replicas[2].GRPC[0]))
	l.open(f.versions(), 2)
	l.send(1000)
	f.agrees(l)

	halfway, goOn := barrier(t)
	streamed := l.stream(l.upTo(l.begun.Load()+int64(loadBatch*l.atOnce())), halfway)
	eventually(t, "every session stands", func() bool { return f.open() == loadBatch*l.atOnce() })
	answered, twice := l.answered(victim.version), 2*onSession*loadBatch // two sessions each
	way.mute.Store(true)
	goOn()
	eventually(t, "the replica has decided on what it holds", func() bool {
		return int(victim.gauge("ckd_decisions_total")) == answered+twice
	})
	f.prometheus.Scraped(time.Now())
	victim.kill()
	streamed()
	l.answeredOnce(victim.policy, 0)
	if got := l.answered(victim.version); got != answered {
		t.Errorf("%d answers came from the replica, expected %d: none after it was cut off", got, answered)
	}
	f.prometheus.Scraped(time.Now())
	f.asks("sum by (model) (max_over_time(ckd_decisions_total[1h]))", "model", map[string]interval{
		loadModel: about(float64(l.total() + twice)),
	})
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

// TestKilledEverySecond kills a replica every second, one after the other, for as long as -kills says.
// Every input must have one answer, as decompose gives it, and nothing may be left open.
func TestKilledEverySecond(t *testing.T) {
	timed.Long(t)
	f := startFleet(t, policyText)
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 1)
	killed, inputs := 0, int64(0)
	for begun := time.Now(); killed == 0 || time.Since(begun) < *kills; {
		// In rounds, since load keeps all results.
		var done atomic.Bool
		more := func() bool { return !done.Load() }
		streamed, called := l.stream(more, nil), l.call(more)
		for round := time.Now(); time.Since(round) < min(*kills, 10*time.Second); killed++ {
			next := time.Now().Add(time.Second)
			victim := f.replicas[killed%len(f.replicas)]
			victim.kill()
			victim.start(t)
			time.Sleep(time.Until(next))
		}
		done.Store(true)
		streamed()
		called()
		l.answeredOnce(f.replicas[0].policy, 0)
		inputs += l.forget()
		if t.Failed() {
			break
		}
	}
	for _, r := range f.replicas {
		r.fallsTo("ckd_inputs_open", 0)
	}
	t.Logf("%d kills, %d inputs, each answered once", killed, inputs)
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
