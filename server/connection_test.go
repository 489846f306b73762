package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// reader is an HTTP/2 client that reads a reply only when a test lets it.
type reader struct {
	*servertest.Peer
	t *testing.T
}

// reader connects as an identity, or as nobody in particular.
func (h *harness) reader(t *testing.T, name string) *reader {
	t.Helper()
	conn, err := h.pipe.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{servertest.Greet(conn, tokenOf(name), false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), t}
	t.Cleanup(func() {
		_ = conn.Close()
		<-r.Closed
	})
	return r
}

// call sends a request. It returns the stream once the server has answered or refused, with the status so
// far.
func (r *reader) call(method string, request proto.Message, zipped bool) (uint32, codes.Code) {
	r.t.Helper()
	body, err := proto.Marshal(request)
	if err != nil {
		r.t.Fatal(err)
	}
	fields := []hpack.HeaderField{{Name: "grpc-accept-encoding", Value: "gzip"}}
	if zipped {
		fields = append(fields, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(body)
		if err := errors.Join(err, w.Close()); err != nil {
			r.t.Fatal(err)
		}
		body = packed.Bytes()
	}
	id := r.Open(method, fields...)
	r.Send(id, servertest.Message(zipped, len(body), body), 16<<10)
	r.End(id)
	return id, r.until(id, "an answer", func(s servertest.Seen) bool { return s.Answered })
}

// mustCall calls Decompose for a large reply, and returns the stream of the answer.
func (r *reader) mustCall() uint32 {
	r.t.Helper()
	id, code := r.call(ckdv1.UncertaintyService_Decompose_FullMethodName, bigRequest, false)
	if code != codes.OK {
		r.t.Fatal(code)
	}
	return id
}

// until waits until a stream has come to something, and returns its status so far.
func (r *reader) until(id uint32, what string, is func(servertest.Seen) bool) (code codes.Code) {
	r.t.Helper()
	if !within(func() bool { return is(r.Seen(id)) }) {
		r.t.Fatalf("stream %d: no %s", id, what)
	}
	if status := r.Seen(id).Status; status != "" {
		if _, err := fmt.Sscan(status, (*uint32)(&code)); err != nil {
			r.t.Fatal(err)
		}
	}
	return code
}

// ended waits for the trailers of a stream, and returns its status.
func (r *reader) ended(id uint32) codes.Code {
	r.t.Helper()
	return r.until(id, "trailers", func(s servertest.Seen) bool { return s.Status != "" })
}

// give gives the server a window on a stream.
func (r *reader) give(id, window uint32) {
	r.Write(func(w *http2.Framer) { _ = w.WriteWindowUpdate(id, window) })
}

// take reads a reply to its end.
func (r *reader) take(id uint32) {
	r.t.Helper()
	r.give(id, 1<<20)
	r.give(0, 1<<20)
	if code := r.ended(id); code != codes.OK {
		r.t.Errorf("stream %d: %v", id, code)
	}
}

// expectClosed waits until the server closes the connection.
func (r *reader) expectClosed() {
	r.t.Helper()
	select {
	case <-r.Closed:
	case <-time.After(time.Minute):
		r.t.Fatal("the connection is open")
	}
}

// holds waits until n replies are unread and n calls have their slots.
func (h *harness) holds(t *testing.T, n int64) {
	t.Helper()
	s := h.server
	if !within(func() bool {
		return s.admission.calls.Load() == n && s.admission.unread.Load() == n && (n > 0) == (s.budget.total() > 0)
	}) {
		t.Fatalf("%d slots are taken and %d replies unread, with %d bytes, want %d", s.admission.calls.Load(), s.admission.unread.Load(), s.budget.total(), n)
	}
}

// twoCallsEach lets identities have two calls in flight each.
var twoCallsEach = map[string]string{
	"eve": "models: ['*'], calls: 2, streams: 1",
	"bob": "models: ['*'], calls: 2, streams: 1",
}

var bigRequest = &ckdv1.DecomposeRequest{
	Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Detail: ckdv1.Detail_DETAIL_FULL, Passes: 5, Inputs: 200,
	Values: slices.Repeat(calmRow, 5*200),
}

// TestUnreadRepliesKeepTheirSlot checks that the reply to a unary call keeps its slot until it is
// read, its stream is reset or its connection ends, however small it is and however it is sent.
func TestUnreadRepliesKeepTheirSlot(t *testing.T) {
	big, get, list := ckdv1.UncertaintyService_Decompose_FullMethodName, ckdv1.UncertaintyService_GetModel_FullMethodName,
		ckdv1.UncertaintyService_ListModels_FullMethodName
	for name, c := range map[string]struct {
		method  string
		request proto.Message
		zipped  bool
	}{
		"large":       {big, bigRequest, false},
		"large, gzip": {big, bigRequest, true},
		"small":       {get, &ckdv1.GetModelRequest{Model: "ctg"}, false},
		"small, gzip": {list, &ckdv1.ListModelsRequest{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, withIdentities(t, twoCallsEach))
			full := func(r *reader) {
				t.Helper()
				if _, code := r.call(c.method, c.request, c.zipped); code != codes.ResourceExhausted {
					t.Errorf("a third call while two replies are unread: %v", code)
				}
			}
			for _, end := range []string{"read", "reset", "connection"} {
				one, two := h.reader(t, "eve"), h.reader(t, "eve")
				var ids []uint32
				for _, r := range []*reader{one, two} { // over several connections
					id, code := r.call(c.method, c.request, c.zipped)
					if code != codes.OK {
						t.Fatal(code)
					}
					ids = append(ids, id)
				}
				h.holds(t, 2)
				full(one)
				full(two)
				full(h.reader(t, "eve"))
				if _, err := h.client.Decompose(identified(t.Context(), "bob"), bigRequest); err != nil {
					t.Errorf("a call of another: %v", err)
				}
				h.holds(t, 2)
				switch end {
				case "read":
					one.take(ids[0])
					two.take(ids[1])
				case "reset":
					one.Write(func(w *http2.Framer) { _ = w.WriteRSTStream(ids[0], http2.ErrCodeCancel) })
					h.holds(t, 1)
					two.Write(func(w *http2.Framer) { _ = w.WriteRSTStream(ids[1], http2.ErrCodeCancel) })
				case "connection":
					_ = one.Conn.Close()
					h.holds(t, 1)
					_ = two.Conn.Close()
				}
				h.holds(t, 0)
			}
			// Errors have no reply to read.
			r := h.reader(t, "eve")
			for range 5 {
				id, _ := r.call(get, &ckdv1.GetModelRequest{Model: "none"}, c.zipped)
				if code := r.ended(id); code != codes.NotFound {
					t.Errorf("an error: %v", code)
				}
				h.holds(t, 0)
			}
		})
	}
}

