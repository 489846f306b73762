package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestMemoryLimit attacks daemons that have a memory limit, with messages that never end and with
// messages that unpack to far more than they are. What lives must stay below the limit, a client that
// behaves must be served again, and nothing may be held in the end.
func TestMemoryLimit(t *testing.T) {
	timed.Full(t)
	zeros := packed(t, 16<<20-1000)
	for name, c := range map[string]struct {
		limit   int64
		streams int // on each of two connections
		attack  func(*attacker, uint32)
		ends    bool // connections must be ended
	}{
		// 2 x 30 halves of 12 MiB are 720 MiB.
		"half messages": {200 << 20, 30, func(a *attacker, id uint32) { a.send(id, false, 16<<20-1, make([]byte, 12<<20), 16<<10) }, true},
		// 2 x 1 MiB in frames of a byte are up to 84 MiB.
		"tiny frames": {64 << 20, 1, func(a *attacker, id uint32) { a.send(id, false, 16<<20-1, make([]byte, 1<<20), 1) }, false},
		// 2 x 30 of 16 KB unpack to 960 MiB.
		"gzip bombs": {200 << 20, 30, func(a *attacker, id uint32) { a.send(id, true, len(zeros), zeros, 16<<10) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(ckd, "serve", "--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
				"--max-message-bytes", fmt.Sprint(16<<20), "--max-open-bytes", fmt.Sprint(256<<20))
			command.Env = append(command.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", c.limit))
			d := &daemon{testbed.Start(t, command, 1), t}
			conn := d.dial()
			victim := ckdv1.NewUncertaintyServiceClient(conn)
			served := func() error {
				_, err := victim.Decompose(inTime(t), tensorOf(t, 8))
				return err
			}
			if err := served(); err != nil {
				t.Fatal(err)
			}
			var attackers []*attacker
			var attacks sync.WaitGroup
			for range 2 {
				a := attack(t, d.GRPC[0], name == "gzip bombs")
				attackers = append(attackers, a)
				for range c.streams {
					id := a.open()
					attacks.Go(func() { c.attack(a, id) })
				}
			}
			over := make(chan struct{})
			go func() {
				attacks.Wait()
				close(over)
			}()
			most, answered, refused := 0.0, 0, 0
			look := func() {
				most = max(most, d.gauge("ckd_memory_pressure"))
				switch err := served(); status.Code(err) {
				case codes.OK:
					answered++
				case codes.ResourceExhausted:
					refused++
				default:
					t.Errorf("the victim: %v", err)
				}
				if _, err := healthv1.NewHealthClient(conn).Check(inTime(t), &healthv1.HealthCheckRequest{}); err != nil {
					t.Errorf("a probe: %v", err)
				}
				if code, _, _ := d.Get("/livez"); code != 200 {
					t.Errorf("/livez says %d", code)
				}
			}
			for running := true; running; {
				select {
				case <-over:
					running = false
				case <-time.After(10 * time.Millisecond):
				}
				look()
			}
			t.Logf("pressure at most %.2f; the victim: %d answered, %d refused; ended: %v; resident %.0f MiB",
				most, answered, refused, d.gauge("ckd_memory_connections_ended_total"), d.gauge("process_resident_memory_bytes")/(1<<20))
			if ended := d.gauge("ckd_memory_connections_ended_total"); c.ends && ended == 0 {
				t.Error("no connection was ended")
			}
			if most >= 1 {
				t.Errorf("a pressure of %.2f: more lives than the limit allows", most)
			}
			eventually(t, "the victim is served again", func() bool { look(); return served() == nil })
			for _, a := range attackers {
				_ = a.conn.Close()
			}
			d.fallsTo("ckd_open_bytes", 0) // buffers that were lost wait for the next collection
			if err := served(); err != nil {
				t.Errorf("the victim afterwards: %v", err)
			}
			if strings.Contains(d.Log(), "panic") {
				t.Error("a panic")
			}
		})
	}
}

// tensorOf returns a request with some inputs of a recording.
func tensorOf(t *testing.T, inputs int) *ckdv1.DecomposeRequest {
	t.Helper()
	values, n, s, k := readRecording(t, "ctg-mcdropout", inputs)
	_ = k
	return &ckdv1.DecomposeRequest{Model: "fetal-health", Inputs: uint32(n), Passes: uint32(s), Layout: ckdv1.Layout_LAYOUT_NSK, Values: values}
}

// packed returns so many zeros, packed.
func packed(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// attacker is an HTTP/2 client that sends whatever frames it wants to, but keeps to the windows: a
// server closes the connections of others at once.
type attacker struct {
	conn   net.Conn
	zipped bool

	writing sync.Mutex
	framer  *http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32

	mu      sync.Mutex
	changed *sync.Cond
	windows map[uint32]int // of the connection, as 0, and of streams
	initial int
	ended   map[uint32]bool
	gone    bool
}

func attack(t *testing.T, address string, zipped bool) *attacker {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	a := &attacker{conn: conn, zipped: zipped, framer: http2.NewFramer(conn, conn), next: 1, windows: map[uint32]int{0: 65535}, initial: 65535, ended: map[uint32]bool{}}
	a.changed, a.encoder = sync.NewCond(&a.mu), hpack.NewEncoder(&a.headers)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := a.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go a.read()
	return a
}

// read follows the windows, until the connection ends.
func (a *attacker) read() {
	for {
		frame, err := a.framer.ReadFrame()
		var stream http2.StreamError
		if errors.As(err, &stream) {
			continue
		}
		a.mu.Lock()
		if err != nil {
			a.gone = true
			a.changed.Broadcast()
			a.mu.Unlock()
			return
		}
		acknowledge := func() error { return nil }
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
				for id := range a.windows {
					if id != 0 {
						a.windows[id] += int(size) - a.initial
					}
				}
				a.initial = int(size)
			}
			if !f.IsAck() {
				acknowledge = a.framer.WriteSettingsAck
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				acknowledge = func() error { return a.framer.WritePing(true, f.Data) }
			}
		case *http2.WindowUpdateFrame:
			a.windows[f.StreamID] += int(f.Increment)
		case *http2.RSTStreamFrame:
			a.ended[f.StreamID] = true
		case *http2.HeadersFrame:
			a.ended[f.StreamID] = a.ended[f.StreamID] || f.StreamEnded()
		}
		a.changed.Broadcast()
		a.mu.Unlock()
		a.writing.Lock()
		_ = acknowledge() // the next read sees the end
		a.writing.Unlock()
	}
}

