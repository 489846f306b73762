package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
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

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// reader is an HTTP/2 client that answers pings, and reads a reply only when a test lets it.
type reader struct {
	t      *testing.T
	conn   net.Conn
	closed chan struct{} // the server has closed the connection

	mu       sync.Mutex // guards the fields below
	framer   *http2.Framer
	headers  bytes.Buffer
	encoder  *hpack.Encoder
	next     uint32
	answered map[uint32]string // grpc-status, or "" while there are headers alone
	read     map[uint32]int    // bytes of replies
	resets   map[uint32]http2.ErrCode
}

func (h *harness) reader(t *testing.T) *reader {
	t.Helper()
	conn, err := h.pipe.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, conn: conn, closed: make(chan struct{}), framer: http2.NewFramer(conn, conn), next: 1, answered: map[uint32]string{}, read: map[uint32]int{}, resets: map[uint32]http2.ErrCode{}}
	r.encoder = hpack.NewEncoder(&r.headers)
	r.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	r.write(func() error {
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return err
		}
		return r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	})
	go func() {
		defer close(done)
		defer close(r.closed)
		for {
			frame, err := r.framer.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					r.tryWrite(func() error { return r.framer.WriteSettingsAck() })
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					r.tryWrite(func() error { return r.framer.WritePing(true, frame.Data) })
				}
			case *http2.MetaHeadersFrame:
				r.mu.Lock()
				for _, field := range frame.Fields {
					if field.Name == "grpc-status" {
						r.answered[frame.StreamID] = field.Value
					}
				}
				if _, ok := r.answered[frame.StreamID]; !ok {
					r.answered[frame.StreamID] = ""
				}
				r.mu.Unlock()
			case *http2.RSTStreamFrame:
				r.mu.Lock()
				r.resets[frame.StreamID] = frame.ErrCode
				r.mu.Unlock()
			case *http2.DataFrame:
				r.mu.Lock()
				r.read[frame.StreamID] += len(frame.Data())
				r.mu.Unlock()
			}
		}
	}()
	return r
}

// tryWrite writes frames, whether or not the server still reads.
func (r *reader) tryWrite(write func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = write() // the reader sees the end
}

func (r *reader) write(write func() error) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := write(); err != nil {
		r.t.Fatal(err)
	}
}

// call sends a request of an identity. It returns the stream once the server has answered or
// refused, with the status so far.
func (r *reader) call(name, method string, request proto.Message, zipped bool) (uint32, codes.Code) {
	r.t.Helper()
	body, err := proto.Marshal(request)
	if err != nil {
		r.t.Fatal(err)
	}
	fields := append(headersOf(name, method), [2]string{"grpc-accept-encoding", "gzip"})
	if zipped {
		fields = append(fields, [2]string{"grpc-encoding", "gzip"})
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			r.t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			r.t.Fatal(err)
		}
		body = packed.Bytes()
	}
	id := r.open(fields)
	r.send(id, body, zipped, true)
	return id, r.status(id, "an answer", func(string) bool { return true })
}

// mustCall calls Decompose as eve, for a large reply, and returns the stream of the answer.
func (r *reader) mustCall() uint32 {
	r.t.Helper()
	id, code := r.call("eve", ckdv1.UncertaintyService_Decompose_FullMethodName, bigRequest, false)
	if code != codes.OK {
		r.t.Fatal(code)
	}
	return id
}

// open sends the headers of a call and returns its stream.
func (r *reader) open(fields [][2]string) (id uint32) {
	r.t.Helper()
	r.write(func() (err error) {
		id, err = r.writeHeaders(fields)
		return err
	})
	return id
}

// writeHeaders is open for a caller that holds the lock.
func (r *reader) writeHeaders(fields [][2]string) (id uint32, err error) {
	headers, err := r.nextHeaders(fields)
	if err != nil {
		return headers.StreamID, err
	}
	return headers.StreamID, r.framer.WriteHeaders(headers)
}

// nextHeaders returns the headers of the next stream, valid until it is called again. The caller
// holds the lock.
func (r *reader) nextHeaders(fields [][2]string) (http2.HeadersFrameParam, error) {
	p := http2.HeadersFrameParam{StreamID: r.next, EndHeaders: true}
	r.next += 2
	r.headers.Reset()
	for _, f := range fields {
		if err := r.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return p, err
		}
	}
	p.BlockFragment = r.headers.Bytes()
	return p, nil
}

// send sends a message on a stream.
func (r *reader) send(id uint32, body []byte, zipped, last bool) {
	r.t.Helper()
	message := make([]byte, 5, 5+len(body))
	if zipped {
		message[0] = 1
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(body)))
	r.write(func() error { return r.framer.WriteData(id, last, append(message, body...)) })
}

// headersOf returns the headers of a call by an identity.
func headersOf(name, method string) [][2]string {
	return [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "ckd"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + tokenOf(name)},
	}
}

// status waits until a stream has the expected status, and returns it.
func (r *reader) status(id uint32, what string, is func(string) bool) codes.Code {
	r.t.Helper()
	var answer string
	if !within(func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		var ok bool
		answer, ok = r.answered[id]
		return ok && is(answer)
	}) {
		r.t.Fatalf("stream %d: no %s", id, what)
	}
	var code codes.Code
	if answer != "" {
		if _, err := fmt.Sscan(answer, (*uint32)(&code)); err != nil {
			r.t.Fatal(err)
		}
	}
	return code
}

