package server

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/spec"
	"github.com/ckd-project/ckd/server/internal/wire"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds TestSimulation runs, and twenty times TestSimulatedClients; 0 means 600, and 200 with -short")
	seed  = flag.Uint64("seed", 0, "the one seed that TestSimulation or TestSimulatedClients replays, with its history")
)

// TestSimulation drives servers by random clients and checks each step against package spec. A seed
// gives the same messages, reloads, faults and clock on every run: the exchanges of streams are
// coroutines that the simulation resumes in turn, and time passes only where it sleeps.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		history, err := simulate(t, *seed, nil, true)
		if t.Log(strings.Join(history, "\n")); err != nil {
			t.Error(err)
			explain(t, *seed)
		}
		return
	}
	n := *seeds
	if n == 0 {
		if n = 600; testing.Short() {
			n = 200
		}
	}
	simulateAll(t, n)
}

// simulateAll runs the seeds from 1 to n.
func simulateAll(t *testing.T, n int) {
	t.Helper()
	var next atomic.Uint64
	var failed sync.Map
	t.Run("seeds", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
				t.Parallel()
				for {
					s := next.Add(1)
					if s > uint64(n) || t.Failed() {
						return
					}
					if _, err := simulate(t, s, nil, false); err != nil {
						failed.Store(s, err)
						t.Errorf("seed %d: %v", s, err)
					}
				}
			})
		}
	})
	failed.Range(func(s, _ any) bool {
		explain(t, s.(uint64))
		return false
	})
}

// explain logs the shortest history of a seed that still fails, which it finds by leaving out steps.
func explain(t *testing.T, s uint64) {
	t.Helper()
	skip := map[int]bool{}
	steps := stepsOf(s)
	for size := steps / 2; size >= 1; size /= 2 {
		for from := 0; from < steps; from += size {
			without := map[int]bool{}
			for i := range steps {
				without[i] = skip[i] || i >= from && i < from+size
			}
			if _, err := simulate(t, s, without, false); err != nil {
				skip = without
			}
		}
	}
	history, err := simulate(t, s, skip, true)
	t.Logf("seed %d, shortened: %v\n%s\nTo replay: go test ./server -run '^TestSimulation$' -seed %d", s, err, strings.Join(history, "\n"), s)
}

// stepsOf returns how many steps a seed takes: mostly few, so that what they find is short.
func stepsOf(s uint64) int {
	if s%50 == 0 {
		return 600
	}
	return 40 + int(s%7)*20
}

// simulate runs one seed without the steps to skip. It returns what happened, if that is to be told,
// and the first difference from the protocol.
func simulate(t *testing.T, s uint64, skip map[int]bool, tells bool) (history []string, err error) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSimulation(t, s)
		sim.tells = tells
		defer sim.stop()
		defer func() { history = sim.history }()
		for i := range stepsOf(s) {
			if skip[i] {
				continue
			}
			if err = sim.step(i, rand.New(rand.NewPCG(s, uint64(i)))); err != nil {
				return
			}
			slices.Sort(sim.referred)
			slices.Sort(sim.spec.Referred)
			if !slices.Equal(sim.referred, sim.spec.Referred) {
				err = fmt.Errorf("referred %q, expected %q", sim.referred, sim.spec.Referred)
				return
			}
			sim.referred, sim.spec.Referred = nil, nil
		}
		err = sim.end()
	})
	return history, err
}

// simulation is a server, what its clients do, and what package spec says of it.
type simulation struct {
	server   *Server
	registry *prometheus.Registry
	spec     *spec.Server
	sets     []policySet
	sessions []*session
	opened   int
	hogged   int64
	drains   bool // the daemon may stop
	drained  bool
	referred []string // inputs that went to a person
	at       int      // the current step
	tells    bool
	history  []string
}

// policySet is a set of policies, for the server and for the spec.
type policySet struct {
	name string
	set  *policy.Set
	spec []*spec.Policy
}

