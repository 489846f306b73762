package wire

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// handOver makes the reply the transport's.
func (o *Outgoing) handOver(unsent *atomic.Int64) (mem.BufferSlice, error) {
	if o.sent {
		return nil, errors.New("the reply was sent before; Begin starts another")
	}
	o.sent = true
	m := o.memory
	if m == nil {
		return nil, nil
	}
	o.memory = nil
	if m.unsent = unsent; unsent != nil {
		unsent.Add(int64(cap(m.bytes)))
	}
	m.slice[0] = mem.NewBuffer(&m.bytes, (*recycler)(m))
	return m.slice[:], nil
}

// reserve is the reply with room for n more bytes.
func (o *Outgoing) reserve(n int) []byte {
	if m := o.memory; m != nil && cap(m.bytes)-len(m.bytes) >= n {
		return m.bytes
	}
	return o.grow(n)
}

func (o *Outgoing) grow(n int) []byte {
	larger := newMemory(o.Len() + n)
	if small := o.memory; small != nil {
		larger.bytes = append(larger.bytes, small.bytes...)
		small.release()
	}
	o.memory = larger
	return larger.bytes
}

// memory is where a reply is built, with the slice of buffers that it is handed
// over in. It comes from pools by size, each of four times the one before, so
// that small replies do not hold the memory of large ones.
type memory struct {
	bytes  []byte
	slice  [1]mem.Buffer
	unsent *atomic.Int64 // that it counts in, once handed over
	pool   *sync.Pool    // nil for the largest
}

// smallest is the least memory of a reply. It must be above grpc/mem's pooling
// threshold: buffers below are never given back.
const smallest = 1152

var pools [6]sync.Pool

// newMemory has room for n bytes.
func newMemory(n int) *memory {
	size := smallest
	for i := range pools {
		if n <= size {
			if m, ok := pools[i].Get().(*memory); ok {
				return m
			}
			return &memory{bytes: make([]byte, 0, size), pool: &pools[i]}
		}
		size *= 4
	}
	return &memory{bytes: make([]byte, 0, 2*n)}
}

func (m *memory) release() {
	m.slice[0], m.bytes = nil, m.bytes[:0]
	if m.pool != nil {
		m.pool.Put(m)
	}
}

// recycler is a memory as the pool that its own buffer is given back to.
type recycler memory

// Get implements mem.BufferPool; nothing calls it.
func (r *recycler) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool: the transport has freed its last reference.
func (r *recycler) Put(*[]byte) {
	if r.unsent != nil {
		r.unsent.Add(-int64(cap(r.bytes)))
	}
	(*memory)(r).release()
}