// TestStalledConnection checks that a connection whose replies are not read is closed, and gives
// back everything that it held.
func TestStalledConnection(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.SendStall = 200 * time.Millisecond }, withIdentities(t, twoCallsEach))
	r := h.reader(t, "eve")
	for range 2 {
		r.mustCall()
	}
	r.expectClosed()
	h.holds(t, 0)
	h.eventually(t, 1, "ckd_connections_ended_total", "reason", "unread")
	lines := h.logs.FilterMessageSnippet("a connection was closed").All()
	if len(lines) != 1 || lines[0].ContextMap()["identities"] != "eve" || lines[0].ContextMap()["replies"] != int64(2) {
		t.Errorf("log lines %v", lines)
	}
	if _, err := h.client.Decompose(identified(t.Context(), "eve"), bigRequest); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// TestQuietConnection checks that a connection is closed only if none of its unread replies has
// moved for long. A single reply that does not move keeps its slot.
func TestQuietConnection(t *testing.T) {
	var of connectionsSeen
	h := newHarness(t, withIdentities(t, twoCallsEach), func(o *Options) {
		o.Tracing, o.Limits.SendStall = &of, 365*24*time.Hour // the test looks itself
	})
	r := h.reader(t, "eve")
	r.mustCall()
	h.holds(t, 1)
	conn := of.last.Load()
	look := func(n int) {
		for range n {
			conn.look()
		}
	}
	for range 3 { // whole replies
		id := r.mustCall()
		look(quietLooks / 2)
		r.take(id)
		h.holds(t, 1)
		look(quietLooks / 2)
	}
	id := r.mustCall()
	for n := 1; n <= 20; n++ { // some bytes of one
		r.give(id, 8)
		if !within(func() bool { return r.Seen(id).Bytes == 8*n }) {
			t.Fatalf("%d bytes are not read", 8*n)
		}
		look(quietLooks)
	}
	h.holds(t, 2)
	stream := r.Open(ckdv1.UncertaintyService_DecomposeStream_FullMethodName)
	r.give(stream, 1<<20)
	r.give(0, 1<<20)
	first, err := proto.Marshal(header(&ckdv1.StreamHeader{Model: "ctg"}))
	if err != nil {
		t.Fatal(err)
	}
	r.Send(stream, servertest.Message(false, len(first), first), 16<<10)
	if !within(func() bool { return r.Seen(stream).Bytes > 0 }) {
		t.Fatal("the stream has no first reply")
	}
	look(quietLooks) // the first of them sees that the stream moved
	h.holds(t, 2)
	select {
	case <-r.Closed:
		t.Fatal("closed, though replies moved")
	default:
	}
	look(1)
	r.expectClosed()
	h.holds(t, 0)
}

