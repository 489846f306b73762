package integration_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
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

	// Every session stops in the middle of a batch, while calls go on.
	victim, scraped := f.replicas[0], l.answered(f.replicas[0].version)
	halfway, goOn := barrier(t)
	lost := l.hold(victim.daemon)
	before := l.total()
	var killed atomic.Bool
	more := func() bool { return l.begun.Load() < 3000 || !killed.Load() }
	streamed, called := l.stream(more, halfway), l.call(more)
	eventually(t, "500 more are answered, while every session stands", func() bool {
		return l.total() >= before+500 && f.open() == loadBatch*(len(l.sessions)+1)
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
	inFlight := loadBatch * (len(l.sessions) + callers)
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
	streamed := l.stream(l.upTo(l.begun.Load()+int64(loadBatch*len(l.sessions))), halfway)
	eventually(t, "every session stands", func() bool { return f.open() == loadBatch*len(l.sessions) })
	way.mute.Store(true)
	goOn()
	answered, twice := l.answered(victim.version), 2*loadBatch // its two sessions
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
	t.Parallel()
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

// fleet is three daemons that have nothing in common but what their policies mean, and
// one Prometheus, which scrapes them.
type fleet struct {
	t          *testing.T
	replicas   []*replica
	prometheus *testbed.Prometheus
}

// startFleet starts it with a policy whose version is integration.
func startFleet(t *testing.T, policy string, flags []string, args ...string) *fleet {
	t.Helper()
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	f := &fleet{t: t}
	for i := range 3 {
		version := fmt.Sprintf("replica-%d", i)
		file := writePolicy(t, strings.Replace(policy, "version: integration", "version: "+version, 1))
		d := serve(t, append([]string{"--policy", file}, args...)...)
		f.replicas = append(f.replicas, &replica{daemon: d, version: version, policy: file, args: args})
	}
	config := scrapeConfig(t, promtool, f.replicas[0].daemon)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, r := range f.replicas {
		targets = append(targets, strconv.Quote(r.instance()))
	}
	text = bytes.Replace(text, []byte(targets[0]), []byte(strings.Join(targets, ", ")), 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f.prometheus = testbed.StartPrometheus(t, binary, config, flags...)
	f.areUp()
	return f
}

// areUp waits until Prometheus has found all replicas up.
func (f *fleet) areUp() {
	f.t.Helper()
	eventually(f.t, "Prometheus finds all replicas up", func() bool {
		return len(f.prometheus.Query("up == 1", "")) == len(f.replicas)
	})
}

// dial is a client that balances over some addresses, which have one name.
func (f *fleet) dial(addresses ...string) *client.Client {
	f.t.Helper()
	name := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, a := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	name.InitialState(state)
	c, err := client.Dial("replicas:///ckd", client.WithBalancing(), client.WithInsecure(),
		client.WithDialOptions(grpc.WithResolvers(name)))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fleet) addresses() (all []string) {
	for _, r := range f.replicas {
		all = append(all, r.GRPC[0])
	}
	return all
}

func (f *fleet) versions() (all []string) {
	for _, r := range f.replicas {
		all = append(all, r.version)
	}
	return all
}

// open is how many inputs are open on all replicas.
func (f *fleet) open() (inputs int) {
	for _, r := range f.replicas {
		inputs += int(r.gauge("ckd_inputs_open"))
	}
	return inputs
}

// agrees holds that Prometheus has counted of each replica what it answered, and that
// one policy is in force everywhere. Nothing may be under way.
func (f *fleet) agrees(l *load) {
	f.t.Helper()
	f.areUp()
	f.prometheus.Scraped(time.Now())
	each, all := map[string]interval{}, 0
	for _, r := range f.replicas {
		answered := l.answered(r.version)
		if answered == 0 {
			f.t.Errorf("%s has answered nothing", r.version)
		}
		each[r.instance()] = about(float64(answered))
		all += answered
	}
	f.asks("sum by (instance) (ckd_decisions_total)", "instance", each)
	f.asks("sum by (model) (ckd_decisions_total)", "model", map[string]interval{loadModel: about(float64(all))})
	f.asks("sum by (model) (ckd_passes_total)", "model", map[string]interval{loadModel: about(float64(all * l.passes))})
	f.asks("count by (model) (ckd_policy_info)", "model", map[string]interval{loadModel: about(float64(len(f.replicas)))})
	f.asks("count by (model) (count by (model, hash) (ckd_policy_info))", "model", map[string]interval{loadModel: about(1)})
}

// dashboards holds what documented queries say of all replicas against their answers.
// Counters add up to just that. Rates weigh each replica by when it was scraped, so that
// their shares and quantiles lie between those of single replicas.
func (f *fleet) dashboards(l *load, histograms string) {
	f.t.Helper()
	at := f.prometheus.Scraped(time.Now())
	documented := documentedQueries(f.t)
	all := expectedAnswers(f.t, f.replicas[0].daemon, l.lines(""))
	var each [][]answer
	for _, r := range f.replicas {
		each = append(each, expectedAnswers(f.t, r.daemon, l.lines(r.version)))
	}
	checked := 0
	for i, a := range all {
		found := slices.IndexFunc(documented, func(q string) bool { return strings.HasPrefix(q, a.query) })
		if a.perSecond || a.needs != "" && a.needs != histograms || found < 0 {
			continue
		}
		checked++
		query := documented[found]
		checkQuery(f.t, f.prometheus, overAllTime(query), at, a.want)
		between := map[string]interval{}
		for series := range a.want {
			b := interval{math.Inf(1), math.Inf(-1)}
			for _, of := range each {
				b = interval{min(b.low, of[i].want[series].low), max(b.high, of[i].want[series].high)}
			}
			between[series] = b
		}
		checkQuery(f.t, f.prometheus, query, at, between)
	}
	if checked < 8 {
		f.t.Errorf("only %d documented queries were asked", checked)
	}
}

// asks asks a query as of now whose series differ by one label, by which the wanted
// values are.
func (f *fleet) asks(query, label string, want map[string]interval) {
	f.t.Helper()
	series := map[string]interval{}
	for value, v := range want {
		series[model.Metric{model.LabelName(label): model.LabelValue(value)}.String()] = v
	}
	checkQuery(f.t, f.prometheus, query, "", series)
}

// replica is a daemon of a fleet. The version of its policy names it in every answer.
type replica struct {
	*daemon
	version string
	policy  string // its file
	args    []string
}

// instance is what Prometheus calls it.
func (r *replica) instance() string { return strings.TrimPrefix(r.Admin, "http://") }

// kill ends the replica without a word.
func (r *replica) kill() {
	r.t.Helper()
	if err := r.Process.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	<-r.Exited
}

// again starts a replica that has ended on the addresses that it had, under another
// name.
func (r *replica) again() {
	r.t.Helper()
	text, err := os.ReadFile(r.policy)
	if err != nil {
		r.t.Fatal(err)
	}
	name := r.version + "-again"
	r.policy = writePolicy(r.t, strings.Replace(string(text), "version: "+r.version, "version: "+name, 1))
	r.version = name
	args := []string{"serve", "--listen", r.GRPC[0], "--admin", r.instance(), "--policy", r.policy}
	r.daemon = &daemon{testbed.Start(r.t, exec.Command(ckd, append(args, r.args...)...), 1), r.t}
}

// wire forwards connections to a daemon. What the daemon says is lost while it is mute.
type wire struct {
	address string
	mute    atomic.Bool
}

func wireTo(t *testing.T, address string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	w := &wire{address: listener.Addr().String()}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil { // the daemon is gone
				_ = near.Close()
				continue
			}
			go w.carry(far, near, func() bool { return false })
			go w.carry(near, far, w.mute.Load)
		}
	}()
	return w
}

// carry copies until one side has ended, and then ends both.
func (w *wire) carry(to, from net.Conn, mute func() bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err == nil && !mute() {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}
