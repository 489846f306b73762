package server

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestOverload checks that calls whose requests have not arrived take slots: a further call is
// refused with a delay after which to try again, and let in when there is room. Health and streams
// are not affected.
func TestOverload(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.Calls = 2 })
	held, release := context.WithCancel(t.Context())
	for range h.server.decider.limits.Calls {
		h.call(held, t, ckdv1.UncertaintyService_Decompose_FullMethodName, &ckdv1.DecomposeRequest{})
	}
	list := func() error {
		_, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
		return err
	}
	if !within(func() bool { return h.server.admission.calls.Load() == 2 }) {
		t.Fatalf("%d calls under way", h.server.admission.calls.Load())
	}
	expectOverload(t, list())
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

// expectOverload checks that a call is refused for now.
func expectOverload(t *testing.T, err error) {
	t.Helper()
	if got := expectFault(t, err, "OVERLOADED").Retry; got != retryCall {
		t.Errorf("to be tried again after %v, want %v", got, retryCall)
	}
}

// call begins a call of a method and sends a request, without the half-close after which the server
// would answer.
func (h *harness) call(ctx context.Context, t *testing.T, method string, request any) grpc.ClientStream {
	t.Helper()
	call, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	// If the call is refused already, this returns io.EOF and RecvMsg says why.
	if err := call.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return call
}

// TestProbesAreBounded checks health checks and watches whose request does not come. 6 KB/s of
// their bare headers once took all places of a daemon, and every probe of others failed. They take
// no place, each has a moment only, and their connection takes no more of them than it may carry.
func TestProbesAreBounded(t *testing.T) {
	for name, method := range map[string]string{
		"probes": healthv1.Health_Check_FullMethodName, "watches": healthv1.Health_Watch_FullMethodName,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			other := healthv1.NewHealthClient(h.dial(t))
			check := func() {
				t.Helper()
				if _, err := other.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
					t.Errorf("a check of another client: %v", err)
				}
				watch, err := other.Watch(t.Context(), &healthv1.HealthCheckRequest{})
				if err == nil {
					_, err = watch.Recv()
				}
				if err != nil {
					t.Errorf("a watch of another client: %v", err)
				}
			}
			for range 50 {
				h.call(t.Context(), t, method, &healthv1.HealthCheckRequest{})
			}
			r := h.reader(t, "")
			late := r.Open(method)
			for range 49 {
				r.Open(method)
			}
			check()
			if code := r.ended(late); code != codes.DeadlineExceeded {
				t.Errorf("one that does not go on: %v", code)
			}
			if weight := func() int64 { _, total := h.server.budget.weigh(); return total }; !within(func() bool { return weight() < 3*callBytes }) {
				t.Errorf("connections weigh %d bytes after all have ended but watches", weight())
			}
			if n := h.logs.FilterMessage("finished call").FilterLevelExact(zap.WarnLevel).Len(); n != 0 {
				t.Errorf("%d late ones have a warning of their own, want those of Refusals alone", n)
			}
			for range callsPerConnection {
				r.Open(method)
			}
			refused := r.Open(method)
			r.until(refused, "reset", func(s servertest.Seen) bool { return s.Reset == http2.ErrCodeRefusedStream })
			check()
		})
	}
}

// TestManyProbesAtOnce sends 200 whole health checks in one write, of which only 38 were once answered.
func TestManyProbesAtOnce(t *testing.T) {
	h := newHarness(t)
	r := h.reader(t, "")
	var ids []uint32
	r.Write(func(w *http2.Framer) {
		for range 200 {
			id := r.Stream()
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.Encode(healthv1.Health_Check_FullMethodName), EndHeaders: true})
			_ = w.WriteData(id, true, make([]byte, 5))
			ids = append(ids, id)
		}
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16}) // it reads its answers
	})
	answered := map[codes.Code]int{}
	for _, id := range ids {
		answered[r.ended(id)]++
	}
	if answered[codes.OK] != len(ids) {
		t.Errorf("%v, want all OK", answered)
	}
}

