package arriving

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"golang.org/x/net/http2"
)

// Frames follows the HTTP/2 frames of a server's connection and knows how much memory the messages
// take that have begun to arrive and are not whole. gRPC keeps the pieces of such a message, in
// whatever frames they came, until the rest is there, and tells nobody about them.
//
// It looks at nothing but the headers of frames and the lengths of gRPC's messages. What is no
// HTTP/2 gives meaningless numbers, which do not matter: gRPC ends such a connection. It is safe for
// concurrent use, except that bytes of one direction come in their order.
type Frames struct {
	changed func(bytes int64)

	in  frame // of the goroutine that reads
	out frame // of the goroutine that writes

	mu       sync.Mutex
	messages map[uint32]*message // of the streams that the client may send on
	spare    *message
	// of the last frame, because the next is often of the same stream
	lastStream  uint32
	lastMessage *message
	held        int64
	reported    int64
	closed      bool
}

// message is the message that is arriving on a stream; its zero value has not begun.
type message struct {
	prefix [prefixBytes]byte // a flag and the length
	known  int               // bytes of the prefix
	left   int64             // bytes that have not come yet, once the prefix is known
	cost   int64
}

// prefixBytes is the length of what comes before each message of gRPC.
const prefixBytes = 5

// smallFrameCost is what gRPC keeps for each frame of at most 1024 bytes of an unfinished message,
// beside its bytes.
const smallFrameCost = 48

// frame is the position in one direction of the connection.
type frame struct {
	skip    int // bytes to pass over first
	header  [9]byte
	known   int // bytes of header
	left    int // bytes of the payload that have not come yet
	data    int // those of them that are a message's, of a DATA frame
	padded  bool
	message *message
}

// NewFrames returns the Frames of a new connection. It calls changed, one call after the other, with
// the bytes that unfinished messages take more than before, or less.
func NewFrames(changed func(bytes int64)) *Frames {
	return &Frames{changed: changed, in: frame{skip: len(http2.ClientPreface)}, messages: map[uint32]*message{}}
}

// Close ends the connection: no message takes anything any more.
func (f *Frames) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.report()
}

// report tells how much more is held than before, or less.
func (f *Frames) report() {
	if f.closed {
		f.held = 0
	}
	if more := f.held - f.reported; more != 0 {
		f.reported = f.held
		f.changed(more)
	}
}

// Read follows bytes that came from the client.
func (f *Frames) Read(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.report()
	for len(p) > 0 {
		if f.in.left == 0 {
			if p = f.passWhole(p); len(p) == 0 {
				break
			}
			if p = f.in.next(p); f.in.known < len(f.in.header) {
				break
			}
			f.begin()
			continue
		}
		n := min(len(p), f.in.left)
		f.payload(p[:n])
		p = p[n:]
		if f.in.left == 0 {
			f.end()
		}
	}
}

// passWhole passes over frames at the head of p whose messages begin and end in them, as almost all
// do, and returns what follows.
func (f *Frames) passWhole(p []byte) []byte {
	if f.in.known > 0 || f.in.skip > 0 {
		return p
	}
	for len(p) >= 9 && http2.FrameType(p[3]) == http2.FrameData && !http2.Flags(p[4]).Has(http2.FlagDataPadded) {
		size := frameSize(p)
		if len(p)-9 < size {
			return p
		}
		stream := streamOf(p)
		m := f.messageOn(stream)
		if m != nil && (m.known > 0 || !whole(p[9:9+size])) {
			return p
		}
		if http2.Flags(p[4]).Has(http2.FlagDataEndStream) {
			f.drop(stream)
		}
		p = p[9+size:]
	}
	return p
}

// whole reports whether bytes are messages without a rest.
func whole(p []byte) bool {
	for len(p) >= prefixBytes {
		n := int64(binary.BigEndian.Uint32(p[1:]))
		if int64(len(p)-prefixBytes) < n {
			return false
		}
		p = p[prefixBytes+n:]
	}
	return len(p) == 0
}

// frameSize and streamOf read the header of a frame.
func frameSize(header []byte) int { return int(header[0])<<16 | int(header[1])<<8 | int(header[2]) }
func streamOf(header []byte) uint32 {
	return binary.BigEndian.Uint32(header[5:]) & (1<<31 - 1)
}

