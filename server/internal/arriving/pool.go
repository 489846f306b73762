package arriving

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// Pool is a mem.BufferPool that counts the bytes that are in use. The zero value is ready for use. It
// is safe for concurrent use.
//
// gRPC does not give every buffer back: what a stream had not read when it ended is left to the
// collector. So the Pool also counts the buffers that exist, which the collector tells it. What is in
// use can never be more, so that a lost buffer is forgotten once it has been collected.
//
// Buffers are not cleared between uses, because everybody reads only what they have written.
type Pool struct {
	sizes [largest - smallest + 1]sync.Pool

	out    atomic.Int64 // bytes that were taken and not given back; lost ones included
	exists atomic.Int64 // bytes of all buffers that the collector has not found dead
}

var _ mem.BufferPool = (*Pool)(nil)

// Exponents of the sizes that are pooled. The smallest size exceeds the threshold of grpc/mem, under
// which buffers are never given back, and the largest is that of the pieces that mem.ReadAll reads.
const (
	smallest = 11 // 2 KiB
	largest  = 15 // 32 KiB
)

// Held returns the bytes of the buffers in use. Soon after a stream broke off it may include idle
// buffers of the pool, up to the size of what was lost with that stream.
func (p *Pool) Held() int64 {
	for {
		out, exists := p.out.Load(), p.exists.Load()
		if out <= exists {
			return out
		}
		if p.out.CompareAndSwap(out, exists) { // the difference was lost
			return exists
		}
	}
}

// Get implements mem.BufferPool.
func (p *Pool) Get(length int) *[]byte {
	if mem.IsBelowBufferPoolingThreshold(length) {
		b := make([]byte, length)
		return &b // gRPC gives no buffer of this size back
	}
	i := max(bits.Len(uint(length-1)), smallest) - smallest
	if i >= len(p.sizes) {
		return p.make(length, length)
	}
	b, ok := p.sizes[i].Get().(*[]byte)
	if !ok {
		return p.make(length, 1<<(i+smallest))
	}
	p.out.Add(int64(cap(*b)))
	*b = (*b)[:length]
	return b
}

// make returns a new buffer, counted until the collector finds it dead.
func (p *Pool) make(length, size int) *[]byte {
	b := make([]byte, length, size)
	p.exists.Add(int64(size)) // first: what is out always exists
	p.out.Add(int64(size))
	runtime.AddCleanup(&b, p.gone, int64(size))
	return &b
}

func (p *Pool) gone(size int64) { p.exists.Add(-size) }

// Put implements mem.BufferPool.
func (p *Pool) Put(b *[]byte) {
	size := cap(*b)
	if mem.IsBelowBufferPoolingThreshold(size) {
		return
	}
	p.out.Add(-int64(size))
	if i := bits.Len(uint(size)) - 1 - smallest; i >= 0 && i < len(p.sizes) && size == 1<<(i+smallest) {
		p.sizes[i].Put(b)
	}
}
