package unpack

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// unpacking is what Limit was called with last; nil for no limit.
var unpacking atomic.Pointer[limits]

type limits struct {
	largest func() int
	more    func(unpacked int64) bool
}

// inHand counts the bytes of all messages that are being unpacked.
var inHand atomic.Int64

// Limit makes every message that is being unpacked end soon after its largest size, and
// ask before each further piece of at most 32 KiB whether there is room for more. If there is not,
// the message is cut: see Cut. gRPC keeps its compressors for the process, and so the last caller
// decides for all servers in it.
func Limit(largest func() int, more func(unpacked int64) bool) {
	unpacking.Store(&limits{largest, more})
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

// bounded is gRPC's own gzip with the limit of Limit.
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
	size             int  // bytes that it has unpacked to
	short            bool // there was no room
	rest             []byte
}

// Read implements io.Reader. gRPC calls it with a buffer that it has just taken from its pool.
func (r *reader) Read(into []byte) (int, error) {
	if !r.short {
		limit := unpacking.Load()
		over := limit != nil && r.size > limit.largest()
		if !over && (limit == nil || limit.more(inHand.Load())) {
			n, err := r.unpacked.Read(into)
			r.size += n
			inHand.Add(int64(n))
			return n, err
		}
		if r.short = true; !over { // what is over is refused for its size
			r.rest = cut
		}
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
	inHand.Add(-int64(r.size))
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
