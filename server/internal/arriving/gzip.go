package arriving

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// room reports whether there is room to unpack more; nil for always.
var room atomic.Pointer[func() bool]

// LimitUnpacking makes every message that is being unpacked ask before each further piece of at most
// 32 KiB. If the answer is no, the message is cut: see Cut. gRPC keeps its compressors for the
// process, and so the last caller decides for all servers in it.
func LimitUnpacking(more func() bool) { room.Store(&more) }

func hasRoom() bool {
	more := room.Load()
	return more == nil || (*more)()
}

// cut ends a message that was not unpacked to its end. gRPC would turn an error of its decompressor
// into INTERNAL and tell that to the client at once. No message of protobuf ends like this, because
// no field has the number 0.
var cut = []byte("\x00cut for lack of room\x00")

// Cut reports whether a received message was cut, for lack of room to unpack it. It gets the pieces
// of the message.
func Cut(pieces [][]byte) bool {
	rest := cut
	for i := len(pieces) - 1; i >= 0; i-- {
		p := pieces[i]
		if len(p) >= len(rest) {
			return bytes.HasSuffix(p, rest)
		}
		if !bytes.HasSuffix(rest, p) {
			return false
		}
		rest = rest[:len(rest)-len(p)]
	}
	return false
}

// bounded is gRPC's own gzip with the limit of LimitUnpacking.
type bounded struct{ encoding.Compressor }

func init() { encoding.RegisterCompressor(bounded{encoding.GetCompressor(gzip.Name)}) }

// Decompress implements encoding.Compressor.
func (b bounded) Decompress(packed io.Reader) (io.Reader, error) {
	unpacked, err := b.Compressor.Decompress(packed)
	if err != nil {
		return nil, err
	}
	r := readers.Get().(*reader)
	r.packed, r.unpacked = packed, unpacked
	return r, nil
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// reader reads what a message unpacks to. gRPC reads no more of it than the largest message.
type reader struct {
	packed, unpacked io.Reader
	short            bool // there was no room
	rest             []byte
}

// Read implements io.Reader. gRPC calls it with a buffer that it has just taken from its pool.
func (r *reader) Read(into []byte) (int, error) {
	if !r.short {
		if hasRoom() {
			return r.unpacked.Read(into)
		}
		r.short, r.rest = true, cut
		closeReader(r.packed) // gRPC relies on its being read to the end
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer. gRPC calls it once, at the end.
func (r *reader) Close() error {
	closeReader(r.unpacked)
	*r = reader{}
	readers.Put(r)
	return nil
}

func closeReader(r io.Reader) {
	if c, ok := r.(io.Closer); ok {
		_ = c.Close() // there is nothing to lose
	}
}