// simulatedSets are the sets of policies that simulations reload. They are parsed once.
var simulatedSets = sync.OnceValues(func() (sets []policySet, err error) {
	text := `
models:
  - name: ctg
    version: v1
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 4, expected: 6}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
`
	others := `  - name: open-ended
    classes: [safe, critical]
    critical: [critical]
    gate: never
    passes: {fewest: 2}
  - name: logits
    classes: [a, b, c]
    critical: [c]
    kind: logits
    gate: never
    passes: {fewest: 2, expected: 3}
  - name: evidential
    classes: [a, b, c]
    critical: [c]
    kind: dirichlet
`
	stricter := strings.NewReplacer("v1", "v2", "0.02}", "0.2}").Replace(text)
	audited := strings.Replace(text, "v1", "v3", 1) + `    audit: {rate: 0.3, m: 0.5, on_breach: defer, surge: 700, slices: [{name: site, values: [north, south]}, {name: scanner, values: [north]}]}
    calibrated:
      recording: {passes: 6}
      posterior: mc-dropout
`
	risky := strings.NewReplacer("v1", "v4", "primary: {score: c_crit_max, threshold: 0.02}\n    fallback: {score: cbec, threshold: 0.003}", `gate: never
    primary: {score: risk, threshold: 0.3}
    guard: {score: mi, threshold: 0.6}
    audit: {rate: 0.2, predicted-critical: free}
    calibrated:
      risk:
        called_safe: {intercept: -1, slope: 0.5}
        called_critical: {intercept: 0.25, slope: 2}
        quantiles: [0`+strings.Repeat(", 0.25", 63)+`, 1]
        prevalence: 0.2`).Replace(text)
	for _, s := range []struct{ name, text string }{
		{"the first", text + others},
		{"another threshold", stricter + others},
		{"calibrated, with audits", audited + others},
		{"by risk, behind a guard", risky + others},
		{"recalibrated", strings.NewReplacer("{passes: 6}", "{passes: 5}", "mc-dropout", "ensemble").Replace(audited) + others},
		{"classes in another order", strings.Replace(text, "[normal, suspect, pathologic]", "[suspect, normal, pathologic]", 1) + others},
		{"more passes at least", text + strings.Replace(others, "{fewest: 2}", "{fewest: 3}", 1)},
		{"of another kind", text + strings.Replace(others, "gate: never", "kind: logits\n    gate: never", 1)},
		{"other passes", strings.Replace(text, "expected: 6", "expected: 5", 1) + others},
		{"without ctg", "models:\n" + others},
		{"ctg alone", text},
	} {
		set, err := policy.Parse(policy.File{Name: s.name, Data: []byte(s.text)})
		if err != nil {
			return nil, err
		}
		sets = append(sets, policySet{name: s.name, set: set})
	}
	// A rule without patience, which errs often, as its certificate says.
	p := *sets[0].set.All()[0]
	for _, other := range sets[0].set.All() {
		if other.Name == "ctg" {
			p = *other
		}
	}
	p.EarlyStopping = certified(&p, ruleOnScore(&p, p.FewestPasses, 0.5, 0.5).Rule(p.ExpectedPasses, 1))
	p.EarlyStopping.Certificate.Disagreement, p.EarlyStopping.Certificate.Released.AtMost = 0.99, 1 // verdicts do not end it
	p.Calibration = &policy.Calibration{Recording: policy.Recording{Passes: p.ExpectedPasses}}
	for _, more := range []string{"", others} {
		set, err := policy.Parse(policy.File{Name: "with a rule", Data: []byte(string(p.Marshal()) + more)})
		if err != nil {
			return nil, err
		}
		sets = append(sets, policySet{name: "with a rule " + fmt.Sprint(more != ""), set: set})
	}
	for i := range sets {
		for _, p := range sets[i].set.All() {
			bound, err := spec.Bind(p)
			if err != nil {
				return nil, err
			}
			sets[i].spec = append(sets[i].spec, bound)
		}
	}
	return sets, nil
})

