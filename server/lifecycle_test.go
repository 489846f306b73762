package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ended reads a stream to its end and holds the status against what is wanted.
func (s *stream) ended(code codes.Code, reason ckdv1.ErrorReason) (results []*ckdv1.Result) {
	s.t.Helper()
	for {
		m, err := s.Recv()
		if err == nil {
			results = append(results, m.GetResults()...)
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != code {
			s.t.Errorf("the stream ended with %v, want %v", err, code)
		}
		if code != codes.OK {
			if got, _ := reasonIn(s.t, status.Convert(err).Proto()); got != reason {
				s.t.Errorf("the stream ended with %v, want %v", got, reason)
			}
		}
		return results
	}
}

func parsePolicies(t testing.TB, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSendStall: a client that writes and never reads is cut off, holds nothing
// any more, and disturbs nobody.
func TestSendStall(t *testing.T) {
	limits := DefaultLimits()
	limits.SendStall = 300 * time.Millisecond
	h := newHarness(t, limits)
	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended", Detail: ckdv1.Detail_DETAIL_FULL})
	ids, values := make([]string, 100), []float32{}
	for i := range ids {
		ids[i] = fmt.Sprintf("%0200d", i)
	}
	values = append(values, slices.Repeat(safeRow, len(ids))...)
	values = append(values, slices.Repeat(criticalRow, len(ids))...)
	cut := make(chan struct{})
	go func() { // until the flow control holds it up, and then the end frees it
		defer close(cut)
		for g := range uint64(100_000) {
			if st.Send(block(&ckdv1.Block{Group: g, InputIds: ids, Passes: 2, Values: values, Final: true})) != nil {
				return
			}
		}
	}()
	// The daemon lets go though the client still does not read.
	h.eventually(t, 1, "ckd_streams_open")
	h.eventually(t, 0, "ckd_streams_open")
	h.eventually(t, 0, "ckd_inputs_open")
	// When it does, it finds what had been sent, and then why there is no more.
	st.ended(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED)
	<-cut
	other := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	other.sendBlock(&ckdv1.Block{InputIds: []string{"x"}, Passes: 2, Values: slices.Concat(safeRow, safeRow), Final: true})
	if got := other.rest(); len(got) != 1 {
		t.Errorf("another stream: %v", got)
	}
}

// TestInputIdle: an open input without passes fails alone; the input beside it
// that has some, and the quiet stream, go on.
func TestInputIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.InputIdle = 400 * time.Millisecond
		h := newHarness(t, limits)
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
		if reason, meta := reasonIn(t, results[0].GetError()); reason != ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE || meta["value"] != "1 passes" {
			t.Errorf("%v %v", reason, meta)
		}
		<-busy
		if left := st.rest(); len(left) != 1 || left[0].GetInputId() != "busy" || left[0].GetDecomposition().GetPasses() != 13 {
			t.Errorf("the other input: %v", left)
		}
		h.eventually(t, 1, "ckd_inputs_rejected_total", "reason", "input_idle")
	})
}

// TestDrain: no new inputs, the open ones finish, and then the stream ends. A
// stream that is stuck is ended when the daemon will not wait any longer.
func TestDrain(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	busy, quiet, stuck := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	busy.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
	stuck.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"b"}, Values: safeRow})
	h.eventually(t, 2, "ckd_inputs_open")
	h.server.Drain()
	quiet.ended(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING)
	for group := uint64(2); ; group++ { // each stream learns of it in its own time
		busy.sendBlock(&ckdv1.Block{Group: group, InputIds: []string{"new"}, Passes: 2, Values: slices.Repeat(safeRow, 2), Final: true})
		if reply := busy.receive(); reply.GetResults()[0].GetError() != nil {
			expectReasons(t, reply, map[string]ckdv1.ErrorReason{"new": ckdv1.ErrorReason_ERROR_REASON_DRAINING})
			break
		}
	}
	busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
	if got := rowsIn(busy.ended(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("while draining: %v", got)
	}
	h.eventually(t, 1, "ckd_streams_open")
	h.server.Kill()
	stuck.ended(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING)
	h.eventually(t, 0, "ckd_streams_open")
	h.eventually(t, 1, "ckd_inputs_abandoned_total")
}

// TestStreamAge: an old stream drains by itself; the daemon goes on.
func TestStreamAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.StreamAge = 300 * time.Millisecond
		h := newHarness(t, limits)
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
		time.Sleep(500 * time.Millisecond)
		st.sendBlock(&ckdv1.Block{Group: 1, Values: safeRow, Final: true})
		if got := rowsIn(st.ended(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING)); !slices.Equal(got, []string{"a"}) {
			t.Errorf("of an old stream: %v", got)
		}
		h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	})
}

