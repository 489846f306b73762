package arriving

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"
)

// wire writes frames of one direction into a buffer.
type wire struct {
	bytes.Buffer
	*http2.Framer
	last uint32
}

// next returns the number of another stream.
func (w *wire) next() uint32 {
	w.last += 2
	return w.last + 1
}

func newWire(preface string) *wire {
	w := &wire{}
	w.WriteString(preface)
	w.Framer = http2.NewFramer(&w.Buffer, nil)
	return w
}

// sent returns what was written since the last call.
func (w *wire) sent() []byte {
	defer w.Reset()
	return bytes.Clone(w.Bytes())
}

func (w *wire) headers(stream uint32, last bool) {
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("fields"), EndHeaders: true, EndStream: last})
}

// message returns a message of gRPC.
func messageOf(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// following is a Frames with the sum of what it has reported.
type following struct {
	*Frames
	held int64
}

func newFollowing() *following {
	f := &following{}
	f.Frames = NewFrames(func(bytes int64) { f.held += bytes })
	return f
}

// TestFramesCount checks what messages cost that are not whole, in frames of several kinds.
func TestFramesCount(t *testing.T) {
	const stream = 1
	for name, c := range map[string]struct {
		write func(in, out *wire)
		want  int64
	}{
		"nothing":                 {func(_, _ *wire) {}, 0},
		"headers":                 {func(in, _ *wire) { in.headers(stream, false) }, 0},
		"a whole message":         {data(messageOf(100)), 0},
		"an empty message":        {data(messageOf(0)), 0},
		"two in one frame":        {data(append(messageOf(100), messageOf(50)...)), 0},
		"half a message":          {data(messageOf(200)[:105]), 100 + smallFrameCost},
		"half of it in two":       {data(messageOf(200)[:5], make([]byte, 100)), 100 + 2*smallFrameCost},
		"a part of a prefix":      {data(messageOf(200)[:3]), smallFrameCost},
		"its rest":                {data(messageOf(200)[:3], messageOf(200)[3:]), 0},
		"a whole one and a half":  {data(append(messageOf(100), messageOf(200)[:105]...)), 100 + smallFrameCost},
		"a frame of 16 KiB":       {data(messageOf(1 << 20)[:1<<14]), 1<<14 - prefixBytes},
		"a frame of 4097 bytes":   {data(messageOf(1 << 20)[:4097]), 1<<13 - prefixBytes},
		"other frames in between": {func(in, _ *wire) { data(messageOf(200)[:105])(in, nil); _ = in.WritePing(false, [8]byte{}) }, 100 + smallFrameCost},
		"padding": {func(in, _ *wire) {
			in.headers(stream, false)
			_ = in.WriteDataPadded(stream, false, messageOf(200)[:105], make([]byte, 50))
			_ = in.WriteDataPadded(stream, false, make([]byte, 50), nil)
		}, 150 + 2*smallFrameCost},
		"the client's reset": {func(in, _ *wire) {
			data(messageOf(200)[:105])(in, nil)
			_ = in.WriteRSTStream(stream, http2.ErrCodeCancel)
		}, 0},
		"the client's end": {func(in, _ *wire) { data(messageOf(200)[:105])(in, nil); _ = in.WriteData(stream, true, nil) }, 0},
		"the server's end": {func(in, out *wire) { data(messageOf(200)[:105])(in, nil); out.headers(stream, true) }, 0},
		"the server's answer": {func(in, out *wire) {
			data(messageOf(200)[:105])(in, nil)
			out.headers(stream, false)
			_ = out.WriteData(stream, false, make([]byte, 100))
		}, 100 + smallFrameCost},
		"data on no stream": {func(in, _ *wire) { _ = in.WriteData(stream, false, messageOf(200)[:105]) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, in, out := newFollowing(), newWire(http2.ClientPreface), newWire("")
			c.write(in, out)
			f.Read(in.sent(), math.MaxInt64)
			f.Written(out.sent())
			if f.held != c.want {
				t.Errorf("%d bytes, want %d", f.held, c.want)
			}
			if f.Close(); f.held != 0 {
				t.Errorf("%d bytes after the end", f.held)
			}
		})
	}
}

// TestFramesWait checks what whole messages count that gRPC has not read: all that their frames cost beyond
// Waiting, until window updates say that they were read, or the server ends the stream.
func TestFramesWait(t *testing.T) {
	const stream, size, many = 1, 1000, 500
	f, in, out := newFollowing(), newWire(http2.ClientPreface), newWire("")
	read := func(want int64) {
		t.Helper()
		f.Read(in.sent(), math.MaxInt64)
		f.Written(out.sent())
		if f.held != want {
			t.Errorf("%d bytes, want %d", f.held, want)
		}
	}
	in.headers(stream, false)
	for range many {
		_ = in.WriteData(stream, false, messageOf(size-prefixBytes))
	}
	const cost = many * (size + smallFrameCost)
	read(cost - Waiting)
	_ = out.WriteWindowUpdate(stream, many*size/4)
	_ = out.WriteWindowUpdate(0, many*size)
	read(cost*3/4 - Waiting)
	_ = out.WriteWindowUpdate(stream, many*size/2)
	read(0) // a quarter costs less than Waiting
	_ = out.WriteWindowUpdate(stream, many*size/4)
	_ = in.WriteData(stream, false, messageOf(1 << 20)[:16<<10]) // the beginning of a large one
	read(16<<10 - prefixBytes)
	_ = out.WriteWindowUpdate(stream, 1<<20+prefixBytes) // room for all of it
	read(16<<10 - prefixBytes)
	for from := 16 << 10; from < 1<<20; from += 16 << 10 {
		_ = in.WriteData(stream, false, make([]byte, 16<<10))
	}
	_ = in.WriteData(stream, false, make([]byte, prefixBytes))
	read(0)
	for range many {
		_ = in.WriteData(stream, false, messageOf(size-prefixBytes))
	}
	_ = in.WriteData(stream, true, nil)
	read(cost - Waiting)
	out.headers(stream, true)
	read(0)
}

// TestFramesInPieces checks how much is given to gRPC at once, by what it costs.
func TestFramesInPieces(t *testing.T) {
	const piece = 200_000
	for name, c := range map[string]struct {
		write func(*wire)
		most  int // bytes at once
	}{
		"calls":         {func(w *wire) { w.headers(w.next(), true) }, 5 * (9 + len("fields"))},
		"packed fields": {func(w *wire) { _ = w.WriteContinuation(1, false, make([]byte, 1<<14)) }, 1<<14 + 9},
		"pings":         {func(w *wire) { _ = w.WritePing(false, [8]byte{}) }, 100 * 17},
		"tiny data":     {func(w *wire) { _ = w.WriteData(1, false, []byte{0}) }, 700 * 10},
		"large data":    {func(w *wire) { _ = w.WriteData(1, false, messageOf(1<<14-prefixBytes)) }, 26 * (1<<14 + 9)},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := newFollowing(), newWire(http2.ClientPreface)
			w.headers(1, false)
			f.Read(w.sent(), math.MaxInt64)
			for w.Len() < 1<<20 {
				c.write(w)
			}
			pieces, all := 0, w.sent()
			for rest := all; len(rest) > 0; pieces++ {
				n, nanos := f.Read(rest, piece)
				if n > c.most || nanos < piece && n < len(rest) {
					t.Fatalf("%d bytes at once, which take %d ns", n, nanos)
				}
				rest = rest[n:]
			}
			if fewest := len(all) / c.most; pieces < fewest || pieces > 2*fewest {
				t.Errorf("%d pieces", pieces)
			}
		})
	}
}

