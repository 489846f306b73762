package unpack

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// TestLimit unpacks a message as gRPC does, while there is room and after.
func TestLimit(t *testing.T) {
	t.Cleanup(func() { unpacking.Store(nil) })
	z := encoding.GetCompressor("gzip")
	var packed bytes.Buffer
	w, err := z.Compress(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		limit   int64
		largest int
		cut     bool
	}{
		"room for all":  {2 << 20, 4 << 20, false},
		"room for half": {1 << 19, 4 << 20, true},
		"no room":       {0, 4 << 20, true},
		"too large":     {2 << 20, 1 << 18, false},
	} {
		t.Run(name, func(t *testing.T) {
			Limit(func() int { return c.largest }, func(unpacked int64) bool { return unpacked < c.limit })
			var unpacked mem.BufferSlice
			r, err := z.Decompress(bytes.NewReader(packed.Bytes()))
			if err == nil {
				unpacked, err = mem.ReadAll(r, mem.DefaultBufferPool())
				_ = r.(io.Closer).Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			var pieces [][]byte
			for _, b := range unpacked {
				pieces = append(pieces, b.ReadOnlyData())
			}
			if got := Cut(pieces); got != c.cut {
				t.Errorf("cut %v, want %v", got, c.cut)
			}
			if got, most := int64(unpacked.Len()), c.limit+64; c.cut && got > most || !c.cut && c.largest > 1<<20 && got != 1<<20 {
				t.Errorf("%d bytes were unpacked, at most %d", got, most)
			}
			// What ends beyond its largest size is refused for its size, and little more is unpacked.
			if got := unpacked.Len(); c.largest < 1<<20 && (got <= c.largest || got > c.largest+64<<10) {
				t.Errorf("%d bytes were unpacked, want few more than %d", got, c.largest)
			}
			unpacked.Free()
			if n := inHand.Load(); n != 0 {
				t.Errorf("%d bytes count after the end", n)
			}
		})
	}
}

// TestCut gives messages in pieces of every size.
func TestCut(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		want    bool
	}{
		"cut":            {"a message" + string(cut), true},
		"cut at once":    {string(cut), true},
		"empty":          {"", false},
		"whole":          {"a message that is longer than the mark", false},
		"a part of it":   {string(cut[1:]), false},
		"in the midst":   {"a message" + string(cut) + "goes on", false},
		"begins like it": {"a message" + string(cut[:len(cut)-1]), false},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(c.message)+1; size++ {
				var pieces [][]byte
				for piece := range slices.Chunk([]byte(c.message), size) {
					pieces = append(pieces, piece)
				}
				if got := Cut(pieces); got != c.want {
					t.Errorf("in pieces of %d: %v, want %v", size, got, c.want)
				}
			}
		})
	}
}