// open opens a stream of passes.
func (a *attacker) open() uint32 {
	a.writing.Lock()
	defer a.writing.Unlock()
	id := a.next
	a.next += 2
	a.mu.Lock()
	a.windows[id] = a.initial
	a.mu.Unlock()
	a.headers.Reset()
	fields := [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "ckd"}, {":path", ckdv1.UncertaintyService_DecomposeStream_FullMethodName},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}
	if a.zipped {
		fields = append(fields, [2]string{"grpc-encoding", "gzip"})
	}
	for _, f := range fields {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
	}
	_ = a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.headers.Bytes(), EndHeaders: true}) // send sees the end
	return id
}

// send sends the beginning of a message, in frames of a size, until the server ends the stream or the
// connection, or takes nothing more for a while.
func (a *attacker) send(id uint32, zipped bool, length int, body []byte, frame int) {
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(length))
	if zipped {
		prefix[0] = 1
	}
	for rest := slices.Concat(prefix, body); len(rest) > 0; {
		n := a.window(id, min(len(rest), 64<<10))
		if n == 0 {
			return
		}
		var frames bytes.Buffer
		w := http2.NewFramer(&frames, nil)
		for piece := rest[:n]; len(piece) > 0; {
			size := min(frame, len(piece))
			_ = w.WriteData(id, false, piece[:size]) // into memory
			piece = piece[size:]
		}
		rest = rest[n:]
		a.writing.Lock()
		_ = a.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, err := a.conn.Write(frames.Bytes())
		a.writing.Unlock()
		if err != nil {
			_ = a.conn.Close() // read sees it, and ends what else is being sent
			return
		}
	}
}

// window takes up to most bytes of the windows of a stream. It returns 0 if the stream has ended, or
// if the server gives no window for a second.
func (a *attacker) window(id uint32, most int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := false
	timer := time.AfterFunc(time.Second, func() {
		a.mu.Lock()
		late = true
		a.changed.Broadcast()
		a.mu.Unlock()
	})
	defer timer.Stop()
	for !a.gone && !a.ended[id] && !late {
		if n := min(most, a.windows[0], a.windows[id]); n > 0 {
			a.windows[0] -= n
			a.windows[id] -= n
			return n
		}
		a.changed.Wait()
	}
	return 0
}
