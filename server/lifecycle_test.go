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

// TestInputIdle checks that an open input without passes fails alone. An input that has some, and a
// stream without inputs, go on.
func TestInputIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Limits.InputIdle, o.Limits.CallTime = 400*time.Millisecond, 400*time.Millisecond })
		quiet := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"idle", "busy"}, Values: slices.Concat(safeRow, safeRow)})
		busy := make(chan struct{})
		go func() {
			defer close(busy)
			for range 12 {
				time.Sleep(80 * time.Millisecond)
				_ = st.Send(block(&ckdv1.Block{Group: 1, Rows: []uint32{1}, Values: criticalRow})) // the receiver sees a failure
			}
		}()
		results := st.receive().GetResults()
		if len(results) != 1 || results[0].GetInputId() != "idle" {
			t.Fatalf("expired: %v", results)
		}
		if got := expectError(t, results[0].GetError(), "INPUT_IDLE").Metadata["value"]; got != "1 passes" {
			t.Errorf("the idle input has %s, want 1 passes", got)
		}
		<-busy
		if left := st.rest(); len(left) != 1 || left[0].GetInputId() != "busy" || left[0].GetDecomposition().GetPasses() != 13 {
			t.Errorf("the other input: %v", left)
		}
		h.eventually(t, 1, "ckd_inputs_rejected_total", "reason", "input_idle")
		quiet.sendBlock(&ckdv1.Block{InputIds: []string{"a"}, Passes: 2, Values: slices.Concat(safeRow, criticalRow), Final: true})
		expectIDs(t, quiet.rest(), "a")
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
		if reply := busy.receive(); reply.GetResults()[0].GetError() != nil {
			expectReasons(t, reply, map[string]string{"new": "DRAINING"})
			break
		}
	}
	busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
	expectIDs(t, busy.ended("DRAINING"), "a")
	h.eventually(t, 1, "ckd_in_use", "resource", "streams")
	h.server.Kill()
	stuck.ended("DRAINING")
	h.eventually(t, 0, "ckd_in_use", "resource", "streams")
	h.eventually(t, 1, "ckd_inputs_abandoned_total")
}

// TestStreamAge checks that an old stream drains while the daemon goes on.
func TestStreamAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Limits.StreamAge = 300 * time.Millisecond })
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
		time.Sleep(500 * time.Millisecond)
		st.sendBlock(&ckdv1.Block{Group: 1, Values: safeRow, Final: true})
		expectIDs(t, st.ended("DRAINING"), "a")
		h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	})
}

// TestStreamAgeDeadline checks that an old stream ends even if its inputs do not.
func TestStreamAgeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Limits.StreamAge, o.Limits.DrainGrace = 100*time.Millisecond, 300*time.Millisecond })
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
		st.ended("DRAINING")
		h.eventually(t, 1, "ckd_inputs_abandoned_total")
		h.eventually(t, 0, "ckd_inputs_open")
	})
}

