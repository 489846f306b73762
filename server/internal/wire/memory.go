package wire

import (
	"sync"

	"google.golang.org/grpc/mem"
)

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
	followed followed      // in slice
	pool     *sync.Pool    // nil for the largest
}

// smallest is the size of the smallest memory.
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
	m.followed.ending, m.followed.memory = newEnding(m), m
	return m
}

func (m *memory) release() {
	m.slice[0], m.followed.SliceBuffer, m.followed.ending.sending, m.bytes = nil, nil, nil, m.bytes[:0]
	if m.pool != nil {
		m.pool.Put(m)
	}
}
