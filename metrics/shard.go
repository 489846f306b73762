package metrics

import (
	"math"
	"math/bits"
	"runtime"
	"sync"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/policy"
)

// shard is the lock of one part of all sharded series.
type shard struct {
	sync.Mutex
	_ [120]byte // two cache lines, so that no processor waits for another's lock
}

const mostShards = 8

// newShards makes a shard for each processor, up to mostShards.
func newShards() []shard {
	processors := min(runtime.GOMAXPROCS(0), mostShards)
	return make([]shard, 1<<bits.Len(uint(processors-1)))
}

// Recorder counts inputs of a model in one shard, which it holds locked from
// Model.Record to Done. It is for one goroutine.
//
// The memory of a model is that of its series and does not grow with streams. In
// every shard in which the model has counted a histogram takes 2.3 KB, and a pair
// or another counter 8 bytes. With 32 classes, the shared label and 500 pairs that
// is 170 KB a shard, and 1.3 MB if there are eight. A class of a reference takes
// 15 KB, and 0.2 KB more in every shard.
type Recorder struct {
	model *Model
	shard *shard
	index int // of the shard

	// What follows is the shard's parts of the model's series. It is there from
	// the first time that the model counts in the shard.
	bound      bool
	decisions  [1 + policy.ByFallback][policy.Reasons]*float64 // that the policy can take; else nil
	classes    []classParts
	pairs      []pairPart
	passes     *float64
	degenerate *float64
	fallback   *float64
	saturated  *float64

	mutualInformation, entropy, epistemicSum *counts

	drift *driftInputs // nil where there is nothing to compare with
}

// classParts is the parts of classSeries.
type classParts struct {
	epistemic, skewness                       *counts
	unreliable, predicted, dominant, deciding *float64
}

// pairPart is the part of pairSeries.
type pairPart struct {
	term      int
	confusion *float64
}

// Record locks a shard to count inputs in it that are known already: a scrape
// sees all or none of them. Call Done after them, deferred if anything
// between may panic, and before another Record by the same goroutine, of any
// model.
//
// Who always gives the same hint, like a stream, has the counts in its own cache,
// and seldom finds the shard taken; then it gets another one if any is free.
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
	if !r.bound {
		r.bind()
	}
	return r
}

// Done unlocks the shard. The recorder must not be used after it.
func (r *Recorder) Done() { r.shard.Unlock() }

// Observe counts an input that was decided. res must come from the model's plan
// and d from its policy.
func (r *Recorder) Observe(res *decomp.Result, d policy.Decision) {
	r.ObserveUnsampled(res, d)
	if r.drift != nil && !off {
		r.compare(res)
	}
}

// ObserveUnsampled is Observe for an input that is not like those that the calibration
// saw, for it lacks passes or is one of those that did not: drift is not looked for in it.
func (r *Recorder) ObserveUnsampled(res *decomp.Result, d policy.Decision) {
	if off {
		return
	}
	m := r.model
	r.decided(&d)
	r.ownClasses(res.C, res.Skewness)
	for _, run := range m.labels.runs {
		r.sharedClasses(res.C[run.from:run.to], res.Skewness[run.from:run.to])
	}
	*r.class(res.Predicted).predicted++
	if res.Dominant >= 0 {
		*r.class(res.Dominant).dominant++
	}
	if d.Action == policy.Defer && d.Class >= 0 {
		*r.class(d.Class).deciding++
	}
	for _, pair := range r.pairs {
		if term := res.Confusion(pair.term); term > 0 {
			*pair.confusion += term
		}
	}
	r.mutualInformation.observe(m.series.mutualInformation.layout, res.MI)
	r.entropy.observe(m.series.entropy.layout, res.Entropy)
	r.epistemicSum.observe(m.series.epistemicSum.layout, res.SumC)
	if d.Gate == policy.ByFallback {
		*r.fallback++
	}
	*r.passes += float64(res.Passes)
	if res.Degenerate {
		*r.degenerate++
	}
	if res.Saturated {
		*r.saturated++
	}
}

// Exemplify makes the trace that an input is part of, which was observed, the
// exemplar of the C_k of the class that decided, or of its mutual information
// where no class did.
func (r *Recorder) Exemplify(trace string, res *decomp.Result, d policy.Decision) {
	if off {
		return
	}
	if d.Class < 0 {
		r.mutualInformation.exemplify(r.model.series.mutualInformation.layout, res.MI, trace)
		return
	}
	r.class(d.Class).epistemic.exemplify(r.model.series.epistemic.layout, res.C[d.Class], trace)
}

// class is the parts of the series that class k is counted in.
func (r *Recorder) class(k int) *classParts { return &r.classes[r.model.labels.of[k]] }