func newSimulation(t *testing.T, s uint64) *simulation {
	t.Helper()
	r := rand.New(rand.NewPCG(s, 1<<40))
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{RejectReasons: RejectReasons(), Receipts: true})
	if err != nil {
		t.Fatal(err)
	}
	l := DefaultLimits()
	l.OpenInputsPerStream, l.OpenGroupsPerStream, l.InputsPerRequest, l.PassesPerInput = 10, 4, 20, 8
	l.InputIDBytes, l.ReplyBytes, l.OpenInputBytes, l.InputIdle = 16, 1800, 1<<20, time.Minute
	srv, err := New(Options{Limits: l, Logger: zap.NewNop(), Metrics: m, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	sets, err := simulatedSets()
	if err != nil {
		t.Fatal(err)
	}
	sim := &simulation{server: srv, registry: registry, sets: sets, spec: spec.NewServer(spec.Limits{
		OpenInputs: l.OpenInputsPerStream, OpenGroups: l.OpenGroupsPerStream, InputsPerRequest: l.InputsPerRequest,
		Passes: l.PassesPerInput, IDBytes: l.InputIDBytes, ReplyBytes: l.ReplyBytes, InputIdle: l.InputIdle,
	})}
	sim.drains = s%4 == 1
	sim.spec.Sampler = fullpass.Sampler{Share: []float64{0, 0.3, 1}[r.IntN(3)], Seed: s}
	if r.IntN(2) == 0 {
		keys := receiptKeys(t, 1)
		srv.SetReceiptKeys(keys)
		sim.spec.Keys = keys
	}
	srv.decider.referred = func(p *policy.Policy, id []byte, o *engine.Outcome, receipt []byte) {
		sim.referred = append(sim.referred, fmt.Sprintf("%s %q %s %x", p.Name, id, o.Decision.Action, receipt))
		if r.IntN(100) == 0 { // no scrape waits for what the caller holds
			_, _ = registry.Gather()
		}
	}
	first := sets[r.IntN(len(sets))]
	if r.IntN(2) == 0 {
		first = sets[len(sets)-1] // with a rule
	}
	if err := sim.reload(first); err != nil {
		t.Fatal(err)
	}
	return sim
}

// logf adds a line to the history, if somebody is to read it. Messages among the arguments are
// written as JSON.
func (sim *simulation) logf(format string, args ...any) {
	if !sim.tells {
		return
	}
	for i, a := range args {
		if m, ok := a.(proto.Message); ok {
			args[i] = show(m)
		}
	}
	sim.history = append(sim.history, fmt.Sprintf("%3d ", sim.at)+fmt.Sprintf(format, args...))
}

// reload puts policies in force and lets every supervisor see that.
func (sim *simulation) reload(to policySet) error {
	sim.logf("reload: %s", to.name)
	if err := sim.server.SetPolicies(to.set); err != nil {
		return err
	}
	for _, m := range sim.server.catalog.models() {
		if stopper := m.lean.Stopper(); stopper != nil {
			stopper.Sampler = sim.spec.Sampler
		}
	}
	sim.spec.SetPolicies(to.spec...)
	return nil
}

// step takes one step.
func (sim *simulation) step(at int, r *rand.Rand) error {
	sim.at = at
	if live := sim.live(); len(live) < 3 && (len(live) == 0 || r.IntN(12) == 0) {
		return sim.open(r)
	} else if what := r.IntN(100); what < 78 {
		return sim.traffic(r, live[r.IntN(len(live))])
	} else if what < 84 {
		return sim.call(r)
	} else if what < 88 {
		return sim.sleep([]time.Duration{time.Second, 10 * time.Second, 61 * time.Second}[r.IntN(3)] + time.Duration(r.IntN(1000))*time.Millisecond)
	} else if what < 91 {
		if err := sim.reload(sim.sets[r.IntN(len(sim.sets))]); err != nil {
			return err
		}
		if r.IntN(4) > 0 { // or else a message comes before the supervisors look
			return sim.supervise((*stream).policiesReplaced, (*spec.Stream).PoliciesReplaced)
		}
	} else if what < 95 {
		sim.fill(r)
	} else if what < 96 {
		return sim.checkCounters()
	} else if what < 97 {
		sim.alarm(r)
	} else if what < 98 && sim.drains && !sim.drained {
		sim.logf("drain")
		sim.drained = true
		sim.server.Drain()
		return sim.supervise(func(st *stream) { st.end(draining("the daemon is stopping")) }, func(st *spec.Stream) { st.End("DRAINING") })
	} else if one := live[r.IntN(len(live))]; what >= 98 && one.st != nil {
		sim.logf("%s reaches its age", one.name)
		one.st.end(draining("the stream has reached its age"))
		one.spec.End("DRAINING")
		return sim.over(one)
	}
	return nil
}

// live returns the sessions that have not ended.
func (sim *simulation) live() (live []*session) {
	for _, one := range sim.sessions {
		if one.state != ended {
			live = append(live, one)
		}
	}
	return live
}

// supervise lets each stream see a change, as its supervisor does, and then ends those that are over.
func (sim *simulation) supervise(see func(*stream), say func(*spec.Stream)) error {
	for _, one := range sim.live() {
		see(one.st)
		say(one.spec)
		if err := sim.over(one); err != nil {
			return err
		}
	}
	return nil
}

// sleep lets time pass and then inputs expire.
func (sim *simulation) sleep(d time.Duration) error {
	sim.logf("%v pass", d)
	time.Sleep(d)
	for _, one := range sim.live() {
		if one.state == sending {
			continue // the supervisor looks again later
		}
		reply := one.st.expired()
		var got *ckdv1.DecomposeStreamResponse
		if reply.message != nil {
			one.direct = true
			if err := one.st.sender.send(reply); err != nil {
				return err
			}
			one.direct = false
			got = one.take()
		}
		sim.logf("%s expires: %s", one.name, got)
		if err := one.spec.Expire(time.Now(), got); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		if err := sim.over(one); err != nil {
			return err
		}
	}
	return nil
}

// fill takes most of the budget, all of it, or nothing.
func (sim *simulation) fill(r *rand.Rand) {
	sim.give()
	sim.spec.Room = []spec.Room{spec.Ample, spec.Tight, spec.None}[r.IntN(3)]
	sim.logf("room %d", sim.spec.Room)
	switch sim.spec.Room {
	case spec.Tight:
		sim.hog(sim.free() - int64(r.IntN(5000)))
	case spec.None:
		sim.hog(sim.free())
	}
}

// alarm raises the alarm of a model, or of none.
func (sim *simulation) alarm(r *rand.Rand) {
	var audited []string
	for _, set := range sim.sets {
		for _, p := range set.spec {
			if p.Audit != nil {
				audited = append(audited, p.Name)
			}
		}
	}
	if sim.spec.Alarm = ""; r.IntN(3) > 0 {
		sim.spec.Alarm = audited[r.IntN(len(audited))]
	}
	sim.logf("alarm of %q", sim.spec.Alarm)
	sim.server.SetLedgerState(LedgerState{Heard: true, Alarms: []*ckdv1.Alarm{{Model: sim.spec.Alarm}, {Model: audited[0], CriticalClass: "one alone"}}})
}

// squeeze takes what has become free in a budget that is to be full.
func (sim *simulation) squeeze() {
	if sim.spec.Room == spec.None {
		sim.hog(sim.free())
	}
}

// call makes a unary call.
func (sim *simulation) call(r *rand.Rand) error {
	request := sim.spec.Call(r)
	data, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var in wire.Incoming
	defer in.Free()
	if err := (wire.Codec{}).Unmarshal(segments(data, r.IntN(len(data)+1)), &in); err != nil {
		return err
	}
	sim.squeeze()
	out, refused := sim.server.decider.decompose(context.Background(), &in)
	var got *ckdv1.DecomposeResponse
	if refused == nil {
		got = &ckdv1.DecomposeResponse{}
		if err := sendBytes(out, got); err != nil {
			return err
		}
	}
	sim.logf("call %s -> %s %v", request, got, refused)
	return sim.spec.Decompose(request, got, refused)
}

// checkCounters compares the metrics with what the spec has counted.
func (sim *simulation) checkCounters() error {
	families, err := sim.registry.Gather()
	if err != nil {
		return err
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName(), l.GetValue())
			}
			got[spec.Series(family.GetName(), labels...)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if family.GetName() == "ckd_passes_used" {
				got[spec.Series("ckd_passes_used_sum", labels...)] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	for _, n := range sim.server.Issued(0, math.MaxInt) {
		for what, counted := range map[string]uint64{"decisions": n.Decisions, "eligible": n.Eligible, "receipts": n.Receipts, "reviews": n.Reviews} {
			got[spec.Series(spec.Issued, "policy", hex.EncodeToString(n.Policy[:]), "version", n.Version, "stratum", n.Stratum.String(), "what", what)] += float64(counted)
		}
	}
	sim.logf("counters")
	return sim.spec.CheckCounters(got)
}

// end closes all sessions and expects that nothing is left.
func (sim *simulation) end() error {
	sim.at++
	sim.give()
	sim.spec.Room = spec.Ample
	for i, one := range sim.live() {
		var err error
		if i%2 == 0 {
			err = sim.halfClose(one)
		} else {
			err = sim.cancel(one, true)
		}
		if err != nil {
			return err
		}
	}
	if err := sim.checkCounters(); err != nil {
		return err
	}
	if held := sim.held(); held != 0 {
		return fmt.Errorf("%d bytes of the budget are not given back", held)
	}
	if !sim.server.Idle() {
		return errors.New("streams or calls are left")
	}
	return nil
}

func (sim *simulation) stop() {
	for _, one := range sim.sessions {
		one.stop()
	}
}

// session is a stream whose exchange is a coroutine: it runs until it wants to receive or has
// something to send, and then waits for the simulation to resume it.
type session struct {
	grpc.ServerStream
	name  string
	next  func() (state, bool)
	stop  func()
	yield func(state) bool
	state state

	arriving []byte // the next message; with fault nil
	fault    error  // of the transport
	rand     *rand.Rand
	sent     []*ckdv1.DecomposeStreamResponse
	direct   bool // a send returns at once

	result error // of the exchange
	st     *stream
	spec   *spec.Stream
}

// state says what an exchange waits for.
type state uint8

const (
	receiving state = iota
	sending
	ended
)

func (one *session) Context() context.Context     { return context.Background() }
func (one *session) SetHeader(metadata.MD) error  { return nil }
func (one *session) SendHeader(metadata.MD) error { return nil }
func (one *session) SetTrailer(metadata.MD)       {}

// RecvMsg implements grpc.ServerStream.
func (one *session) RecvMsg(to any) error {
	if !one.yield(receiving) {
		return context.Canceled
	}
	if one.fault != nil {
		return one.fault
	}
	return (wire.Codec{}).Unmarshal(segments(one.arriving, one.rand.IntN(len(one.arriving)+1)), to)
}

// SendMsg implements grpc.ServerStream. The message is encoded at once and sent when the simulation
// resumes the exchange.
func (one *session) SendMsg(from any) error {
	reply := &ckdv1.DecomposeStreamResponse{}
	if err := sendBytes(from, reply); err != nil {
		return err
	}
	one.sent = append(one.sent, reply)
	if one.direct {
		return nil
	}
	if !one.yield(sending) {
		return context.Canceled
	}
	return one.fault
}

// segments returns bytes as the transport gives them: in several buffers.
func segments(data []byte, cut int) mem.BufferSlice {
	return mem.BufferSlice{mem.SliceBuffer(data[:cut]), mem.SliceBuffer(data[cut:])}
}

// sendBytes decodes what the codec makes of a reply.
func sendBytes(from any, to proto.Message) error {
	buffers, err := wire.Codec{}.Marshal(from)
	if err != nil {
		return err
	}
	defer buffers.Free()
	return proto.Unmarshal(buffers.Materialize(), to)
}

// resume runs the exchange until it waits again.
func (one *session) resume() {
	state, more := one.next()
	if !more {
		state = ended
	}
	one.state = state
}

// take returns the message that was sent, or nil.
func (one *session) take() *ckdv1.DecomposeStreamResponse {
	if len(one.sent) == 0 {
		return nil
	}
	m := one.sent[0]
	one.sent = one.sent[1:]
	return m
}

// open begins a stream with a random header.
func (sim *simulation) open(r *rand.Rand) error {
	sim.opened++
	added := &session{name: fmt.Sprintf("stream %d", sim.opened)}
	if err := sim.server.admission.openStream(nil); err != nil {
		return err
	}
	opened := make(chan *stream, 1)
	added.next, added.stop = iter.Pull(func(yield func(state) bool) {
		added.yield = yield
		added.result = sim.server.streams.exchange(added, opened)
	})
	sim.sessions = append(sim.sessions, added)
	added.resume()
	h := sim.spec.Header(r)
	m := &ckdv1.DecomposeStreamRequest{}
	if h != nil {
		m.Message = &ckdv1.DecomposeStreamRequest_Header{Header: h}
	}
	if err := added.deliver(r, m); err != nil {
		return err
	}
	reason := sim.spec.Refused(h)
	if added.state == ended {
		sim.server.admission.closeStream(nil)
		sim.logf("%s: header %s -> %v", added.name, h, added.result)
		if got := reasonIn(added.result); got != reason {
			return fmt.Errorf("%s is refused with %q, expected %q: %w", added.name, got, reason, added.result)
		}
		return nil
	}
	info := added.take()
	sim.logf("%s: header %s -> %s", added.name, h, info)
	if reason != "" {
		return fmt.Errorf("%s is opened, expected %s", added.name, reason)
	}
	added.st = <-opened
	var err error
	if added.spec, err = sim.spec.OpenStream(h, info); err != nil {
		return fmt.Errorf("%s: %w", added.name, err)
	}
	// The supervisor looks around as it begins.
	added.st.policiesReplaced()
	added.spec.PoliciesReplaced()
	if sim.drained {
		added.st.end(draining("the daemon is stopping"))
		added.spec.End("DRAINING")
	}
	return sim.over(added)
}

// deliver gives the exchange a message, which it must be waiting for.
func (one *session) deliver(r *rand.Rand, m *ckdv1.DecomposeStreamRequest) (err error) {
	one.rand = r
	if one.arriving, err = proto.Marshal(m); err == nil {
		one.resume()
	}
	return err
}

// traffic does something on a stream: its client reads what was sent, or sends, or ends it.
func (sim *simulation) traffic(r *rand.Rand, one *session) error {
	if one.state == sending && r.IntN(50) > 0 {
		return sim.read(one)
	}
	switch what := r.IntN(60); {
	case what == 0 || one.state == sending:
		return sim.cancel(one, r.IntN(2) == 0)
	case what == 1:
		return sim.halfClose(one)
	}
	m := one.spec.Message(r)
	sim.squeeze()
	if err := one.deliver(r, m); err != nil {
		return err
	}
	got := one.take()
	sim.logf("%s: %s -> %s", one.name, m, got)
	if err := one.spec.Receive(m, time.Now(), got); err != nil {
		return fmt.Errorf("%s: %w", one.name, err)
	}
	if one.state == sending && r.IntN(3) > 0 {
		return sim.read(one)
	}
	return sim.over(one)
}

// read lets the client of a stream read what was sent.
func (sim *simulation) read(one *session) error {
	one.resume()
	if next := one.take(); next != nil {
		return fmt.Errorf("%s: another reply: %s", one.name, show(next))
	}
	return sim.over(one)
}

// over ends a stream that is over, be it by its exchange or by its supervisor.
func (sim *simulation) over(one *session) error {
	due := one.spec.Ending() != "" && one.spec.OpenInputs() == 0 && one.state != sending
	err := one.result
	if one.state != ended {
		err = one.st.over()
	}
	if (err != nil || one.state == ended) != due {
		return fmt.Errorf("%s: over %v with %v, expected %v: ending %q with %d inputs open", one.name, !due, fmt.Sprint(err), due, one.spec.Ending(), one.spec.OpenInputs())
	}
	if !due {
		return nil
	}
	sim.logf("%s ends: %v", one.name, err)
	if got := reasonIn(err); got != one.spec.Ending() {
		return fmt.Errorf("%s ends with %q, expected %q", one.name, got, one.spec.Ending())
	}
	return sim.close(one, true)
}

// halfClose ends the sending of a client, which reads the rest.
func (sim *simulation) halfClose(one *session) error {
	for one.state == sending {
		if err := sim.read(one); err != nil {
			return err
		}
	}
	if one.state == ended {
		return nil
	}
	sim.squeeze()
	if sim.spec.Room == spec.None {
		sim.spec.Room = spec.Tight // groups that end make room for those after them
	}
	one.fault = io.EOF
	one.resume()
	var rest []*ckdv1.DecomposeStreamResponse
	one.fault = nil
	for one.state == sending {
		rest = append(rest, one.take())
		one.resume()
	}
	sim.logf("%s is half-closed -> %d replies %s", one.name, len(rest), &ckdv1.DecomposeStreamResponse{Results: resultsOf(rest)})
	if one.result != nil {
		return fmt.Errorf("%s: half-closed, and ended by %w", one.name, one.result)
	}
	if err := one.spec.HalfClosed(rest...); err != nil {
		return fmt.Errorf("%s: %w", one.name, err)
	}
	return sim.close(one, true)
}

// cancel breaks a stream. Either its supervisor or its exchange learns of it first.
func (sim *simulation) cancel(one *session, exchangeFirst bool) error {
	sim.logf("%s is cancelled, state %d", one.name, one.state)
	return sim.close(one, exchangeFirst)
}

// close gives up a stream as superviseStream does.
func (sim *simulation) close(one *session, exchangeFirst bool) error {
	gone := func() {
		one.fault = context.Canceled
		for one.state != ended {
			one.resume()
		}
	}
	if exchangeFirst {
		gone()
	}
	one.st.close()
	if !exchangeFirst {
		gone()
	}
	sim.server.admission.closeStream(nil)
	one.spec.Close()
	return nil
}

// reasonIn returns the reason of a status, or "".
func reasonIn(err error) string { return spec.ReasonOf(status.Convert(err).Proto()) }

func resultsOf(replies []*ckdv1.DecomposeStreamResponse) (all []*ckdv1.Result) {
	for _, m := range replies {
		all = append(all, m.GetResults()...)
	}
	return all
}

// show writes a message for the history.
func show(m proto.Message) string {
	if !m.ProtoReflect().IsValid() {
		return "nothing"
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// free, hog, give and held are all that a simulation knows of the budget.

func (sim *simulation) free() int64 { return sim.server.budget.limit - sim.server.budget.total() }

func (sim *simulation) hog(bytes int64) {
	sim.server.budget.shared.Add(max(bytes, 0))
	sim.hogged += max(bytes, 0)
}

func (sim *simulation) give() {
	sim.server.budget.shared.release(sim.hogged)
	sim.hogged = 0
}

// held returns the bytes that clients hold.
func (sim *simulation) held() int64 { return sim.server.budget.total() - sim.hogged }