// TestStreamAgeDeadline: an old stream whose inputs do not come to an end is
// ended all the same.
func TestStreamAgeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.StreamAge, limits.DrainGrace = 100*time.Millisecond, 300*time.Millisecond
		h := newHarness(t, limits)
		st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
		st.ended(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING)
		h.eventually(t, 1, "ckd_inputs_abandoned_total")
		h.eventually(t, 0, "ckd_inputs_open")
	})
}

// TestReload: an input keeps the policy that it opened under, the next one of
// the same stream has the new one, and a reply tells which is whose.
func TestReload(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	passes := ctg(t)
	row := func(s int) []float32 { return rowsOfPass(passes, s, 0, 1) }
	send := func(group uint64, id string, from, to int) {
		var ids []string
		if id != "" {
			ids = []string{id}
		}
		var values []float32
		for s := from; s < to; s++ {
			values = append(values, row(s)...)
		}
		st.sendBlock(&ckdv1.Block{Group: group, InputIds: ids, Passes: uint32(to - from), Values: values})
	}
	send(1, "old", 0, 29)
	h.eventually(t, 1, "ckd_inputs_open", "model", "ctg")
	if err := h.server.SetPolicies(parsePolicies(t, strings.ReplaceAll(testPolicies, "threshold: 0.003", "threshold: 0.5"))); err != nil {
		t.Fatal(err)
	}
	send(2, "new", 0, 30)
	reply := st.receive()
	newHash := reply.GetPolicies()[0].GetHash()
	if d := reply.GetResults()[0].GetDecomposition().GetDecision(); d.GetThreshold() != 0.5 || d.GetAction() != ckdv1.Action_ACTION_RETAIN {
		t.Errorf("after the reload: %v", d)
	}
	send(1, "", 29, 30)
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

// TestPolicyChangedMeanwhile replaces the policies after a stream has opened, and before
// its supervisor looks for changes: the stream ends all the same.
func TestPolicyChangedMeanwhile(t *testing.T) {
	s, _, _ := newServer(t, DefaultLimits())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := &ckdv1.StreamHeader{Model: "open-ended"}
	m, err := s.readHeader(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	opened, exchanged := make(chan *session, 1), make(chan error)
	opened <- newSession(s, m, h, &scriptedStream{ctx: ctx})
	if err := s.SetPolicies(parsePolicies(t, strings.Replace(testPolicies, "name: open-ended", "name: another", 1))); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { close(exchanged) })
	defer stop()
	if err := s.supervise(ctx, opened, exchanged); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the stream ends with %v, want FailedPrecondition", err)
	}
}

// TestPolicyChanged: if the reload removes the model, or changes the shape of
// its inputs, open inputs finish under the old policy, and then the stream ends.
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
			h := newHarness(t, DefaultLimits())
			busy, quiet := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"}), h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
			busy.sendBlock(&ckdv1.Block{Group: 1, InputIds: []string{"a"}, Values: safeRow})
			h.eventually(t, 1, "ckd_inputs_open")
			if err := h.server.SetPolicies(parsePolicies(t, change(testPolicies))); err != nil {
				t.Fatal(err)
			}
			quiet.ended(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED)
			busy.sendBlock(&ckdv1.Block{Group: 2, InputIds: []string{"b"}, Values: safeRow})
			expectReasons(t, busy.receive(), map[string]ckdv1.ErrorReason{"b": ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED})
			if name == "removed" && h.metric(t, "ckd_inputs_open", "model", "open-ended") != 1 {
				t.Error("the series went before the last input ended")
			}
			busy.sendBlock(&ckdv1.Block{Group: 1, Values: criticalRow, Final: true})
			got := busy.ended(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED)
			if len(got) != 1 || got[0].GetDecomposition() == nil {
				t.Errorf("the open input: %v", got)
			}
			if name == "removed" {
				h.gone(t, "open-ended")
			}
		})
	}
}

// gone waits until a model has no series.
func (h *harness) gone(t *testing.T, model string) {
	t.Helper()
	series := 0
	for range 6000 {
		series = 0
		families, err := h.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "model" && l.GetValue() == model {
						series++
					}
				}
			}
		}
		if series == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("model %s still has %d series", model, series)
}

// TestReloadStorm: streams under way while policies change all the time. Every
// input is answered once, by one of the policies that there were, and nothing is
// left. It is for the race detector.
func TestReloadStorm(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	sets := []*policy.Set{parsePolicies(t, testPolicies), parsePolicies(t, strings.ReplaceAll(testPolicies, "threshold: 0.003", "threshold: 0.5")),
		parsePolicies(t, strings.ReplaceAll(testPolicies, "version: v1", "version: v2"))}
	ctx, stop := context.WithCancel(t.Context())
	stormed := make(chan error, 1)
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
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
				b = &ckdv1.Block{Group: g, Passes: 15, Values: b.Values}
				st.sendBlock(b)
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
	if n := h.server.openBytes.Load(); n != 0 {
		t.Errorf("%d bytes of open inputs are left", n)
	}
}