// decided counts a decision. Those that the policy can take have their counters
// here, as gate and reason say which they are; another one would be a fault of
// decisionsOf, and is counted all the same.
func (r *Recorder) decided(d *policy.Decision) {
	if n := r.decisions[d.Gate][d.Reason]; n != nil {
		*n++
		return
	}
	s := r.model.decisionSeries(decision{d.Action, d.Score, d.Reason})
	*s.part(r.index, func() *float64 { return new(float64) })++
}

// ownClasses counts the classes that have labels of their own.
func (r *Recorder) ownClasses(c, skewness []float64) {
	ofC, ofSkewness := r.model.series.epistemic.layout, r.model.series.skewness.layout
	threshold := r.model.threshold
	for i, k := range r.model.labels.own {
		class := &r.classes[i]
		v, s := c[k], skewness[k]
		vCell, sCell := ofC.cellOf(math.Float64bits(v)), ofSkewness.cellOf(math.Float64bits(s))
		if vCell >= zeroCell && sCell >= zeroCell {
			class.epistemic.cells[vCell]++
			class.epistemic.sum += v
			class.skewness.cells[sCell]++
			class.skewness.sum += s
		} else {
			class.epistemic.observe(ofC, v)
			class.skewness.observe(ofSkewness, s)
		}
		if s > threshold {
			*class.unreliable++
		}
	}
}

// compare compares an input with what the calibration saw.
func (r *Recorder) compare(res *decomp.Result) {
	into := r.drift.next()
	for i := range into {
		class := &r.model.compared[i]
		into[i] = drift.Block{
			Epistemic: class.epistemic.Of(res.C[class.class]), Skewness: class.skewness.Of(res.Skewness[class.class]),
			Predicted: oneIf(class.class == res.Predicted),
		}
	}
	r.model.drift.count(r.drift)
}

// sharedClasses counts classes that share the last label. With a thousand
// classes nearly all time goes here. Hence one loop for both vectors, in which
// the processor need not guess: values that have no cell are found afterwards.
func (r *Recorder) sharedClasses(c, skewness []float64) {
	class := &r.classes[len(r.classes)-1]
	ofC, ofSkewness := r.model.series.epistemic.layout, r.model.series.skewness.layout
	cells, skewnessCells := &class.epistemic.cells, &class.skewness.cells
	threshold := r.model.threshold
	sum, skewnessSum, unreliable := 0.0, 0.0, uint64(0)
	skewness = skewness[:len(c)]
	for k, v := range c {
		s := skewness[k]
		sum += v
		skewnessSum += s
		cells[ofC.cellOf(math.Float64bits(v))]++
		skewnessCells[ofSkewness.cellOf(math.Float64bits(s))]++
		if s > threshold {
			unreliable++
		}
	}
	class.epistemic.counted(ofC, c, sum)
	class.skewness.counted(ofSkewness, skewness, skewnessSum)
	*class.unreliable += float64(unreliable)
}

// bind finds the parts of the model's series in the shard, or makes them.
func (r *Recorder) bind() {
	var free []float64
	number := func(s *counterSeries) *float64 {
		return s.part(r.index, func() *float64 {
			if len(free) == 0 {
				free = make([]float64, 64) // numbers of one shard side by side
			}
			n := &free[0]
			free = free[1:]
			return n
		})
	}
	histogram := func(s *histogramSeries) *counts {
		return s.part(r.index, func() *counts { return new(counts) })
	}
	m := r.model
	for _, d := range m.decisions {
		n := number(d.series)
		for gate, score := range m.scores {
			if d.score == score {
				r.decisions[gate][d.reason] = n
			}
		}
	}
	for _, c := range m.classes {
		r.classes = append(r.classes, classParts{
			epistemic:  histogram(c.epistemic),
			skewness:   histogram(c.skewness),
			unreliable: number(c.unreliable),
			predicted:  number(c.predicted),
			dominant:   number(c.dominant),
			deciding:   number(c.deciding),
		})
	}
	for _, p := range m.pairs {
		r.pairs = append(r.pairs, pairPart{p.term, number(p.confusion)})
	}
	r.passes = number(m.passes)
	r.fallback = number(m.fallback)
	r.degenerate, r.saturated = number(m.degenerate), number(m.saturated)
	r.mutualInformation, r.entropy = histogram(m.mutualInformation), histogram(m.entropy)
	r.epistemicSum = histogram(m.epistemicSum)
	if w := m.drift; w != nil {
		if r.drift = &w.shards[r.index]; r.drift.blocks == nil {
			*r.drift = newDriftInputs(len(w.classes))
		}
	}
	r.bound = true
}