// reset waits until the server resets a stream, and returns why.
func (r *reader) reset(id uint32) (code http2.ErrCode) {
	r.t.Helper()
	if !within(func() (ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		code, ok = r.resets[id]
		return ok
	}) {
		r.t.Fatalf("stream %d is not reset", id)
	}
	return code
}

// take reads a reply to its end.
func (r *reader) take(id uint32) {
	r.t.Helper()
	r.write(func() error { return r.framer.WriteWindowUpdate(id, 1<<20) })
	r.write(func() error { return r.framer.WriteWindowUpdate(0, 1<<20) })
	if code := r.status(id, "trailers", func(s string) bool { return s != "" }); code != codes.OK {
		r.t.Errorf("stream %d: %v", id, code)
	}
}

// bytesRead returns how much of a reply has come.
func (r *reader) bytesRead(id uint32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[id]
}

// expectClosed waits until the server closes the connection.
func (r *reader) expectClosed() {
	r.t.Helper()
	select {
	case <-r.closed:
	case <-time.After(time.Minute):
		r.t.Fatal("the connection is open")
	}
}

// holds waits until n replies are unread and n calls have their slots.
func (h *harness) holds(t *testing.T, n int64) {
	t.Helper()
	s := h.server
	if !within(func() bool {
		return s.admission.calls.Load() == n && s.admission.unread.Load() == n && (n > 0 || s.budget.total() == 0)
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
				if _, code := r.call("eve", c.method, c.request, c.zipped); code != codes.ResourceExhausted {
					t.Errorf("a third call while two replies are unread: %v", code)
				}
			}
			for _, end := range []string{"read", "reset", "connection"} {
				one, two := h.reader(t), h.reader(t)
				var ids []uint32
				for _, r := range []*reader{one, two} { // over several connections
					id, code := r.call("eve", c.method, c.request, c.zipped)
					if code != codes.OK {
						t.Fatal(code)
					}
					ids = append(ids, id)
				}
				h.holds(t, 2)
				full(one)
				full(two)
				full(h.reader(t))
				if _, err := h.client.Decompose(as(t.Context(), "bob"), bigRequest); err != nil {
					t.Errorf("a call of another: %v", err)
				}
				h.holds(t, 2)
				switch end {
				case "read":
					one.take(ids[0])
					two.take(ids[1])
				case "reset":
					one.write(func() error { return one.framer.WriteRSTStream(ids[0], http2.ErrCodeCancel) })
					h.holds(t, 1)
					two.write(func() error { return two.framer.WriteRSTStream(ids[1], http2.ErrCodeCancel) })
				case "connection":
					_ = one.conn.Close()
					h.holds(t, 1)
					_ = two.conn.Close()
				}
				h.holds(t, 0)
			}
			// Errors have no reply to read.
			r := h.reader(t)
			for range 5 {
				id, _ := r.call("eve", get, &ckdv1.GetModelRequest{Model: "none"}, c.zipped)
				if code := r.status(id, "trailers", func(s string) bool { return s != "" }); code != codes.NotFound {
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
	r := h.reader(t)
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
	if _, err := h.client.Decompose(as(t.Context(), "eve"), bigRequest); err != nil {
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
	r := h.reader(t)
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
		r.write(func() error { return r.framer.WriteWindowUpdate(id, 8) })
		if !within(func() bool { return r.bytesRead(id) == 8*n }) {
			t.Fatalf("%d bytes are not read", 8*n)
		}
		look(quietLooks)
	}
	h.holds(t, 2)
	stream := r.open(headersOf("eve", ckdv1.UncertaintyService_DecomposeStream_FullMethodName))
	r.write(func() error { return r.framer.WriteWindowUpdate(stream, 1<<20) })
	r.write(func() error { return r.framer.WriteWindowUpdate(0, 1<<20) })
	first, err := proto.Marshal(header(&ckdv1.StreamHeader{Model: "ctg"}))
	if err != nil {
		t.Fatal(err)
	}
	r.send(stream, first, false, false)
	if !within(func() bool { return r.bytesRead(stream) > 0 }) {
		t.Fatal("the stream has no first reply")
	}
	look(quietLooks) // the first of them sees that the stream moved
	h.holds(t, 2)
	select {
	case <-r.closed:
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
		r := h.reader(t)
		for range 4 {
			if _, code := r.call("", ckdv1.UncertaintyService_Decompose_FullMethodName, bigRequest, false); code != codes.OK && code != codes.ResourceExhausted {
				t.Error(code)
			}
		}
		_ = r.conn.Close()
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
	h.reader(t).expectClosed()
}

// TestUnfinishedMessages sends halves of messages on many streams. Where memory is very short that
// connection ends, another one with fewer does not, and nothing is held afterwards.
func TestUnfinishedMessages(t *testing.T) {
	h := newHarness(t)
	half := func(r *reader) {
		message := make([]byte, 60_000)
		binary.BigEndian.PutUint32(message[1:], 120_000)
		id := r.open(headersOf("", ckdv1.UncertaintyService_DecomposeStream_FullMethodName))
		for piece := range slices.Chunk(message, 15_000) {
			r.write(func() error { return r.framer.WriteData(id, false, piece) })
		}
	}
	few, many := h.reader(t), h.reader(t)
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
	case <-few.closed:
		t.Error("the connection with few was closed")
	default:
	}
}
