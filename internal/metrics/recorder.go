package metrics

import (
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// Recorder counts inputs of a model in one shard, which it holds locked from Model.Record to Done.
// It is for one goroutine.
//
// The memory of a model is that of its series and does not grow with streams. In every shard in
// which the model has counted, a histogram takes 2.3 KB, and a pair or another counter 8 bytes. With
// 32 classes, the shared label and 500 pairs that is 170 KB a shard, and 1.3 MB for eight shards. A
// class of a drift reference takes 15 KB, and 0.2 KB more in every shard; a risk model 12 KB, and 0.8 KB
// more in every shard.
type Recorder struct {
	model *Model
	shard *sharded.Shard
	index int // index of the shard

	classes *classParts // nil until the model counts in the shard
}

// Record locks a shard to count inputs in it that are already decided: a scrape sees all or none of
// them. The caller must call Done after them, deferred if anything between may panic, and before
// another Record by the same goroutine, of any model.
//
// A caller that always passes the same hint, like a stream, has the counts in its processor's cache
// and seldom finds the shard locked; if it does, Record takes another shard that is free.
func (m *Model) Record(hint uint32) *Recorder {
	mask := uint32(len(m.recorders) - 1)
	r := &m.recorders[hint&mask]
	for try := uint32(1); !r.shard.TryLock(); try++ {
		r = &m.recorders[(hint+try)&mask]
		if try > mask {
			r.shard.Lock()
			break
		}
	}
	if r.classes == nil {
		r.classes = m.classes.bind(r.shard)
	}
	return r
}

// Done unlocks the shard. The recorder must not be used after it.
func (r *Recorder) Done() { r.shard.Unlock() }

// Observe counts an input that was decided. res must come from the model's plan and d from its
// policy.
func (r *Recorder) Observe(res *decomp.Result, d *policy.Decision) {
	r.ObserveUnsampled(res, d)
	if r.model.drift != nil {
		r.model.drift.observe(r.index, res)
	}
}

// ObserveUnsampled is Observe without drift. It is for inputs that are no fair sample to compare with
// the calibration: an input that was decided early lacks passes, and those that run on to their last
// pass are a selection.
func (r *Recorder) ObserveUnsampled(res *decomp.Result, d *policy.Decision) {
	r.model.inputs.observe(r.shard, res, d)
	r.classes.observe(res, d)
}
