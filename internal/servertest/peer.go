package servertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Peer is an HTTP/2 client that sends whatever frames a test wants. It acknowledges settings and pings,
// keeps to the windows that the server gives, and gives none but those of its settings.
type Peer struct {
	Conn   net.Conn
	Closed chan struct{} // closed when the server has ended the connection; never for a deaf peer

	writing sync.Mutex

	opening sync.Mutex // guards the fields below
	token   string
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	windows map[uint32]int // of the connection, as 0, and of streams
	initial int
	gone    bool
	streams map[uint32]Seen
}

// Seen is what a peer has seen of a stream.
type Seen struct {
	Answered bool   // headers have come
	Status   string // grpc-status
	Bytes    int    // of messages
	Ended    bool
	Reset    http2.ErrCode // why, for a stream that the server has reset
}

// Greet greets a server as the holder of a token. A deaf peer never reads what the server sends.
func Greet(conn net.Conn, token string, deaf bool, settings ...http2.Setting) *Peer {
	p := &Peer{
		Conn: conn, Closed: make(chan struct{}), token: token, next: 1, windows: map[uint32]int{0: 65535}, initial: 65535, streams: map[uint32]Seen{},
	}
	p.changed, p.encoder = sync.NewCond(&p.mu), hpack.NewEncoder(&p.headers)
	p.Raw([]byte(http2.ClientPreface))
	p.Write(func(w *http2.Framer) { _ = w.WriteSettings(settings...) })
	if !deaf {
		go p.read()
	}
	return p
}

// Frames returns frames as they are sent.
func Frames(write func(w *http2.Framer)) []byte {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	write(w) // into memory
	return b.Bytes()
}

// Write sends frames, and reports whether the server takes them.
func (p *Peer) Write(write func(w *http2.Framer)) bool { return p.Raw(Frames(write)) }

// Raw sends bytes. A server that takes nothing for a while has enough of this peer.
func (p *Peer) Raw(b []byte) bool {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.Conn.SetWriteDeadline(time.Now().Add(time.Second)) // connections of tests take deadlines
	_, err := p.Conn.Write(b)
	return err == nil
}

// read follows what the server sends, until the connection ends.
func (p *Peer) read() {
	defer close(p.Closed)
	framer := http2.NewFramer(nil, p.Conn)
	framer.SetMaxReadFrameSize(1 << 20)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		var stream http2.StreamError
		if errors.As(err, &stream) {
			continue
		}
		if acknowledge := p.follow(frame, err); acknowledge != nil {
			p.Write(acknowledge) // the next read sees the end
		}
		if err != nil {
			return
		}
	}
}

// follow notes what a frame says, and returns what acknowledges it.
func (p *Peer) follow(frame http2.Frame, err error) (acknowledge func(*http2.Framer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	if err != nil {
		p.gone = true
		return nil
	}
	id := frame.Header().StreamID
	seen := p.streams[id]
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
		p.windows[id] += int(f.Increment)
	case *http2.RSTStreamFrame:
		seen.Ended, seen.Reset = true, f.ErrCode
	case *http2.MetaHeadersFrame:
		seen.Answered, seen.Ended = true, seen.Ended || f.StreamEnded()
		for _, field := range f.Fields {
			if field.Name == "grpc-status" {
				seen.Status = field.Value
			}
		}
	case *http2.DataFrame:
		seen.Bytes += len(f.Data())
	}
	p.streams[id] = seen
	return nil
}

// Seen returns what the peer has seen of a stream.
func (p *Peer) Seen(id uint32) Seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams[id]
}

// Encode encodes the headers of a call of a method over gRPC, and more. The order of calls is that in
// which the server decodes them: Open keeps it, others need the peer alone.
func (p *Peer) Encode(path string, more ...hpack.HeaderField) []byte {
	p.headers.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "localhost"}, {Name: ":path", Value: path},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "authorization", Value: "Bearer " + p.token},
	}, more...) {
		_ = p.encoder.WriteField(f) // into memory
	}
	return bytes.Clone(p.headers.Bytes())
}

// Stream returns the next stream's number.
func (p *Peer) Stream() uint32 {
	id := p.next
	p.next += 2
	p.mu.Lock()
	p.windows[id] = p.initial
	p.mu.Unlock()
	return id
}

// Open opens a stream of a method, and leaves it open.
func (p *Peer) Open(method string, more ...hpack.HeaderField) uint32 {
	p.opening.Lock()
	defer p.opening.Unlock()
	id, block := p.Stream(), p.Encode(method, more...)
	p.Write(func(w *http2.Framer) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
	})
	return id
}

// Message returns a message of gRPC, or the beginning of one whose length is more.
func Message(zipped bool, length int, body []byte) []byte {
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(length))
	if zipped {
		prefix[0] = 1
	}
	return append(prefix, body...)
}

// Send sends bytes on a stream, in frames of a size, until the server ends the stream or the connection,
// or takes nothing more for a while.
func (p *Peer) Send(id uint32, body []byte, frame int) {
	for len(body) > 0 {
		n := p.window(id, min(len(body), 64<<10))
		if n == 0 || !p.Write(func(w *http2.Framer) {
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

// End ends the peer's side of a stream.
func (p *Peer) End(id uint32) { p.Write(func(w *http2.Framer) { _ = w.WriteData(id, true, nil) }) }

// window takes up to most bytes of the windows of a stream. It returns 0 if the stream has ended, or if
// the server gives no window for a second.
func (p *Peer) window(id uint32, most int) int {
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
	for !p.gone && !p.streams[id].Ended && !late {
		if n := min(most, p.windows[0], p.windows[id]); n > 0 {
			p.windows[0] -= n
			p.windows[id] -= n
			return n
		}
		p.changed.Wait()
	}
	return 0
}