// data returns a function that opens stream 1 and sends pieces on it, a frame each.
func data(pieces ...[]byte) func(in, _ *wire) {
	return func(in, _ *wire) {
		in.headers(1, false)
		for _, p := range pieces {
			_ = in.WriteData(1, false, p)
		}
	}
}

// TestFramesFollow sends messages on several streams, in frames that mix them at random and in reads
// that cut the frames at random. Nothing must be held once all are whole, and before that at least
// what has come of those that are not.
func TestFramesFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type client struct{ begun int }
		f, in := newFollowing(), newWire(http2.ClientPreface)
		clients := map[uint32]*client{}
		read := func() int64 {
			for sent := in.sent(); len(sent) > 0; {
				n := rapid.IntRange(1, len(sent)).Draw(t, "read")
				f.Read(sent[:n], math.MaxInt64)
				sent = sent[n:]
			}
			return f.held
		}
		pending := map[uint32][]byte{}
		for range rapid.IntRange(1, 60).Draw(t, "frames") {
			stream := uint32(1 + 2*rapid.IntRange(0, 3).Draw(t, "stream"))
			c := clients[stream]
			if c == nil {
				c = &client{}
				clients[stream] = c
				in.headers(stream, false)
			}
			if len(pending[stream]) == 0 {
				c.begun = rapid.IntRange(0, 5000).Draw(t, "message")
				pending[stream] = messageOf(c.begun)
			}
			n := rapid.IntRange(0, min(len(pending[stream]), 1<<14)).Draw(t, "frame")
			_ = in.WriteData(stream, false, pending[stream][:n])
			pending[stream] = pending[stream][n:]
			held, least := read(), int64(0)
			for stream, c := range clients {
				if left := len(pending[stream]); left > 0 {
					least += int64(max(c.begun-left, 0))
				}
			}
			if held < least {
				t.Fatalf("%d bytes, at least %d have come", held, least)
			}
		}
		for stream, rest := range pending {
			_ = in.WriteData(stream, false, rest)
		}
		if held := read(); held != 0 {
			t.Fatalf("%d bytes of messages that are whole", held)
		}
	})
}

// FuzzFrames reads what need not be HTTP/2 at all.
func FuzzFrames(f *testing.F) {
	in := newWire(http2.ClientPreface)
	data(messageOf(200)[:105])(in, nil)
	f.Add(in.sent(), []byte{})
	f.Fuzz(func(t *testing.T, read, written []byte) {
		one, many := newFollowing(), newFollowing()
		one.Read(read, math.MaxInt64)
		for rest := read; len(rest) > 0; { // a frame each time, or a part of one
			n, _ := many.Read(rest, 1)
			if n < 1 {
				t.Fatalf("%d bytes were followed", n)
			}
			rest = rest[n:]
		}
		if one.held != many.held {
			t.Errorf("%d bytes at once, %d in pieces", one.held, many.held)
		}
		if one.Written(written); one.held < 0 {
			t.Errorf("%d bytes", one.held)
		}
	})
}

// BenchmarkFrames measures what it costs to follow a message of 1.2 KB, and the headers and the end
// of a call.
func BenchmarkFrames(b *testing.B) {
	for name, write := range map[string]func(*wire){
		"message": func(w *wire) { _ = w.WriteData(1, false, messageOf(1200)) },
		"call": func(w *wire) {
			w.headers(3, false)
			_ = w.WriteData(3, true, messageOf(1200))
		},
	} {
		b.Run(name, func(b *testing.B) {
			f, w := newFollowing(), newWire(http2.ClientPreface)
			w.headers(1, false)
			f.Read(w.sent(), math.MaxInt64)
			write(w)
			frames := w.sent()
			b.ReportAllocs()
			for b.Loop() {
				f.Read(frames, math.MaxInt64)
			}
		})
	}
}
