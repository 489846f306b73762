package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/spec"
)

// TestSimulatedClients runs package client against daemons over connections in memory that are slow
// and break, while policies are replaced and daemons stop and are replaced. A seed gives the same
// traffic, faults and virtual time; only the scheduler differs. Every input must have one answer,
// which package spec predicts, and the daemons must have counted every input once for each time
// that they took it.
func TestSimulatedClients(t *testing.T) {
	if *seed != 0 {
		simulateClients(t, *seed)
		return
	}
	n := *seeds / 20
	if n == 0 {
		if n = 60; testing.Short() {
			n = 20
		}
	}
	for s := range uint64(n) {
		if simulateClients(t, s+1); t.Failed() {
			return
		}
	}
}

// simulateClients runs one seed and says what happened if it fails.
func simulateClients(t *testing.T, s uint64) {
	t.Helper()
	w := &world{seed: s, faulty: s%3 > 0}
	synctest.Test(t, w.run)
	if t.Failed() || *seed != 0 {
		t.Logf("seed %d:\n%s\nTo replay: go test ./server -run '^TestSimulatedClients$' -seed %d", s, strings.Join(w.history, "\n"), s)
	}
}

// world is some clients and the daemon that they reach at the time.
type world struct {
	seed   uint64
	faulty bool // connections break and daemons are replaced
	sets   []policySet

	mu      sync.Mutex
	begun   time.Time
	history []string
	daemons []*daemon
	conns   []net.Conn
	broken  int                     // connections and daemons
	bound   map[string]*spec.Policy // by hash
	judge   *spec.Server            // predicts answers
	decided int                     // answers that clients have, by what they are
	refused int
}

// daemon is one process of the world.
type daemon struct {
	server   *Server
	registry *prometheus.Registry
	pipe     *bufconn.Listener
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf("%8v ", time.Since(w.begun))+fmt.Sprintf(format, args...))
}

func (w *world) run(t *testing.T) {
	sets, err := simulatedSets()
	if err != nil {
		t.Fatal(err)
	}
	w.begun, w.bound, w.judge = time.Now(), map[string]*spec.Policy{}, spec.NewServer(spec.Limits{})
	w.judge.Keys = receiptKeys(t, 1)
	w.sets = []policySet{sets[0], sets[1], sets[len(sets)-1]} // all of one shape
	for _, set := range w.sets {
		for _, p := range set.spec {
			w.bound[p.Hash] = p
		}
	}
	r := rand.New(rand.NewPCG(w.seed, 0))
	w.replaceDaemon(t, r)
	var clients, others sync.WaitGroup
	done := make(chan struct{})
	others.Go(func() { w.disturb(t, rand.New(rand.NewPCG(w.seed, 1)), done) })
	for i := range 1 + r.IntN(3) {
		clients.Go(func() { w.client(t, i, rand.New(rand.NewPCG(w.seed, uint64(i)+2))) })
	}
	clients.Wait()
	close(done)
	others.Wait()
	time.Sleep(time.Minute) // a client that was connecting when it was closed goes on for a while
	synctest.Wait()
	w.account(t)
}

// replaceDaemon starts a daemon that clients reach from now on, and stops the one before.
func (w *world) replaceDaemon(t *testing.T, r *rand.Rand) {
	srv, registry, _ := newServer(t, func(o *Options) { o.Limits.OpenInputsPerStream, o.Limits.InputIDBytes = 10, 16 })
	srv.SetReceiptKeys(w.judge.Keys)
	if err := srv.SetPolicies(w.sets[r.IntN(len(w.sets))].set); err != nil {
		t.Error(err)
	}
	next := &daemon{srv, registry, servertest.Serve(t, srv.GRPC())}
	w.mu.Lock()
	w.daemons = append(w.daemons, next)
	var before *daemon
	if n := len(w.daemons); n > 1 {
		before = w.daemons[n-2]
	}
	w.mu.Unlock()
	if before != nil {
		before.server.Drain()
	}
}

// disturb replaces policies and, in a faulty world, breaks connections and replaces daemons.
func (w *world) disturb(t *testing.T, r *rand.Rand, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(10+r.IntN(150)) * time.Millisecond):
		}
		w.mu.Lock()
		latest := w.daemons[len(w.daemons)-1]
		conns := slices.Clone(w.conns)
		w.mu.Unlock()
		switch what := r.IntN(6); {
		case what < 3 || !w.faulty:
			set := w.sets[r.IntN(len(w.sets))]
			w.logf("reload: %s", set.name)
			if err := latest.server.SetPolicies(set.set); err != nil {
				t.Error(err)
			}
		case what < 5 && len(conns) > 0:
			w.logf("a connection breaks")
			w.broken++
			_ = conns[r.IntN(len(conns))].Close() // it may be closed already
		case w.broken < 20:
			w.logf("another daemon")
			w.broken++
			w.replaceDaemon(t, r)
		}
	}
}

// slowConn delays what is written.
type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(c.delay)
	return c.Conn.Write(b)
}

// dial connects to the latest daemon.
func (w *world) dial(ctx context.Context, delay time.Duration) (net.Conn, error) {
	w.mu.Lock()
	latest := w.daemons[len(w.daemons)-1]
	w.mu.Unlock()
	conn, err := latest.pipe.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	return slowConn{conn, delay}, nil
}