// TestPanicInOneInput: a panic while one input is decided ends its stream with
// Internal and a fixed text, is logged with its stack and counted, and leaves
// nothing behind; other streams go on.
func TestPanicInOneInput(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	set := parsePolicies(t, testPolicies)
	p, _ := set.Get("open-ended")
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Gate, p.Critical = policy.AnyCritical, []int{99} // Decide will look for a class that is not there
	models := *h.server.catalog.Load()
	broken := catalog{"ctg": models["ctg"], "open-ended": &model{
		lean: workshop{Model: m}, metrics: models["open-ended"].metrics, ref: models["open-ended"].ref, calibration: newCalibration(p),
	}}
	other := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	h.server.catalog.Store(&broken)

	st := h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})
	st.sendBlock(&ckdv1.Block{InputIds: []string{"a", "b"}, Passes: 2, Values: slices.Concat(safeRow, safeRow, safeRow, safeRow)})
	st.sendBlock(&ckdv1.Block{Rows: []uint32{0}, Final: true})
	if got := st.ended(codes.Internal, ckdv1.ErrorReason_ERROR_REASON_INTERNAL); len(got) != 0 {
		t.Errorf("answers %v", got)
	}
	h.eventually(t, 1, "ckd_panics_total")
	h.eventually(t, 0, "ckd_inputs_open")
	h.eventually(t, 2, "ckd_inputs_abandoned_total", "model", "open-ended")
	if n := h.server.openBytes.Load(); n != 0 {
		t.Errorf("%d bytes of open inputs are left", n)
	}
	found := false
	for _, e := range h.logs.FilterMessage("panic in a call").All() {
		stack, _ := e.ContextMap()["stack"].(string)
		found = found || strings.Contains(stack, "Decide")
	}
	if !found {
		t.Errorf("no line of the log has the stack: %v", h.logs.All())
	}
	if left := other.rest(); len(left) != 0 {
		t.Errorf("the other stream: %v", left)
	}
}

// TestFaultsAreLoggedOnce on a stream for each reason, without the client's ids.
func TestFaultsAreLoggedOnce(t *testing.T) {
	h := newHarness(t, DefaultLimits())
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
		if strings.HasPrefix(e.Message, "an input was refused") {
			reasons[e.ContextMap()["reason"]]++
		}
	}
	if len(reasons) != 2 || reasons["sum_not_one"] != 1 || reasons["negative"] != 1 {
		t.Errorf("logged %v", reasons)
	}
	h.eventually(t, 40, "ckd_inputs_rejected_total", "model", "open-ended")
}

// TestPolicyWithinLimits: a policy whose inputs could never be taken is not put
// in force.
func TestPolicyWithinLimits(t *testing.T) {
	limits := DefaultLimits()
	limits.Classes = 3
	s, _, _ := newServer(t, limits)
	for text, want := range map[string]string{
		"models: [{name: big, classes: [a, b, c, d], critical: [d]}]":                         `model "big": 4 classes, over the daemon's limit of 3`,
		"models: [{name: long, classes: [a, b], critical: [b], passes: {expected: 1000000}}]": `model "long": 1000000 expected passes, over the daemon's limit of 100000`,
		"models: [{name: least, classes: [a, b], critical: [b], passes: {fewest: 500000}}]":   `model "least": 500000 fewest passes`,
	} {
		if err := s.SetPolicies(parsePolicies(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := s.model(t.Context(), "ctg"); err != nil {
		t.Errorf("the policies before are gone: %v", err)
	}
}

// TestOwnMethodsHaveSeries from the start, one for each code; those of other services
// appear with their first call.
func TestOwnMethodsHaveSeries(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	const own = "ckd.v1.UncertaintyService"
	services := func() map[string]int {
		found := map[string]int{}
		families, err := h.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "grpc_service" {
						found[l.GetValue()]++
					}
				}
			}
		}
		return found
	}
	if got := services(); len(got) != 1 || got[own] != 4*(4+17) { // four methods: four metrics without a code, one with
		t.Errorf("series at the start: %v", got)
	}
	if _, err := healthv1.NewHealthClient(h.conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, 1, "grpc_server_handled_total", "grpc_service", healthv1.Health_ServiceDesc.ServiceName)
	if got := services(); len(got) != 2 {
		t.Errorf("series after a health check: %v", got)
	}
}

// TestMessagesAreCounted, though they pass the interceptors by.
func TestMessagesAreCounted(t *testing.T) {
	h := newHarness(t, DefaultLimits())
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
