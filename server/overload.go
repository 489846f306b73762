package server

import (
	"context"
	"fmt"
	"math"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/metrics"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/pressure"
)

// overload keeps the daemon under its memory limit. It measures the memory that lives, has admission
// refuse new calls and streams while that is high, and ends connections if it goes on rising. Without
// a memory limit it does nothing.
type overload struct {
	limit   int64 // of the Go runtime, in bytes; 0 for none
	budget  *budget
	log     *zap.Logger
	metrics *metrics.Metrics
	idle    func() bool // no call is in flight

	level    atomic.Int32  // pressure.Level
	pressure atomic.Uint64 // a float64
}

// lookEvery is the time from one look at the memory to the next. A look takes microseconds.
const lookEvery = 25 * time.Millisecond

// run looks at the memory until ctx ends. What lives when it begins is the idle baseline.
func (o *overload) run(ctx context.Context) {
	if o.limit == 0 {
		return
	}
	begun, read := time.Now(), newMemoryReader()
	look := func() pressure.Reading {
		r := read()
		_, weight := o.budget.weigh()
		r.At, r.Held, r.Idle = time.Since(begun), max(weight, o.budget.total()), o.idle()
		return r
	}
	runtime.GC()
	m := pressure.New(o.limit, o.budget.limit, look().Live)
	m.Next(look())
	o.report(m)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := look()
		v := m.Next(r)
		if v.Collect {
			runtime.GC() // also gives back what pools keep, by the second time
			r = look()
			v = m.Next(r)
		}
		o.report(m)
		if was := pressure.Level(o.level.Swap(int32(v.Level))); was != v.Level {
			o.logLevel(was, v.Level, r, m)
		}
		if v.Excess > 0 {
			o.metrics.ConnectionsEnded("memory", o.budget.endHeaviest(v.Excess))
		}
	}
}

// report publishes the pressure.
func (o *overload) report(m *pressure.Manager) {
	o.pressure.Store(math.Float64bits(m.Pressure()))
	o.metrics.MemoryPressure(m.Pressure())
}

func (o *overload) logLevel(was, is pressure.Level, r pressure.Reading, m *pressure.Manager) {
	write, message := o.log.Warn, "memory is short: new calls and streams are refused"
	switch {
	case is == pressure.Calm:
		write, message = o.log.Info, "memory suffices again: new calls and streams are taken"
	case is == pressure.End:
		message = "memory is very short: the connections that hold most are ended"
	}
	write(message, zap.Stringer("was", was), zap.Stringer("is", is), zap.Float64("pressure", m.Pressure()),
		zap.Int64("live_bytes", r.Live), zap.Int64("baseline_bytes", m.Baseline()), zap.Int64("limit_bytes", o.limit),
		zap.Int64("clients_hold_bytes", r.Held))
}

// calm reports whether new work is taken.
func (o *overload) calm() bool { return pressure.Level(o.level.Load()) == pressure.Calm }

// refusal returns the status of new work while memory is short, and nil otherwise. Work of whoever is
// spared is taken for as long as the memory limit is not reached.
func (o *overload) refusal(isSpared func() bool) error {
	if o.calm() || math.Float64frombits(o.pressure.Load()) < 1 && isSpared() {
		return nil
	}
	o.metrics.Refused("memory", "short")
	o.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED), 1)
	p := math.Float64frombits(o.pressure.Load())
	return statusOf(&fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, retry: retryMemory,
		message: fmt.Sprintf("memory is short: clients hold %.0f%% of what the daemon's memory limit leaves", 100*p),
		value:   fmt.Sprintf("%.0f%%", 100*p), expected: "a later attempt, or another replica",
	}, location{}).Err()
}

// newMemoryReader returns a function that reads the memory of the process. Stacks count as live.
func newMemoryReader() func() pressure.Reading {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	return func() pressure.Reading {
		runtimemetrics.Read(samples)
		stacks := int64(samples[2].Value.Uint64())
		return pressure.Reading{
			Heap: int64(samples[0].Value.Uint64()) + stacks, Live: int64(samples[1].Value.Uint64()) + stacks,
			Cycles: samples[3].Value.Uint64(),
		}
	}
}
