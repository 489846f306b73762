package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestSendStall checks that a client which writes and never reads is cut off, holds nothing
// afterwards, and disturbs no other.
func TestSendStall(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.SendStall = 300 * time.Millisecond })
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: ckdv1.Detail_DETAIL_FULL})
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprintf("%0200d", i)
	}
	values := slices.Concat(slices.Repeat(safeRow, len(ids)), slices.Repeat(criticalRow, len(ids)))
	cut := make(chan struct{})
	go func() { // flow control blocks it, until the stream ends
		defer close(cut)
		for g := range uint64(100_000) {
			if st.Send(block(&ckdv1.Block{Group: g, InputIds: ids, Passes: 2, Values: values, Final: true})) != nil {
				return
			}
		}
	}()
	// The daemon ends the stream though the client still does not read.
	h.eventually(t, 1, "ckd_in_use", "resource", "streams")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
	h.eventually(t, 0, "ckd_inputs_open")
	// When the client reads, it finds what was sent, and then why there is no more.
	st.ended("SEND_STALLED")
	<-cut
	other := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	other.sendBlock(&ckdv1.Block{InputIds: []string{"x"}, Passes: 2, Values: slices.Concat(safeRow, safeRow), Final: true})
	if got := other.rest(); len(got) != 1 {
		t.Errorf("another stream: %v", got)
	}
}

// TestInputIdle checks that an open input without further passes fails, and says how many it had. A stream
// without inputs goes on.
func TestInputIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Limits.InputIdle, o.Limits.CallTime = 400*time.Millisecond, 400*time.Millisecond })
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		time.Sleep(time.Second)
		st.sendBlock(&ckdv1.Block{InputIds: []string{"idle"}, Values: safeRow})
		results := st.receive().GetResults()
		if got := expectError(t, results[0].GetError(), "INPUT_IDLE").Metadata["value"]; got != "1 passes" {
			t.Errorf("the idle input has %s, want 1 passes", got)
		}
		h.eventually(t, 1, "ckd_inputs_rejected_total", "reason", "input_idle")
	})
}

// TestDrain checks that a draining stream opens no inputs, finishes the open ones and then ends,
// and that a stuck stream ends when the daemon waits no longer.
func TestDrain(t *testing.T) {
	h := newHarness(t)
	busy, quiet, stuck := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	busy.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
	stuck.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"b"}, Values: safeRow})
	h.eventually(t, 2, "ckd_inputs_open")
	h.server.Drain()
	quiet.ended("DRAINING")
	for group := uint64(2); ; group++ { // each stream learns of it at a time of its own
		busy.sendBlock(&ckdv1.Block{Group: group, InputIds: []string{"new"}, Passes: 2, Values: slices.Repeat(safeRow, 2), Final: true})
		if refused := busy.receive().GetResults()[0].GetError(); refused != nil {
			expectError(t, refused, "DRAINING")
			break
		}
	}
	busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
	if n := len(busy.ended("DRAINING")); n != 1 {
		t.Errorf("%d inputs are answered, want the open one", n)
	}
	h.eventually(t, 1, "ckd_in_use", "resource", "streams")
	h.server.Kill()
	stuck.ended("DRAINING")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
	h.eventually(t, 1, "ckd_inputs_abandoned_total")
}

// TestStreamAge checks that an old stream drains while the daemon goes on, and ends even if its inputs do
// not.
func TestStreamAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Limits.StreamAge, o.Limits.DrainGrace = 300*time.Millisecond, time.Second })
		st, stuck := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		for _, one := range []*clientStream{st, stuck} {
			one.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
		}
		time.Sleep(500 * time.Millisecond)
		st.sendBlock(&ckdv1.Block{Group: 1, Values: safeRow, Final: true})
		if n := len(st.ended("DRAINING")); n != 1 {
			t.Errorf("%d inputs are answered, want 1", n)
		}
		h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		stuck.ended("DRAINING")
		h.eventually(t, 1, "ckd_inputs_abandoned_total")
	})
}

// TestPolicyChangedMeanwhile checks that a stream ends if its policy is replaced after it has
// opened and before its supervisor looks for changes.
func TestPolicyChangedMeanwhile(t *testing.T) {
	s, _, _ := newServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := &ckdv1.StreamHeader{Model: "open-ended"}
	m, err := s.streams.readHeader(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	opened, exchanged := make(chan *stream, 1), make(chan error)
	opened <- newStream(s.decider, m, h, &scriptedStream{ctx: ctx}, issuer{from: s.receipts})
	if err := s.SetPolicies(parsePolicies(t, strings.Replace(testPolicies, "name: open-ended", "name: another", 1))); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { close(exchanged) })
	defer stop()
	if err := s.streams.superviseStream(ctx, opened, exchanged); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the stream ends with %v, want FailedPrecondition", err)
	}
}

// TestPolicyChanged checks that, if a reload removes the model, a stream without inputs ends, and another once
// its inputs have finished under the old policy. Only then do the series of the model go.
func TestPolicyChanged(t *testing.T) {
	h := newHarness(t)
	busy, quiet := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	busy.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
	h.eventually(t, 1, "ckd_inputs_open")
	h.set(t, strings.Replace(testPolicies, "name: open-ended", "name: another", 1))
	quiet.ended("POLICY_CHANGED")
	if h.metric(t, "ckd_inputs_open", "model", "open-ended") != 1 {
		t.Error("the series went before the last input ended")
	}
	busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
	if got := busy.ended("POLICY_CHANGED"); len(got) != 1 || got[0].GetDecomposition() == nil {
		t.Errorf("the open input: %v", got)
	}
	if !within(func() bool { return len(servertest.Series(t, h.registry, "", "model", "open-ended")) == 0 }) {
		t.Error("the model still has series")
	}
}

