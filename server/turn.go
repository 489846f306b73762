package server

import (
	"context"

	"github.com/ckd-project/ckd/server/internal/turns"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// turnOf returns the turn of the work for a call.
func turnOf(ctx context.Context) turns.Turn {
	if c := callOf(ctx); c != nil && c.conn != nil {
		return turns.New(c.conn.turns)
	}
	return turns.Turn{}
}

// How much work takes a nanosecond, roughly: turns go by that and by no clock.
const (
	valuesPerNano    = 1  // values copied and checked
	momentsPerNano   = 2  // classes of a pass
	comomentsPerNano = 20 // pairs of a pass
	resultsPerNano   = 1  // classes and pairs of an input, whatever its passes
	inputNanos       = 200
)

// inputWork tells how long it takes to decide on an input and to write the result.
type inputWork struct {
	passes int
	nanos  int64
}

// of returns the time, in nanoseconds, for an input with so many passes.
func (w *inputWork) of(p *scratchPool, passes int) int64 {
	if w.passes != passes { // usually it has as many as the one before
		plan := p.Plan()
		classes, pairs := int64(plan.Classes()), int64(len(plan.Pairs()))
		w.passes = passes
		w.nanos = inputNanos + (classes+pairs)/resultsPerNano + int64(passes)*(classes/momentsPerNano+pairs/comomentsPerNano)
	}
	return w.nanos
}

// pacedValues reads the values of a message a piece at a time, and gives others their turn between
// pieces.
type pacedValues struct {
	of   *wire.Values
	turn *turns.Turn
}

// pacedAtOnce is how many values are read between looks at the turn.
const pacedAtOnce = 1 << 16

// Next implements decomp.Source.
func (v *pacedValues) Next(to []float32) {
	for {
		n := min(len(to), pacedAtOnce)
		v.of.Next(to[:n])
		if v.turn.Due(int64(n) / valuesPerNano) {
			turns.Yield()
		}
		if to = to[n:]; len(to) == 0 {
			return
		}
	}
}
