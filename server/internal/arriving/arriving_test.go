package arriving

import (
	"bytes"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"
)

// TestPoolCounts takes buffers and gives them back in any order, and compares the count with the
// capacities of those that are out.
func TestPoolCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := new(Pool), int64(0)
		var out []*[]byte
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "put") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				want -= counted(out[i])
				p.Put(out[i])
				out[i] = out[len(out)-1]
				out = out[:len(out)-1]
			} else {
				n := rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(0, 100_000)).Draw(t, "length")
				b := p.Get(n)
				if len(*b) != n {
					t.Fatalf("a buffer of %d bytes, want %d", len(*b), n)
				}
				if wasted := cap(*b) > max(2*n, 1<<smallest); wasted {
					t.Fatalf("a buffer with room for %d bytes, want %d", cap(*b), n)
				}
				want += counted(b)
				out = append(out, b)
			}
			if got := p.Held(); got != want {
				t.Fatalf("%d bytes are held, want %d", got, want)
			}
		}
	})
}

// counted returns what a buffer counts.
func counted(b *[]byte) int64 {
	if mem.IsBelowBufferPoolingThreshold(cap(*b)) {
		return 0
	}
	return int64(cap(*b))
}

// TestPoolForgetsLostBuffers checks that buffers that nobody gives back stop counting when the
// collector has found them, while those in use count on.
func TestPoolForgetsLostBuffers(t *testing.T) {
	p := new(Pool)
	kept := p.Get(10_000)
	var lost []*[]byte
	for range 20 {
		lost = append(lost, p.Get(10_000))
	}
	big := p.Get(1 << 20)
	if got, want := p.Held(), int64(21<<14+1<<20); got != want {
		t.Fatalf("%d bytes are held, want %d", got, want)
	}
	runtime.KeepAlive(lost) // until here
	p.Put(big)
	held := int64(0)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		runtime.GC()
		if held = p.Held(); held == 1<<14 {
			break
		}
	}
	if held != 1<<14 {
		t.Errorf("%d bytes are held, want %d", held, 1<<14)
	}
	p.Put(kept)
	if got := p.Held(); got != 0 {
		t.Errorf("%d bytes are held, want none", got)
	}
}

// TestLimitUnpacking unpacks a message as gRPC does, while there is room and after.
func TestLimitUnpacking(t *testing.T) {
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
			p := new(Pool)
			LimitUnpacking(func() int { return c.largest }, func() bool { return p.Held() < c.limit })
			var unpacked mem.BufferSlice
			r, err := z.Decompress(bytes.NewReader(packed.Bytes()))
			if err == nil {
				unpacked, err = mem.ReadAll(r, p)
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
			if p.Held() != 0 {
				t.Errorf("%d bytes are held after all", p.Held())
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
