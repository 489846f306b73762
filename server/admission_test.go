package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestOverload: calls whose requests have not even come in take room; a further
// one is refused with a delay after which to try again, while health answers and
// streams open, and is let in when there is room.
func TestOverload(t *testing.T) {
	limits := DefaultLimits()
	limits.Calls = 2
	h := newHarness(t, limits)
	held, release := context.WithCancel(t.Context())
	for range limits.Calls {
		method := ckdv1.UncertaintyService_Decompose_FullMethodName
		call, err := h.conn.NewStream(held, &grpc.StreamDesc{ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.SendMsg(&ckdv1.DecomposeRequest{}); err != nil { // and no half-close
			t.Fatal(err)
		}
	}
	list := func() error {
		_, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
		return err
	}
	if !within(func() bool { return h.server.calls.Load() == 2 }) {
		t.Fatalf("%d calls under way", h.server.calls.Load())
	}
	err := list()
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("a call too many: %v", err)
	}
	if reason, _ := reasonIn(t, status.Convert(err).Proto()); reason != ckdv1.ErrorReason_ERROR_REASON_OVERLOADED {
		t.Errorf("a call too many: %v", reason)
	}
	if got := retryDelay(err); got != retryCall {
		t.Errorf("to be tried again after %v, want %v", got, retryCall)
	}
	if n := h.metric(t, "ckd_inputs_rejected_total", "reason", "overloaded"); n != 1 {
		t.Errorf("%v calls counted as refused, want 1", n)
	}
	if _, err := healthv1.NewHealthClient(h.conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	h.open(t, &ckdv1.StreamHeader{Model: "open-ended"})

	release()
	if !within(func() bool { return list() == nil }) {
		t.Errorf("calls that ended still take room: %v", list())
	}
}

// TestProbesAreBounded: of probes and watches that send half a request and nothing more
// there are few at one time, and each for a moment only; then others are answered.
func TestProbesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		method   string
		most     int
		arriving func(*Server) int64
	}{
		"probes":  {healthv1.Health_Check_FullMethodName, probesAtOnce, func(s *Server) int64 { return s.probes.Load() }},
		"watches": {healthv1.Health_Watch_FullMethodName, 3, func(s *Server) int64 { return s.arriving.Load() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := DefaultLimits()
			limits.Calls = 3
			h := newHarness(t, limits)
			begin := func() grpc.ClientStream {
				t.Helper()
				call, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, c.method)
				if err != nil {
					t.Fatal(err)
				}
				if err := call.SendMsg(&healthv1.HealthCheckRequest{}); err != nil { // and no half-close
					t.Fatal(err)
				}
				return call
			}
			first := begin()
			for range c.most - 1 {
				begin()
			}
			complete := func() error {
				call := begin()
				if err := call.CloseSend(); err != nil {
					t.Fatal(err)
				}
				return call.RecvMsg(&healthv1.HealthCheckResponse{})
			}
			if !within(func() bool { return c.arriving(h.server) == int64(c.most) }) {
				t.Fatalf("%d are under way", c.arriving(h.server))
			}
			if err := complete(); status.Code(err) != codes.ResourceExhausted || retryDelay(err) != retryCall {
				t.Errorf("one too many: %v", err)
			}
			if err := first.RecvMsg(&healthv1.HealthCheckResponse{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("one that does not go on: %v", err)
			}
			if !within(func() bool { return complete() == nil }) {
				t.Errorf("those that ended still take room: %v", complete())
			}
		})
	}
}

// TestWatchesAreBounded: the daemon has no more watches open than it may, nor has an
// identity, of which each may have as many as it may have streams where nothing else is
// said. A watch that ends makes room.
func TestWatchesAreBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.Watches = 6
	file := "identities:\n"
	for name, rights := range map[string]string{"ann": "streams: 1", "ben": "streams: 1, watches: 3", "chief": "streams: 1, watches: 0"} {
		_, tokens := tokenOf(name)
		file += "- {name: " + name + ", " + tokens + ", " + rights + "}\n"
	}
	h := newHarness(t, limits, withIdentities(t, file))
	watch := func(ctx context.Context) error {
		t.Helper()
		w, err := healthv1.NewHealthClient(h.conn).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Recv()
		return err
	}
	all, end := context.WithCancel(t.Context())
	defer end()
	refused := 0.0
	for _, c := range []struct {
		name string
		may  int
	}{{"ann", 1}, {"ben", 3}, {"chief", 6 - 1 - 3}} {
		ctx := as(all, c.name)
		for range c.may {
			if err := watch(ctx); err != nil {
				t.Fatalf("a watch of %s: %v", c.name, err)
			}
		}
		refused++
		if err := watch(ctx); status.Code(err) != codes.ResourceExhausted || retryDelay(err) != retryCall {
			t.Errorf("a watch too many of %s: %v", c.name, err)
		}
		if got := h.metric(t, "ckd_watches_refused_total"); got != refused {
			t.Errorf("%v watches were refused, want %v", got, refused)
		}
	}
	open, limit := h.metric(t, "ckd_watches_open"), h.metric(t, "ckd_watches_limit")
	if open != 6 || limit != 6 || h.server.arriving.Load() != 0 {
		t.Errorf("%v watches of %v are open, %d arrive, want 6 of 6 and none", open, limit, h.server.arriving.Load())
	}
	end()
	h.eventually(t, 0, "ckd_watches_open")
}