// TestReload checks that an input keeps the policy that it opened under, that the next input of the
// same stream has the new one, and that a reply says which input has which.
func TestReload(t *testing.T) {
	h := newHarness(t)
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	old := segment{group: 1, n: 1}
	st.sendPasses(old, 0, 29)
	h.eventually(t, 1, "ckd_inputs_open", "model", "ctg")
	h.set(t, strings.ReplaceAll(testPolicies, "threshold: 0.003", "threshold: 0.5"))
	st.sendPasses(segment{group: 2, n: 1}, 0, 30)
	reply := st.receive()
	newHash := reply.GetPolicies()[0].GetHash()
	if d := reply.GetResults()[0].GetDecomposition().GetDecision(); d.GetThreshold() != 0.5 || d.GetAction() != ckdv1.Action_ACTION_RETAIN {
		t.Errorf("after the reload: %v", d)
	}
	st.sendPasses(old, 29, 30)
	reply = st.receive()
	if d := reply.GetResults()[0].GetDecomposition().GetDecision(); d.GetThreshold() != 0.003 || d.GetAction() != ckdv1.Action_ACTION_DEFER {
		t.Errorf("opened before the reload: %v", d)
	}
	if oldHash := reply.GetPolicies()[0].GetHash(); oldHash == newHash || oldHash == "" {
		t.Errorf("hashes %q and %q", oldHash, newHash)
	}
	h.eventually(t, 1, "ckd_policy_info", "model", "ctg")
	if n := len(st.rest()); n != 0 {
		t.Errorf("%d results more", n)
	}
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

// TestPolicyChanged checks that, if a reload removes the model or changes the shape of its inputs,
// open inputs finish under the old policy and then the stream ends.
func TestPolicyChanged(t *testing.T) {
	for name, change := range map[string]func(string) string{
		"removed":      func(s string) string { return strings.Replace(s, "name: open-ended", "name: another", 1) },
		"classes":      func(s string) string { return strings.Replace(s, "[safe, critical]", "[safe, more, critical]", 1) },
		"class order":  func(s string) string { return strings.Replace(s, "[safe, critical]", "[critical, safe]", 1) },
		"passes":       func(s string) string { return strings.Replace(s, "passes: {fewest: 2}", "passes: {fewest: 3}", 1) },
		"kind":         func(s string) string { return strings.Replace(s, "gate: never", "kind: logits\n    gate: never", 1) },
		"all the rest": func(string) string { return "models: [{name: only, classes: [a, b], critical: [b]}]" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			busy, quiet := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
			busy.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
			h.eventually(t, 1, "ckd_inputs_open")
			h.set(t, change(testPolicies))
			quiet.ended("POLICY_CHANGED")
			busy.sendBlock(&ckdv1.Block{Group: 2, InputIds: []string{"b"}, Values: safeRow})
			expectReasons(t, busy.receive(), map[string]string{"b": "POLICY_CHANGED"})
			if name == "removed" && h.metric(t, "ckd_inputs_open", "model", "open-ended") != 1 {
				t.Error("the series went before the last input ended")
			}
			busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
			got := busy.ended("POLICY_CHANGED")
			if len(got) != 1 || got[0].GetDecomposition() == nil {
				t.Errorf("the open input: %v", got)
			}
			if name == "removed" && !within(func() bool { return len(servertest.Series(t, h.registry, "", "model", "open-ended")) == 0 }) {
				t.Error("the model still has series")
			}
		})
	}
}

// TestReloadStorm changes policies a thousand times or more while streams are open. Every input must be
// answered once, by one of the policies that were in force, and nothing be left. It is for the race
// detector.
func TestReloadStorm(t *testing.T) {
	h := newHarness(t)
	sets := []*policy.Set{
		parsePolicies(t, testPolicies),
		parsePolicies(t, strings.ReplaceAll(testPolicies, "threshold: 0.003", "threshold: 0.5")),
		parsePolicies(t, strings.ReplaceAll(testPolicies, "version: v1", "version: v2")),
	}
	ctx, stop := context.WithCancel(t.Context())
	stormed := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil || i < 1000; i++ {
			if err := h.server.SetPolicies(sets[i%len(sets)]); err != nil {
				stormed <- err
				return
			}
		}
		stormed <- nil
	}()
	passes := ctg(t)
	const streams, inputs = 4, 200
	finished := make(chan int, streams)
	for range streams {
		go func() {
			st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
			for g := range uint64(inputs) {
				b := &ckdv1.Block{Group: g, InputIds: []string{"x"}, Passes: 15}
				for s := range 15 {
					b.Values = append(b.Values, rowsOfPass(passes, s, int(g), int(g)+1)...)
				}
				st.sendBlock(b)
				st.sendBlock(&ckdv1.Block{Group: g, Passes: 15, Values: b.Values})
			}
			answered := 0
			for _, r := range st.rest() {
				if r.GetDecomposition() != nil {
					answered++
				}
			}
			finished <- answered
		}()
	}
	for range streams {
		if n := <-finished; n != inputs {
			t.Errorf("%d inputs answered, want %d", n, inputs)
		}
	}
	stop()
	if err := <-stormed; err != nil {
		t.Error(err)
	}
	h.eventually(t, 0, "ckd_inputs_open")
	h.eventually(t, streams*inputs, "ckd_decisions_total", "model", "ctg")
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
