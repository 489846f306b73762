package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is an HTTP/2 client that sends whatever frames a test wants. It acknowledges settings and
// pings, and knows the windows that the server gives.
type peer struct {
	conn net.Conn

	writing sync.Mutex

	opening sync.Mutex
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32

	mu      sync.Mutex
	changed *sync.Cond
	windows map[uint32]int // of the connection, as 0, and of streams
	initial int
	ended   map[uint32]bool // streams that the server has ended
	gone    bool
}

// connect greets a server. With deaf, the peer never reads what the server sends.
func connect(t *testing.T, address string, deaf bool, settings ...http2.Setting) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return greet(conn, deaf, settings...)
}

// greet is connect over a connection that is there.
func greet(conn net.Conn, deaf bool, settings ...http2.Setting) *peer {
	p := &peer{conn: conn, next: 1, windows: map[uint32]int{0: 65535}, initial: 65535, ended: map[uint32]bool{}}
	p.changed, p.encoder = sync.NewCond(&p.mu), hpack.NewEncoder(&p.headers)
	p.raw([]byte(http2.ClientPreface))
	p.write(func(w *http2.Framer) { _ = w.WriteSettings(settings...) })
	if !deaf {
		go p.read()
	}
	return p
}

// frameBytes returns frames as they are sent.
func frameBytes(write func(w *http2.Framer)) []byte {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	write(w) // into memory
	return b.Bytes()
}

// write sends frames, and reports whether the server takes them.
func (p *peer) write(write func(w *http2.Framer)) bool { return p.raw(frameBytes(write)) }

// raw sends bytes. A server that takes nothing for a while has enough of this peer.
func (p *peer) raw(b []byte) bool {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second)) // TCP connections take deadlines
	_, err := p.conn.Write(b)
	return err == nil
}

// read follows the windows, until the connection ends.
func (p *peer) read() {
	framer := http2.NewFramer(nil, p.conn)
	framer.SetMaxReadFrameSize(1 << 20)
	for {
		frame, err := framer.ReadFrame()
		var stream http2.StreamError
		if errors.As(err, &stream) {
			continue
		}
		if acknowledge := p.follow(frame, err); acknowledge != nil {
			p.write(acknowledge) // the next read sees the end
		}
		if err != nil {
			return
		}
	}
}

// follow notes what a frame says, and returns what acknowledges it.
func (p *peer) follow(frame http2.Frame, err error) (acknowledge func(*http2.Framer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	if err != nil {
		p.gone = true
		return nil
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for id := range p.windows {
				if id != 0 {
					p.windows[id] += int(size) - p.initial
				}
			}
			p.initial = int(size)
		}
		if !f.IsAck() {
			return func(w *http2.Framer) { _ = w.WriteSettingsAck() }
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return func(w *http2.Framer) { _ = w.WritePing(true, f.Data) }
		}
	case *http2.WindowUpdateFrame:
		p.windows[f.StreamID] += int(f.Increment)
	case *http2.RSTStreamFrame:
		p.ended[f.StreamID] = true
	case *http2.HeadersFrame:
		p.ended[f.StreamID] = p.ended[f.StreamID] || f.StreamEnded()
	}
	return nil
}

// encode encodes the headers of a call of a method over gRPC, and more. The order of calls is that in
// which the server decodes them. The caller holds writing, or has the peer alone.
func (p *peer) encode(path string, more ...hpack.HeaderField) []byte {
	p.headers.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "localhost"},
		{Name: ":path", Value: path},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
		{Name: "authorization", Value: "Bearer " + attackerToken},
	}, more...) {
		_ = p.encoder.WriteField(f) // into memory
	}
	return bytes.Clone(p.headers.Bytes())
}

// stream returns the next stream's number.
func (p *peer) stream() uint32 {
	id := p.next
	p.next += 2
	p.mu.Lock()
	p.windows[id] = p.initial
	p.mu.Unlock()
	return id
}

// open opens a stream of a method, and leaves it open.
func (p *peer) open(method string, more ...hpack.HeaderField) uint32 {
	id, block := p.stream(), p.encode(method, more...)
	p.write(func(w *http2.Framer) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
	})
	return id
}

// openLocked is open for peers that several goroutines share.
func (p *peer) openLocked(method string) uint32 {
	p.opening.Lock()
	defer p.opening.Unlock()
	return p.open(method)
}

var zippedHeader = hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}

// message returns a message of gRPC, or the beginning of one whose length is more.
func message(zipped bool, length int, body []byte) []byte {
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(length))
	if zipped {
		prefix[0] = 1
	}
	return append(prefix, body...)
}

// send sends bytes on a stream, in frames of a size, until the server ends the stream or the
// connection, or takes nothing more for a while.
func (p *peer) send(id uint32, body []byte, frame int) {
	for len(body) > 0 {
		n := p.window(id, min(len(body), 64<<10))
		if n == 0 || !p.write(func(w *http2.Framer) {
			for piece := body[:n]; len(piece) > 0; {
				size := min(frame, len(piece))
				_ = w.WriteData(id, false, piece[:size])
				piece = piece[size:]
			}
		}) {
			return
		}
		body = body[n:]
	}
}

// window takes up to most bytes of the windows of a stream. It returns 0 if the stream has ended, or
// if the server gives no window for a second.
func (p *peer) window(id uint32, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := false
	timer := time.AfterFunc(time.Second, func() {
		p.mu.Lock()
		late = true
		p.changed.Broadcast()
		p.mu.Unlock()
	})
	defer timer.Stop()
	for !p.gone && !p.ended[id] && !late {
		if n := min(most, p.windows[0], p.windows[id]); n > 0 {
			p.windows[0] -= n
			p.windows[id] -= n
			return n
		}
		p.changed.Wait()
	}
	return 0
}

// packed returns so many zeros, packed.
func packed(size int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, size)) // into memory
	_ = w.Close()
	return b.Bytes()
}

// hostOf returns the address of a URL.
func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }
