package wire

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// handOver gives the reply to the transport.
func (o *Outgoing) handOver(unsent Counter) (mem.BufferSlice, error) {
	if o.sent {
		return nil, errors.New("the reply was sent before; Begin starts another")
	}
	o.sent = true
	if o.counter != nil {
		unsent = o.counter
	}
	m := o.memory
	if m == nil {
		if o.paid != 0 {
			unsent.Add(-o.paid)
		}
		if o.sending != nil {
			o.sending.End()
		}
		return nil, nil
	}
	o.memory = nil
	if s := o.sending; s != nil {
		o.sending = nil
		m.lent.follow(s)
		m.followed.begin(s, m.bytes)
		m.slice[0] = &m.followed
		return m.slice[:], nil
	}
	m.lent.count(unsent, cap(m.bytes), o.paid)
	m.slice[0] = mem.NewBuffer(&m.bytes, (*recycler)(m))
	return m.slice[:], nil
}

// reserve returns the reply with room for n more bytes.
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

// memory holds a reply while it is built and while the transport sends it. It comes from pools
// by size, each of four times the one before, so that small replies do not hold the memory of
// large ones.
type memory struct {
	bytes    []byte
	slice    [1]mem.Buffer // hands the reply to the transport without an allocation
	followed followed      // in slice, if the reply has a Sending
	lent     *lent
	pool     *sync.Pool // nil for the largest
}

// lent is what has to be undone when the transport lets go of a reply. The transport frees what
// it has sent, but merely forgets the rest when its connection ends, so that the garbage
// collector has to undo it. It is therefore an object apart from the memory of the reply.
type lent struct {
	active  atomic.Bool
	in      Counter // counts bytes; nil where a Sending does
	bytes   int64
	sending Sending
}

// newLent returns the lent of an object that holds one reply after the other.
func newLent[T any](of *T) *lent {
	l := &lent{}
	runtime.AddCleanup(of, (*lent).end, l)
	return l
}

// count has in count the bytes of a reply until end, if in is given. It counts some already.
func (l *lent) count(in Counter, bytes int, already int64) {
	if in != nil {
		in.Add(int64(bytes) - already)
		l.in, l.bytes = in, int64(bytes)
		l.active.Store(true)
	}
}

// follow has end call s.End.
func (l *lent) follow(s Sending) {
	l.sending = s
	l.active.Store(true)
}

// end undoes what was begun with count or follow, once.
func (l *lent) end() {
	if !l.active.Swap(false) {
		return
	}
	if l.in != nil {
		l.in.Add(-l.bytes)
	}
	if l.sending != nil {
		l.sending.End()
	}
	l.in, l.sending = nil, nil
}

// smallest is the size of the smallest memory. It must exceed grpc/mem's pooling threshold, below
// which buffers are never given back.
const smallest = 1152

var pools [6]sync.Pool

// newMemory returns memory with room for n bytes.
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
	m.lent, m.followed.memory = newLent(m), m
	return m
}

func (m *memory) release() {
	m.slice[0], m.bytes = nil, m.bytes[:0]
	m.followed.SliceBuffer, m.followed.sending = nil, nil
	if m.pool != nil {
		m.pool.Put(m)
	}
}

// recycler is a memory in the role of the pool that its buffer comes from.
type recycler memory

// Get implements mem.BufferPool. Nothing calls it.
func (r *recycler) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool. The transport calls it when it frees its last reference.
func (r *recycler) Put(*[]byte) {
	r.lent.end()
	(*memory)(r).release()
}
