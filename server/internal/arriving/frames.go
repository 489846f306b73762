package arriving

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"golang.org/x/net/http2"
)

// Frames follows the HTTP/2 frames of a server's connection and knows how much memory the messages
// take that have begun to arrive and are not whole, and those that are whole and wait for whoever reads
// them. gRPC keeps the pieces of messages, in whatever frames they came, and tells nobody about them.
//
// What waits is what came on a stream beyond what the server's window updates have given back for it.
// gRPC gives back a quarter of a window at a time, so up to Waiting of each stream does not count.
//
// It looks at nothing but the headers of frames, window updates and the lengths of gRPC's messages. What is no
// HTTP/2 gives meaningless numbers, which do not matter: gRPC ends such a connection. It is safe for
// concurrent use, except that bytes of one direction come in their order.
type Frames struct {
	changed func(bytes int64)

	in  frame // of the goroutine that reads
	out frame // of the goroutine that writes

	mu       sync.Mutex
	streams  map[uint32]*stream // that the server has not ended
	spare    *stream
	lastID   uint32 // of the last frame, because the next is often of the same stream
	last     *stream
	held     int64
	reported int64
	closed   bool
	nanos    int64 // that gRPC takes for what was read last
}

// stream is what the client sends on a stream. What follows the prefix is about the message that is
// arriving; all zero, none has begun.
type stream struct {
	unread int64 // bytes that came and were not given back; below 0 while gRPC makes room for a large message
	waits  int64 // what they cost
	counts int64 // what counts of the stream

	prefix [prefixBytes]byte // a flag and the length
	known  int               // bytes of the prefix
	left   int64             // bytes that have not come yet, once the prefix is known
	cost   int64
}

// prefixBytes is the length of what comes before each message of gRPC.
const prefixBytes = 5

// Waiting is what may wait on each stream without being counted. It is for a window of twice as much: the
// quarter that may have been read already costs no more than that in frames of 48 bytes or more.
const Waiting = 256 << 10

// smallFrameCost is what gRPC keeps for each frame of at most 1024 bytes, beside its bytes.
const smallFrameCost = 48

// frameCost returns what gRPC keeps for a frame of data until it is read.
func frameCost(size int) int64 {
	switch {
	case size == 0:
		return 0
	case size > 1<<10:
		return int64(1) << bits.Len(uint(size-1)) // as Pool rounds
	}
	return int64(size) + smallFrameCost
}

// frame is the position in one direction of the connection.
type frame struct {
	skip   int // bytes to pass over first
	header [9]byte
	known  int    // bytes of header
	left   int    // bytes of the payload that have not come yet
	data   int    // those of them that are a message's, of a DATA frame
	update uint32 // the payload of a window update
	padded bool
	of     *stream // a DATA frame's
}

// NewFrames returns the Frames of a new connection. It calls changed, one call after the other, with
// the bytes that unfinished messages take more than before, or less.
func NewFrames(changed func(bytes int64)) *Frames {
	return &Frames{changed: changed, in: frame{skip: len(http2.ClientPreface)}, streams: map[uint32]*stream{}}
}

// How long gRPC takes for what it reads, roughly, in nanoseconds.
const (
	callNanos       = 40_000 // to begin a call, and to end it
	dataNanos       = 300    // a frame of data
	otherNanos      = 2_000  // any other: it is answered, or wakes whoever writes
	headerByteNanos = 60     // a byte of packed headers may stand for thousands
	dataPerNano     = 2      // bytes of data
)

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

// Read follows bytes that came from the client until gRPC has so many nanoseconds of work with them. It
// returns how many bytes these are, at least one, and how long gRPC takes, by the kinds of frames and
// by no clock.
func (f *Frames) Read(p []byte, most int64) (n int, nanos int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.report()
	f.nanos = 0
	rest := p
	for len(rest) > 0 && f.nanos < most {
		if f.in.left == 0 {
			if rest = f.passWhole(rest, most); len(rest) == 0 || f.nanos >= most {
				break
			}
			if rest = f.in.next(rest); f.in.known < len(f.in.header) {
				break
			}
			f.begin()
			continue
		}
		n := min(len(rest), f.in.left)
		f.payload(rest[:n])
		rest = rest[n:]
		if f.in.left == 0 {
			f.end()
		}
	}
	return len(p) - len(rest), f.nanos
}

// Hold counts bytes that were read from the client and are kept from gRPC for a while, or no longer.
func (f *Frames) Hold(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.report()
	f.held += bytes
}