// TestBalancingClients has as many clients of one default daemon as a fleet may: each
// holds a watch of the health for as long as it is connected.
func TestBalancingClients(t *testing.T) {
	const clients = 300
	h := newHarness(t, DefaultLimits())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group errgroup.Group
	for range clients {
		c, err := client.Dial("passthrough:bufconn", client.WithBalancing(), client.WithInsecure(), client.WithDialOptions(
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return h.pipe.DialContext(ctx) })))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		group.Go(func() error {
			s, err := c.Session(ctx, client.SessionConfig{Model: "ctg"})
			if err != nil {
				return err
			}
			return s.Close()
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if !within(func() bool { return h.metric(t, "ckd_watches_open") == clients }) {
		t.Errorf("%v watches are open, want %d", h.metric(t, "ckd_watches_open"), clients)
	}
}

// TestCallTime: a call whose request does not come in gives its place back.
func TestCallTime(t *testing.T) {
	limits := DefaultLimits()
	limits.CallTime = 50 * time.Millisecond
	h := newHarness(t, limits)
	call, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, ckdv1.UncertaintyService_Decompose_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := call.SendMsg(&ckdv1.DecomposeRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := call.RecvMsg(&ckdv1.DecomposeResponse{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if !within(func() bool { return h.server.calls.Load() == 0 }) {
		t.Errorf("%d calls under way", h.server.calls.Load())
	}
	stream, err := h.client.DecomposeStream(t.Context()) // and no header
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a stream without header: %v", err)
	}
	if !within(func() bool { return h.server.streams.Load() == 0 }) {
		t.Errorf("%d streams are open", h.server.streams.Load())
	}
}

// TestGarbageIsTheClients: bytes that are no message are not the daemon's fault, of
// any method.
func TestGarbageIsTheClients(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	for _, method := range []string{
		ckdv1.UncertaintyService_Decompose_FullMethodName, ckdv1.UncertaintyService_GetModel_FullMethodName,
	} {
		err := h.conn.Invoke(t.Context(), method, &[]byte{0xff, 0xff, 0xff}, &ckdv1.GetModelResponse{}, grpc.ForceCodec(rawCodec{}))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestUnreadReplies: what clients do not read counts into the budget until it is
// sent, so that further calls are refused in place of piling up replies.
func TestUnreadReplies(t *testing.T) {
	limits := DefaultLimits()
	limits.OpenInputBytes = 8 << 20
	h := newHarness(t, limits)
	conn := h.dial(t, grpc.WithStaticConnWindowSize(1<<16), grpc.WithStaticStreamWindowSize(1<<16))
	request := &ckdv1.DecomposeRequest{
		Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Detail: ckdv1.Detail_DETAIL_FULL, Passes: 5, Inputs: 500,
		Values: slices.Repeat([]float32{0.5, 0.25, 0.25}, 5*500),
	}
	answered := func() float64 {
		return h.metric(t, "ckd_decisions_total") + h.metric(t, "ckd_inputs_rejected_total", "reason", "out_of_memory_budget")
	}
	for i := range 100 {
		call, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, ckdv1.UncertaintyService_Decompose_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.SendMsg(request); err != nil {
			t.Fatal(err)
		}
		if err := call.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if !within(func() bool { return answered() == float64(500*(i+1)) }) { // one after the other
			t.Fatalf("%v inputs answered after %d calls", answered(), i+1)
		}
		if held := h.server.openBytes.Load(); held > 2*limits.OpenInputBytes {
			t.Fatalf("%d bytes are held, of a budget of %d", held, limits.OpenInputBytes)
		}
	}
	if h.metric(t, "ckd_inputs_rejected_total", "reason", "out_of_memory_budget") == 0 {
		t.Errorf("no call was refused, though no reply was read: %d bytes are held, %v inputs were decided",
			h.server.openBytes.Load(), h.metric(t, "ckd_decisions_total"))
	}
}

// TestRetryDelay: what may fit later says when to try again; what never will, does not.
func TestRetryDelay(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"budget, now":  {overBudget("values", "bytes", 5, 105, 100), retryBudget},
		"budget, ever": {overBudget("values", "bytes", 101, 105, 100), 0},
		"limit":        {overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", 5, 4), 0},
	} {
		if got := retryDelay(statusOf(c.err, location{}).Err()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// retryDelay that an error states; 0 for none.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// within reports whether something becomes true.
func within(so func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}

// TestLogHasNoWordsOfClients: neither what a client wrote nor a value of its passes
// is in a line of the log; the reason is.
func TestLogHasNoWordsOfClients(t *testing.T) {
	h := newHarness(t, DefaultLimits())
	for _, r := range []*ckdv1.DecomposeRequest{
		{Model: "Mrs Jones 1950"},
		{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 5, Inputs: 1, Posterior: "Mrs Jones 1950", Values: make([]float32, 15)},
		{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 5, Inputs: 1, Classes: []string{"Mrs Jones 1950"}, Values: make([]float32, 15)},
	} {
		if _, err := h.client.Decompose(t.Context(), r); err == nil {
			t.Errorf("%v was taken", r)
		}
	}
	reasons := map[any]bool{}
	for _, line := range h.logs.All() {
		if strings.Contains(fmt.Sprint(line.Message, line.ContextMap()), "Jones") {
			t.Errorf("%s %v", line.Message, line.ContextMap())
		}
		if line.Message == "finished call" {
			reasons[line.ContextMap()["reason"]] = true
		}
	}
	for _, want := range []string{"unknown_model", "wrong_posterior", "wrong_classes"} {
		if !reasons[want] {
			t.Errorf("no line of a call with the reason %s: %v", want, reasons)
		}
	}
}
