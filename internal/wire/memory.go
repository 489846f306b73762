package wire

import (
	"errors"
	"runtime"
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
		if o.sending != nil {
			o.sending.End()
		}
		return nil, nil
	}
	o.memory = nil
	if s := o.sending; s != nil {
		o.sending = nil
		m.slice[0] = follow(s, m.bytes, m)
		return m.slice[:], nil
	}
	m.unsent.count(unsent, cap(m.bytes))
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
	unsent *unsent
	pool   *sync.Pool // nil for the largest
}

// unsent is a reply that the transport holds, as it is counted. The transport frees
// what it has sent; what it has not when its connection ends it merely forgets, so
// that the collector has to tell.
type unsent struct {
	in    *atomic.Int64 // nil: it is not counted
	bytes atomic.Int64
}

// newUnsent is for the replies that an object holds, one after the other.
func newUnsent[T any](of *T) *unsent {
	u := &unsent{}
	runtime.AddCleanup(of, func(u *unsent) { u.end() }, u)
	return u
}

func (u *unsent) count(in *atomic.Int64, bytes int) {
	if u.in = in; in != nil {
		u.bytes.Store(int64(bytes))
		in.Add(int64(bytes))
	}
}

// end ends counting the reply, if it is counted.
func (u *unsent) end() {
	if n := u.bytes.Swap(0); n != 0 {
		u.in.Add(-n)
	}
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
			return makeMemory(size, &pools[i])
		}
		size *= 4
	}
	return makeMemory(2*n, nil)
}

func makeMemory(size int, pool *sync.Pool) *memory {
	m := &memory{bytes: make([]byte, 0, size), pool: pool}
	m.unsent = newUnsent(m)
	return m
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
	r.unsent.end()
	(*memory)(r).release()
}