// TestPanicInOneInput checks that a panic while one input is decided ends its stream with Internal
// and a fixed text, is logged with its stack and counted, and holds nothing. Other streams go on.
func TestPanicInOneInput(t *testing.T) {
	h := newHarness(t)
	set := parsePolicies(t, testPolicies)
	p, _ := set.Get("open-ended")
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Gate, p.Critical = policy.AnyCritical, []int{99} // Decide looks for a class that does not exist
	before := h.server.catalog.models()
	broken := models{"ctg": before["ctg"], "open-ended": &model{
		lean: scratchPool{Model: m}, metrics: before["open-ended"].metrics, ref: before["open-ended"].ref,
		standing: before["open-ended"].standing,
	}}
	other := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	h.server.catalog.current.Store(&broken)

	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}, Passes: 2, Values: slices.Concat(safeRow, safeRow, safeRow, safeRow)})
	st.sendBlock(&ckdv1.Block{Rows: []uint32{0}, Final: true})
	if got := st.ended("INTERNAL"); len(got) != 0 {
		t.Errorf("answers %v", got)
	}
	h.expectPanic(t, "Decide")
	h.eventually(t, 1, "ckd_panics_total")
	h.eventually(t, 0, "ckd_inputs_open")
	h.eventually(t, 2, "ckd_inputs_abandoned_total", "model", "open-ended")
	if left := other.rest(); len(left) != 0 {
		t.Errorf("the other stream: %v", left)
	}
}

// TestFaultsAreLoggedOnce checks that a stream logs each reason once, without ids of the client.
func TestFaultsAreLoggedOnce(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	for g := range uint64(20) {
		st.sendBlock(&ckdv1.Block{Group: g, InputIds: []string{"patient-17"}, Values: []float32{0.5, 0.25}})
		st.sendBlock(&ckdv1.Block{Group: g, InputIds: []string{"patient-17"}, Values: []float32{-1, 2}})
	}
	st.rest()
	reasons := map[any]int{}
	for _, e := range h.logs.All() {
		if strings.Contains(fmt.Sprint(e.ContextMap()), "patient") {
			t.Errorf("a line of the log has the client's id: %v", e)
		}
		if strings.HasPrefix(e.Message, "inputs were refused") {
			reasons[e.ContextMap()["reason"]]++
		}
	}
	if len(reasons) != 2 || reasons["sum_not_one"] != 1 || reasons["negative"] != 1 {
		t.Errorf("logged %v", reasons)
	}
	h.eventually(t, 40, "ckd_inputs_rejected_total", "model", "open-ended")
}

// TestPolicyWithinLimits checks that a policy is refused if no input of it could be taken.
func TestPolicyWithinLimits(t *testing.T) {
	s, _, _ := newServer(t, func(o *Options) { o.Limits.Classes = 3 })
	for name, c := range map[string]struct{ policy, want string }{
		"classes":         {"classes: [a, b, c, d], critical: [d]", "4 classes, over the daemon's limit of 3"},
		"expected passes": {"classes: [a, b], critical: [b], passes: {expected: 1000000}", "1000000 expected passes, over the daemon's limit of 100000"},
		"fewest passes":   {"classes: [a, b], critical: [b], passes: {fewest: 500000}", "500000 fewest passes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.SetPolicies(parsePolicies(t, "models: [{name: large, "+c.policy+"}]"))
			if err == nil || !strings.Contains(err.Error(), `model "large": `+c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := s.catalog.find(t.Context(), "ctg"); err != nil {
		t.Errorf("the policies before are gone: %v", err)
	}
}

// TestOwnMethodsHaveSeries checks that the methods of ckd.v1 have their series from the start, one
// for each code. Those of other services appear with their first call.
func TestOwnMethodsHaveSeries(t *testing.T) {
	h := newHarness(t)
	series := func(service string) int { return len(servertest.Series(t, h.registry, "", "grpc_service", service)) }
	if n := series("ckd.v1.UncertaintyService"); n != 4*(4+17) {
		t.Errorf("%d series of ckd.v1, want four metrics without a code and one with 17 codes for each of four methods", n)
	}
	health := healthv1.Health_ServiceDesc.ServiceName
	if n := series(health); n != 0 {
		t.Errorf("%d series of the health before its first call", n)
	}
	if _, err := healthv1.NewHealthClient(h.conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, 1, "grpc_server_handled_total", "grpc_service", health)
}

// TestMessagesAreCounted checks that the messages of streams and calls are counted.
func TestMessagesAreCounted(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	for group := range uint64(5) {
		st.sendBlock(&ckdv1.Block{Group: group, InputIds: []string{"a"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
		st.receive()
	}
	st.rest()
	method := []string{"grpc_method", "DecomposeStream"}
	h.eventually(t, 1, "grpc_server_handled_total", append(method, "grpc_code", "OK")...)
	h.eventually(t, 6, "grpc_server_msg_received_total", method...)
	h.eventually(t, 6, "grpc_server_msg_sent_total", method...)
	if _, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{}); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, 1, "grpc_server_msg_received_total", "grpc_method", "ListModels")
}