// passWhole passes over frames at the head of p whose messages begin and end in them, as almost all
// do, and returns what follows.
func (f *Frames) passWhole(p []byte, most int64) []byte {
	if f.in.known > 0 || f.in.skip > 0 {
		return p
	}
	for f.nanos < most && len(p) >= 9 && http2.FrameType(p[3]) == http2.FrameData && !http2.Flags(p[4]).Has(http2.FlagDataPadded) {
		size := frameSize(p)
		if len(p)-9 < size {
			return p
		}
		if s := f.streamOn(streamOf(p)); s != nil {
			if s.known > 0 || !whole(p[9:9+size]) {
				return p
			}
			s.came(int64(size), frameCost(size))
			f.count(s)
		}
		f.nanos += dataNanos + int64(size)/dataPerNano
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

// streamOn returns the stream with a number; nil if the server has ended it.
func (f *Frames) streamOn(id uint32) *stream {
	if f.last == nil || f.lastID != id {
		f.lastID, f.last = id, f.streams[id]
	}
	return f.last
}

// count counts what a stream holds now. gRPC reads a message before those that follow, so that an
// unfinished one either waits like the rest or is all there is.
func (f *Frames) count(s *stream) {
	now := max(s.cost, s.waits-Waiting, 0)
	f.held += now - s.counts
	s.counts = now
}

// Written follows bytes that go to the client. Window updates tell what gRPC has read, and what came on
// streams that the server ends takes nothing any more.
func (f *Frames) Written(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.report()
	for len(p) > 0 {
		if n := min(len(p), f.out.left); n > 0 {
			if f.out.kind() == http2.FrameWindowUpdate {
				n = 1
				f.out.update = f.out.update<<8 | uint32(p[0])
			}
			if f.out.left -= n; f.out.left == 0 && f.out.kind() == http2.FrameWindowUpdate {
				f.read(f.out.stream(), int64(f.out.update))
			}
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

// read notes that gRPC has read so many bytes of a stream.
func (f *Frames) read(id uint32, bytes int64) {
	s := f.streamOn(id)
	if s == nil {
		return
	}
	if bytes < s.unread {
		s.waits -= int64(float64(s.waits) * float64(bytes) / float64(s.unread))
	} else {
		s.waits = 0
	}
	s.unread -= bytes
	f.count(s)
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
	in.of, in.data, in.padded = nil, 0, false
	switch in.kind() {
	case http2.FrameHeaders:
		f.nanos += callNanos
		if f.streams[in.stream()] == nil && !in.ends() {
			s := f.spare
			if f.spare = nil; s == nil {
				s = new(stream)
			}
			f.streams[in.stream()] = s
			f.last = nil // there may have been none with this number
		}
	case http2.FrameData:
		f.nanos += dataNanos
		in.of, in.data = f.streamOn(in.stream()), in.left
		in.padded = in.flags().Has(http2.FlagDataPadded)
	default:
		f.nanos += otherNanos
	}
	if in.left == 0 {
		f.end()
	}
}

// payload follows a part of the payload of a frame.
func (f *Frames) payload(p []byte) {
	in := &f.in
	in.left -= len(p)
	switch in.kind() {
	case http2.FrameHeaders, http2.FrameContinuation:
		f.nanos += int64(len(p)) * headerByteNanos
	default:
		f.nanos += int64(len(p)) / dataPerNano
	}
	if in.padded {
		in.padded = false
		in.data = max(in.data-1-int(p[0]), 0)
		p = p[1:]
	}
	n := min(len(p), in.data)
	in.data -= n
	s := in.of
	if s == nil {
		return
	}
	for p = p[:n]; len(p) > 0; {
		if s.known < prefixBytes {
			n := copy(s.prefix[s.known:], p)
			p = p[n:]
			if s.known += n; s.known < prefixBytes {
				return
			}
			s.left = int64(binary.BigEndian.Uint32(s.prefix[1:]))
		}
		n := min(int64(len(p)), s.left)
		p, s.left = p[n:], s.left-n
		s.cost += n
		if s.left == 0 {
			s.begins() // the next one
		}
	}
	f.count(s)
}

// came notes that a frame of data has come. What gRPC has given back beforehand does not wait.
func (s *stream) came(size, cost int64) {
	s.unread += size
	switch {
	case s.unread >= size:
		s.waits += cost
	case s.unread > 0:
		s.waits += cost * s.unread / size
	}
}

// begins begins a message.
func (s *stream) begins() { s.known, s.left, s.cost = 0, 0, 0 }

// end ends a frame of the client, whose payload has been followed.
func (f *Frames) end() {
	in := &f.in
	in.known = 0
	if size := frameSize(in.header[:]); in.of != nil && size > 0 {
		s := in.of
		cost := frameCost(size)
		if s.known > 0 {
			s.cost += cost - int64(size)
		}
		s.came(int64(size), cost)
		f.count(s)
	}
	if !in.ends() {
		return
	}
	if in.kind() == http2.FrameRSTStream {
		f.drop(in.stream())
	} else if s := f.streams[in.stream()]; s != nil {
		s.begins() // the rest will never come
		f.count(s)
	}
}

// drop forgets a stream.
func (f *Frames) drop(id uint32) {
	s := f.streams[id]
	if s == nil {
		return
	}
	delete(f.streams, id)
	if f.last == s {
		f.last = nil
	}
	f.held -= s.counts
	if f.in.of == s {
		f.in.of = nil
		return
	}
	*s = stream{}
	f.spare = s
}