// client opens a session and streams some groups on it.
func (w *world) client(t *testing.T, number int, r *rand.Rand) {
	delay := time.Duration(r.IntN(3)) * time.Millisecond
	c, err := client.Dial(servertest.Address, client.WithInsecure(), client.WithDialOptions(
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.dial(ctx, delay) })))
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	h := &ckdv1.StreamHeader{
		Model: "ctg", AcceptSettled: r.IntN(2) == 0, Detail: []ckdv1.Detail{client.Decision, client.Vectors, client.Full}[r.IntN(3)],
		Receipts: []ckdv1.Receipts{ckdv1.Receipts_RECEIPTS_UNSPECIFIED, ckdv1.Receipts_RECEIPTS_ALL}[r.IntN(2)],
	}
	s, err := c.Session(t.Context(), client.SessionConfig{
		Model: h.Model, AcceptSettled: h.AcceptSettled, Detail: h.Detail, Receipts: h.Receipts,
		Reconnect: client.Reconnect{Limit: time.Hour},
	})
	if err != nil {
		t.Errorf("client %d: %v", number, err)
		return
	}
	var groups sync.WaitGroup
	for g := range 4 + r.IntN(12) {
		ids := make([]string, 1+r.IntN(4))
		for i := range ids {
			if r.IntN(4) > 0 {
				ids[i] = fmt.Sprintf("%d-%d-%d", number, g, i)
			}
		}
		group, err := s.Open(t.Context(), ids)
		if err != nil {
			t.Errorf("client %d: %v", number, err)
			return
		}
		own := rand.New(rand.NewPCG(w.seed, r.Uint64()))
		groups.Go(func() { w.group(t, number, h, group, ids, own) })
	}
	groups.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("client %d: %v", number, err)
	}
}

// group sends the passes of some inputs, in blocks of all or of some, and judges the answers.
func (w *world) group(t *testing.T, number int, h *ckdv1.StreamHeader, g *client.Group, ids []string, r *rand.Rand) {
	ctg := w.sets[0].spec[slices.IndexFunc(w.sets[0].spec, func(p *spec.Policy) bool { return p.Name == "ctg" })]
	sent := make([][][]float32, len(ids)) // passes, by row
	early := r.IntN(5) == 0               // the client finishes before the last pass
	last := ctg.ExpectedPasses
	if early {
		last = 1 + r.IntN(last)
	}
	for !early || slices.ContainsFunc(sent, func(passes [][]float32) bool { return len(passes) < last }) {
		rows := g.Rows()
		rows = slices.DeleteFunc(rows, func(row int) bool { return len(sent[row]) >= last })
		if len(rows) == 0 {
			break
		}
		if len(rows) > 1 && r.IntN(3) == 0 { // some of them
			rows = rows[:1+r.IntN(len(rows)-1)]
		}
		var values []float32
		for _, row := range rows {
			pass := ctg.Row(r)
			sent[row] = append(sent[row], pass)
			values = append(values, pass...)
		}
		if err := g.SendRows(rows, values); err != nil {
			t.Errorf("client %d: %v", number, err)
			return
		}
		if h.AcceptSettled && r.IntN(2) == 0 {
			if err := g.Sync(t.Context()); err != nil {
				t.Errorf("client %d: %v", number, err)
			}
		}
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	}
	if early {
		if err := g.Finish(); err != nil {
			t.Errorf("client %d: %v", number, err)
		}
	}
	answers := map[int]int{}
	for result := range g.Results() {
		answers[result.Row]++
		if err := w.answered(h, result, sent[result.Row]); err != nil || answers[result.Row] > 1 {
			t.Errorf("client %d, input %q, answer %d: %v", number, ids[result.Row], answers[result.Row], err)
		}
	}
	if len(answers) != len(ids) {
		t.Errorf("client %d: %d of %d inputs are answered", number, len(answers), len(ids))
	}
}

// answered judges one answer.
func (w *world) answered(h *ckdv1.StreamHeader, result client.Result, passes [][]float32) error {
	reason := ""
	if result.Err != nil {
		if reason = strings.TrimPrefix(client.Reason(result.Err).String(), "ERROR_REASON_"); reason == "UNSPECIFIED" {
			return result.Err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.bound[result.Policy.GetHash()]
	if p == nil {
		return errors.New("no policy of that hash was in force")
	}
	if result.Err == nil {
		w.decided++
	} else {
		w.refused++
	}
	return w.judge.Judge(p, h, result.ID, passes, result.Decomposition, reason)
}

// account expects that nothing is left and that the daemons have counted what clients were
// answered: exactly, where no connection broke, and no less where inputs were sent again.
func (w *world) account(t *testing.T) {
	decided, refused, left := 0, 0, 0
	for i, d := range w.daemons {
		decided += int(servertest.Sum(t, d.registry, "ckd_decisions_total"))
		for _, reason := range []string{"not_finite", "negative", "above_one", "sum_not_one", "too_few_passes"} {
			refused += int(servertest.Sum(t, d.registry, "ckd_inputs_rejected_total", "reason", reason))
		}
		for _, metric := range []string{"ckd_inputs_open", "ckd_panics_total"} {
			if n := servertest.Sum(t, d.registry, metric); n != 0 {
				t.Errorf("daemon %d: %s is %v at the end", i, metric, n)
			}
		}
		left += int(servertest.Sum(t, d.registry, "ckd_inputs_abandoned_total"))
	}
	w.logf("%d decided and %d refused by clients, %d and %d by daemons, %d abandoned", w.decided, w.refused, decided, refused, left)
	if decided < w.decided || refused < w.refused || !w.faulty && (decided != w.decided || refused != w.refused || left != 0) {
		t.Errorf("daemons have counted %d decisions, %d refusals and %d abandoned inputs; clients have %d and %d answers",
			decided, refused, left, w.decided, w.refused)
	}
}
