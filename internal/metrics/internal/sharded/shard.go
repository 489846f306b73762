package sharded

import (
	"math/bits"
	"runtime"
	"sync"
)

// Shard is the lock of one part of every series.
type Shard struct {
	sync.Mutex
	index int
	free  []float64 // parts of counters that the shard can give out; they lie side by side
	_     [88]byte  // pads to two cache lines, so that no processor waits for another's lock
}

// counter returns a part of a counter.
func (s *Shard) counter() *float64 {
	if len(s.free) == 0 {
		s.free = make([]float64, 64)
	}
	part := &s.free[0]
	s.free = s.free[1:]
	return part
}

const maxShards = 8

// NewShards returns a shard for each processor: a power of two, and at most maxShards.
func NewShards() []Shard {
	processors := min(runtime.GOMAXPROCS(0), maxShards)
	shards := make([]Shard, 1<<bits.Len(uint(processors-1)))
	for i := range shards {
		shards[i].index = i
	}
	return shards
}