// TestWatchesAreBounded checks the limits of open watches, of the daemon and of an identity, whose
// limit of streams applies if it has none of its own. A watch that ends makes room.
func TestWatchesAreBounded(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.Streams = 6 }, withIdentities(t, map[string]string{
		"ann": "streams: 1", "ben": "streams: 1, watches: 3", "chief": "streams: 1, watches: 0",
	}))
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
		ctx := identified(all, c.name)
		for range c.may {
			if err := watch(ctx); err != nil {
				t.Fatalf("a watch of %s: %v", c.name, err)
			}
		}
		refused++
		expectOverload(t, watch(ctx))
		if got := h.metric(t, "ckd_refused_total", "resource", "watches"); got != refused {
			t.Errorf("%v watches were refused, want %v", got, refused)
		}
	}
	open, limit := h.metric(t, "ckd_in_use", "resource", "watches"), h.metric(t, "ckd_limit", "resource", "watches")
	if open != 6 || limit != 6 {
		t.Errorf("%v watches of %v are open, want 6 of 6", open, limit)
	}
	end()
	h.eventually(t, 0, "ckd_in_use", "resource", "watches")
}

// TestCallTime checks that a call whose request does not arrive gives its slot back.
func TestCallTime(t *testing.T) {
	t.Run("in all", func(t *testing.T) { testLateRequest(t, func(l *Limits) { l.CallTime = 50 * time.Millisecond }) })
	t.Run("for the first message", func(t *testing.T) { testLateRequest(t, func(l *Limits) { l.FirstMessage = 50 * time.Millisecond }) })
}

// TestRequestIsInTime checks that the time of the first message ends with it: what is left of the call
// has the time of a call.
func TestRequestIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := newServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tapped, err := s.admission.takeSlot(ctx, nil, s.admission.limits.CallTime)
		if err != nil {
			t.Fatal(err)
		}
		handle := func(ctx context.Context, _ any) (any, error) {
			begun := time.Now()
			<-ctx.Done()
			if took := time.Since(begun); took != s.admission.limits.CallTime-10*time.Second {
				t.Errorf("the handler had %v", took)
			}
			return nil, ctx.Err()
		}
		handler := withSlot(func(_ any, ctx context.Context, _ func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			time.Sleep(10 * time.Second) // the request arrives
			return intercept(ctx, nil, &grpc.UnaryServerInfo{}, handle)
		})
		if _, err := handler(nil, tapped, nil, beginUnary); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
		if n := s.admission.calls.Load(); n != 0 {
			t.Errorf("%d calls under way", n)
		}
	})
}

func testLateRequest(t *testing.T, change func(*Limits)) {
	h := newHarness(t, func(o *Options) { change(&o.Limits) })
	call := h.call(t.Context(), t, ckdv1.UncertaintyService_Decompose_FullMethodName, &ckdv1.DecomposeRequest{})
	if err := call.RecvMsg(&ckdv1.DecomposeResponse{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	if !within(func() bool { return h.server.admission.calls.Load() == 0 }) {
		t.Errorf("%d calls under way", h.server.admission.calls.Load())
	}
	body, err := proto.Marshal(&ckdv1.DecomposeRequest{Model: "ctg", Values: make([]float32, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	r := h.reader(t, "")
	for _, part := range []int{0, 3, 5, 5 + len(body)/2} { // of the message, with its prefix
		id := r.Open(ckdv1.UncertaintyService_Decompose_FullMethodName)
		r.Send(id, servertest.Message(false, len(body), body)[:part], 16<<10)
		if code := r.ended(id); code != codes.DeadlineExceeded {
			t.Errorf("%d bytes of the request: %v", part, code)
		}
	}
	if !within(func() bool { return h.server.admission.calls.Load() == 0 && h.server.budget.total() == 0 }) {
		t.Errorf("%d calls under way, %d bytes are held", h.server.admission.calls.Load(), h.server.budget.total())
	}
	stream, err := h.client.DecomposeStream(t.Context()) // and no header
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a stream without header: %v", err)
	}
	if !within(func() bool { return h.server.admission.streams.Load() == 0 }) {
		t.Errorf("%d streams are open", h.server.admission.streams.Load())
	}
}

// TestRefusedStreamsShareALine checks that streams which never began fill no log, however many clients
// attempt.
func TestRefusedStreamsShareALine(t *testing.T) {
	h := newHarness(t)
	for range 5 {
		stream, err := h.client.DecomposeStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(header(&ckdv1.StreamHeader{Model: "none"})); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		expectFault(t, err, "UNKNOWN_MODEL")
	}
	if !within(func() bool { return h.logs.FilterMessageSnippet("calls were refused").Len() > 0 }) {
		t.Error("no line on them")
	}
	if n := h.logs.FilterMessageSnippet("calls were refused").Len() + h.logs.FilterMessage("finished call").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
		t.Errorf("%d lines, want one for all", n)
	}
}