// messageOn returns the message of a stream; nil if the client may not send on it.
func (f *Frames) messageOn(stream uint32) *message {
	if f.lastMessage == nil || f.lastStream != stream {
		f.lastStream, f.lastMessage = stream, f.messages[stream]
	}
	return f.lastMessage
}

// Written follows bytes that go to the client. Messages of streams that the server ends take nothing
// any more.
func (f *Frames) Written(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.report()
	for len(p) > 0 {
		if n := min(len(p), f.out.left); n > 0 {
			f.out.left -= n
			p = p[n:]
			continue
		}
		if p = f.out.next(p); f.out.known < len(f.out.header) {
			break
		}
		if f.out.ends() {
			f.drop(f.out.stream())
		}
		f.out.known = 0
	}
}

// next reads the header of the next frame, as far as it is there, and returns what follows.
func (f *frame) next(p []byte) []byte {
	if f.skip > 0 {
		n := min(f.skip, len(p))
		f.skip -= n
		p = p[n:]
	}
	n := copy(f.header[f.known:], p)
	if f.known += n; f.known == len(f.header) {
		f.left = frameSize(f.header[:])
	}
	return p[n:]
}

func (f *frame) kind() http2.FrameType { return http2.FrameType(f.header[3]) }
func (f *frame) flags() http2.Flags    { return http2.Flags(f.header[4]) }
func (f *frame) stream() uint32        { return streamOf(f.header[:]) }

// ends reports whether the frame is the sender's last of its stream.
func (f *frame) ends() bool {
	switch f.kind() {
	case http2.FrameRSTStream:
		return true
	case http2.FrameHeaders, http2.FrameData:
		return f.flags().Has(http2.FlagDataEndStream) // the same bit in both
	}
	return false
}

// begin begins a frame of the client, whose header is known.
func (f *Frames) begin() {
	in := &f.in
	in.message, in.data, in.padded = nil, 0, false
	switch in.kind() {
	case http2.FrameHeaders:
		if f.messages[in.stream()] == nil && !in.ends() {
			m := f.spare
			if f.spare = nil; m == nil {
				m = new(message)
			}
			f.messages[in.stream()] = m
		}
	case http2.FrameData:
		in.message, in.data = f.messageOn(in.stream()), in.left
		in.padded = in.flags().Has(http2.FlagDataPadded)
	}
	if in.left == 0 {
		f.end()
	}
}

// payload follows a part of the payload of a frame.
func (f *Frames) payload(p []byte) {
	in := &f.in
	in.left -= len(p)
	if in.padded {
		in.padded = false
		in.data = max(in.data-1-int(p[0]), 0)
		p = p[1:]
	}
	n := min(len(p), in.data)
	in.data -= n
	m := in.message
	if m == nil {
		return
	}
	for p = p[:n]; len(p) > 0; {
		if m.known < prefixBytes {
			n := copy(m.prefix[m.known:], p)
			p = p[n:]
			if m.known += n; m.known < prefixBytes {
				return
			}
			m.left = int64(binary.BigEndian.Uint32(m.prefix[1:]))
		}
		n := min(int64(len(p)), m.left)
		p, m.left = p[n:], m.left-n
		m.cost += n
		f.held += n
		f.finish(m)
	}
}

// finish forgets a message that is whole.
func (f *Frames) finish(m *message) {
	if m.known == prefixBytes && m.left == 0 {
		f.held -= m.cost
		*m = message{}
	}
}

// end ends a frame of the client, whose payload has been followed.
func (f *Frames) end() {
	in := &f.in
	in.known = 0
	if m := in.message; m != nil && m.known > 0 {
		size := frameSize(in.header[:])
		extra := int64(smallFrameCost)
		if size > 1<<10 {
			extra = int64(1)<<bits.Len(uint(size-1)) - int64(size) // as Pool rounds
		}
		m.cost += extra
		f.held += extra
	}
	if in.ends() {
		f.drop(in.stream())
	}
}

// drop forgets a stream.
func (f *Frames) drop(stream uint32) {
	m := f.messages[stream]
	if m == nil {
		return
	}
	delete(f.messages, stream)
	if f.lastMessage == m {
		f.lastMessage = nil
	}
	f.held -= m.cost
	if f.in.message == m {
		f.in.message = nil
		return
	}
	*m = message{}
	f.spare = m
}
