package sharded

import (
	"math/bits"
	"runtime"
	"sync"
)

// Shard is the lock of one part of every series.
type Shard struct {
	sync.Mutex
	_ [120]byte // pads to two cache lines, so that no processor waits for another's lock
}

const maxShards = 8

// NewShards returns a shard for each processor: a power of two, and at most maxShards.
func NewShards() []Shard {
	processors := min(runtime.GOMAXPROCS(0), maxShards)
	return make([]Shard, 1<<bits.Len(uint(processors-1)))
}
