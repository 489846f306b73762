package integration_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestReplicaKilled: three replicas behind a client that balances, and one
// Prometheus. One replica is killed with inputs open on it. Every input has one
// answer, or one error where nobody was to send it again. What Prometheus sums over
// the replicas is what they answered, of the killed one up to its last scrape; and
// the one that takes its place counts from 0.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t, policyText, nil)
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 2)
	l.send(1500)
	f.agrees(l)
	f.dashboards(l, "classic")
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

	// Sums are now of those that live; the last of the one that does not is there for
	// whoever asks. Beside what it answered it may have decided what was in flight.
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

// TestRetryCountedTwice: answers that are lost on their way from a replica that then
// dies are asked for again. The client has one of each; Prometheus has counted just
// those inputs twice.
func TestRetryCountedTwice(t *testing.T) {
	t.Parallel()
	f := startFleet(t, policyText, []string{"--enable-feature=native-histograms"})
	victim := f.replicas[0]
	way := wireTo(t, victim.GRPC[0])
	l := newLoad(t, f.dial(way.address, f.replicas[1].GRPC[0], f.replicas[2].GRPC[0]))
	l.open(f.versions(), 2)
	l.send(1000)
	f.agrees(l)
	f.dashboards(l, "native")

	halfway, goOn := barrier(t)
	streamed := l.stream(l.upTo(l.begun.Load()+int64(loadBatch*l.atOnce())), halfway)
	eventually(t, "every session stands", func() bool { return f.open() == loadBatch*l.atOnce() })
	answered, twice := l.answered(victim.version), 2*onSession*loadBatch // on its two sessions
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

// TestRollingRestart: under load, one replica after the other is told to stop and is
// started again. No input is lost, and none counted twice; and because streams grow
// old, each that is new is given sessions.
func TestRollingRestart(t *testing.T) {
	timed.Only(t)
	f := startFleet(t, policyText, nil, "--max-stream-age", "500ms", "--shutdown-grace", "5m")
	l := newLoad(t, f.dial(f.addresses()...))
	l.open(f.versions(), 1)
	var done atomic.Bool
	more := func() bool { return !done.Load() }
	streamed, called := l.stream(more, nil), l.call(more)
	for _, r := range f.replicas {
		// What is open keeps the replica from ending, so that its last count can be read.
		rest := l.hold(r.daemon)
		if err := r.Process.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the replica has answered all but what is held, and counted just that", func() bool {
			return r.gauge("ckd_inputs_open") == loadBatch && r.gauge("ckd_streams_open") == 1 &&
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

// TestDriftOfReplicas: each replica holds its own inputs against the calibration. What
// a dashboard shows is the worst of them; what the policy expects all of them say.
func TestDriftOfReplicas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	mustRun(t, "calibrate", "--coverage", "0.8", "--out", path, "--name", loadModel, "--posterior", "mc-dropout",
		"--passes", recording("ctg-mcdropout", ".passes.npy"), "--labels", recording("ctg-mcdropout", ".labels.npy"),
		"--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic")
	calibrated, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const name = "name: " + loadModel
	f := startFleet(t, strings.Replace(string(calibrated), name, name+"\n    version: integration", 1), nil)
	// One of three model servers was given another model.
	const drifted = 2
	for i, r := range f.replicas {
		if i == drifted {
			decideShuffled(t, r.GRPC[0], "ctg-lowrank", "low-rank")
		} else {
			decideShuffled(t, r.GRPC[0], "ctg-mcdropout", "mc-dropout")
		}
	}
	f.prometheus.Scraped(time.Now())

	largest := map[string]float64{}
	for _, r := range f.replicas {
		_, text, _ := r.Get("/metrics")
		for _, m := range parse(t, text)["ckd_drift_z"].GetMetric() {
			labels := model.Metric{}
			for _, l := range m.GetLabel() {
				labels[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
			}
			largest[labels.String()] = max(largest[labels.String()], math.Abs(m.GetGauge().GetValue()))
		}
	}
	worst := map[string]interval{}
	for labels, z := range largest {
		worst[labels] = about(z)
	}
	if len(worst) != 3*3*3 {
		t.Errorf("%d series of drift, expected one for each class, signal and window", len(worst))
	}
	checkQuery(t, f.prometheus, "max by (model, class, signal, window) (abs(ckd_drift_z))", "", worst)
	f.asks("max by (model) (ckd_drift_alarm)", "model", map[string]interval{loadModel: about(1)})
	f.asks("max by (instance) (ckd_drift_alarm) == 1", "instance", map[string]interval{f.replicas[drifted].instance(): about(1)})
	f.asks("sum by (what) (ckd_calibration_mismatches_total)", "what", map[string]interval{"posterior": about(2126), "passes": about(0)})
	told := regexp.MustCompile(`expected_coverage: {value: ([\d.]+)`).FindSubmatch(calibrated)
	if told == nil {
		t.Fatalf("the policy does not tell its coverage:\n%s", calibrated)
	}
	coverage, err := strconv.ParseFloat(string(told[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"max by (model) (ckd_policy_expected_coverage)", "min by (model) (ckd_policy_expected_coverage)"} {
		f.asks(query, "model", map[string]interval{loadModel: about(coverage)})
	}
}

// decideShuffled has one daemon decide on a recording, in an order that says nothing.
func decideShuffled(t *testing.T, address, name, posterior string) {
	t.Helper()
	c, err := client.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	values, n, s, k := readRecording(t, name, math.MaxInt)
	b := client.Batch{Model: loadModel, Posterior: posterior, Layout: client.NSK, Passes: s, Inputs: n}
	for _, i := range rand.New(rand.NewPCG(7, 7)).Perm(n) {
		b.Values = append(b.Values, values[i*s*k:(i+1)*s*k]...)
	}
	if _, err := c.Decompose(inTime(t), b); err != nil {
		t.Fatal(err)
	}
}

// barrier is for sessions to stand at until they may go on.
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