// connectionsSeen keeps the connection of the last call.
type connectionsSeen struct{ last atomic.Pointer[connection] }

func (c *connectionsSeen) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c.last.Store(connectionOf(ctx))
	return ctx
}
func (*connectionsSeen) HandleRPC(context.Context, stats.RPCStats) {}
func (*connectionsSeen) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (*connectionsSeen) HandleConn(context.Context, stats.ConnStats) {}

// TestSlotsComeBack checks that calls given up at any time, and connections that end during calls,
// leave no slot taken.
func TestSlotsComeBack(t *testing.T) {
	h := newHarness(t)
	var group errgroup.Group
	for worker := range 8 {
		random := rand.New(rand.NewPCG(uint64(worker), 1))
		group.Go(func() error {
			conn := h.dial(t)
			for range 150 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(1000))*time.Microsecond)
				}
				time.AfterFunc(time.Duration(random.IntN(1500))*time.Microsecond, cancel)
				_, err := ckdv1.NewUncertaintyServiceClient(conn).Decompose(ctx, bigRequest, grpc.MaxCallRecvMsgSize(64<<20))
				cancel()
				switch status.Code(err) {
				case codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
				default:
					return err
				}
			}
			return nil
		})
		r := h.reader(t, "eve")
		for range 4 {
			if _, code := r.call(ckdv1.UncertaintyService_Decompose_FullMethodName, bigRequest, false); code != codes.OK && code != codes.ResourceExhausted {
				t.Error(code)
			}
		}
		_ = r.Conn.Close()
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	h.holds(t, 0)
	if strings.Contains(fmt.Sprint(h.logs.All()), "freed twice") {
		t.Error("a reply was freed twice")
	}
}

// TestIdleConnection checks that a connection without calls is closed.
func TestIdleConnection(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.ConnectionIdle = 100 * time.Millisecond })
	h.reader(t, "eve").expectClosed()
}

// TestUnfinishedMessages sends halves of messages on many streams. Where memory is very short that
// connection ends, another one with fewer does not, and nothing is held afterwards.
func TestUnfinishedMessages(t *testing.T) {
	h := newHarness(t)
	half := func(r *reader) {
		id := r.Open(ckdv1.UncertaintyService_DecomposeStream_FullMethodName)
		r.Send(id, servertest.Message(false, 120_000, make([]byte, 60_000)), 15_000)
	}
	few, many := h.reader(t, "eve"), h.reader(t, "eve")
	half(few)
	for range 20 {
		half(many)
	}
	if !within(func() bool { _, total := h.server.budget.weigh(); return total > 21*60_000 }) {
		t.Fatal("half messages weigh nothing")
	}
	if n := h.server.budget.endHeaviest(1 << 40); n != 1 {
		t.Errorf("%d connections were ended, want 1", n)
	}
	many.expectClosed()
	select {
	case <-few.Closed:
		t.Error("the connection with few was closed")
	default:
	}
}
