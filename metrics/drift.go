package metrics

import (
	"math"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/policy"
)

// driftWatch compares the inputs of a model with what its calibration saw. Shards
// hand it blocks of inputs; in which order they come does not matter to it.
type driftWatch struct {
	mu      sync.Mutex
	monitor *drift.Monitor
	gauges  [len(drift.Windows)][]classDrift // by class of the reference
	alarms  []classAlarms

	ranks []*classRanks // by label, nil for those without a reference
}

// classDrift is the gauges of one class over one window.
type classDrift struct{ epistemic, skewness, predicted signalGauges }

type signalGauges struct{ z, shift prometheus.Gauge }

func (g signalGauges) set(s drift.Signal) {
	g.z.Set(s.Z)
	g.shift.Set(s.Shift)
}

// classAlarms is whether one class is in alarm, by any window, and how often it
// came to be.
type classAlarms struct{ epistemic, skewness, predicted signalAlarm }

type signalAlarm struct {
	now    prometheus.Gauge
	raised prometheus.Counter
	is     bool
}

func (a *signalAlarm) set(is bool) {
	switch {
	case is && !a.is:
		a.raised.Inc()
		a.now.Set(1)
	case !is && a.is:
		a.now.Set(0)
	}
	a.is = is
}

// classRanks is the reference of one class as the cells of histograms have it:
// where in the reference the values of a cell are on average.
type classRanks struct {
	at                  int // of the class in blocks
	epistemic, skewness [numCells]float64
	reference           drift.ClassReference
}

// driftBlock is a shard's part of the next block of a model.
type driftBlock struct {
	inputs int
	block  []drift.Block
}

// newDriftWatch watches the classes of a reference that have labels of their own;
// it is nil where there are none.
func newDriftWatch(s *series, p *policy.Policy, labels *classLabels) *driftWatch {
	if p.Calibration == nil || p.Calibration.Reference == nil {
		return nil
	}
	all := p.Calibration.Reference
	w := &driftWatch{ranks: make([]*classRanks, len(labels.own))}
	reference := &drift.Reference{Inputs: all.Inputs}
	for _, class := range all.Classes {
		if labels.isCut(class.Class) {
			continue
		}
		r := &classRanks{at: len(reference.Classes), reference: class}
		fillRanks(&r.epistemic, s.epistemic.layout, class.Epistemic)
		fillRanks(&r.skewness, s.skewness.layout, class.Skewness)
		w.ranks[labels.of[class.Class]] = r
		reference.Classes = append(reference.Classes, class)
	}
	if len(reference.Classes) == 0 {
		return nil
	}
	w.monitor = drift.NewMonitor(reference)
	for i, inputs := range drift.Windows {
		window := strconv.Itoa(inputs)
		s.driftVisible.WithLabelValues(p.Name, window).Set(drift.SmallestVisible(inputs, reference.Inputs))
		for _, class := range reference.Classes {
			gauges := func(signal string) signalGauges {
				g := signalGauges{
					s.driftZ.WithLabelValues(p.Name, p.Classes[class.Class], signal, window),
					s.driftShift.WithLabelValues(p.Name, p.Classes[class.Class], signal, window),
				}
				g.set(drift.Signal{}) // whatever was under the policy before
				return g
			}
			w.gauges[i] = append(w.gauges[i], classDrift{gauges("epistemic"), gauges("skewness"), gauges("predicted")})
		}
	}
	for _, class := range reference.Classes {
		alarm := func(signal string) signalAlarm {
			now := s.driftAlarm.WithLabelValues(p.Name, p.Classes[class.Class], signal)
			now.Set(0) // whatever was under the policy before
			return signalAlarm{now: now, raised: s.driftAlarms.WithLabelValues(p.Name, p.Classes[class.Class], signal)}
		}
		w.alarms = append(w.alarms, classAlarms{alarm("epistemic"), alarm("skewness"), alarm("predicted")})
	}
	return w
}

// dropDrift deletes the series of a model that is not watched any more.
func (s *series) dropDrift(model string) {
	for _, v := range []vec{s.driftZ, s.driftShift, s.driftVisible, s.driftAlarm, s.driftAlarms} {
		v.DeletePartialMatch(prometheus.Labels{"model": model})
	}
}

// fillRanks finds the mean rank of what the reference has in each cell.
func fillRanks(ranks *[numCells]float64, l *layout, q drift.Quantiles) {
	low := math.Inf(-1)
	for cell := zeroCell; cell < l.cells; cell++ {
		high := math.Float64frombits(l.upper[cell])
		ranks[cell] = q.Between(low, high)
		low = high
	}
}

// newBlock is an empty block of a shard.
func (w *driftWatch) newBlock() driftBlock {
	if w == nil {
		return driftBlock{}
	}
	return driftBlock{block: make([]drift.Block, len(w.gauges[0]))}
}

// count counts the class of a label in a block, by the cells that its values are
// in, or, where these have none, by the values.
func (b *driftBlock) count(r *classRanks, cCell, sCell uint8, c, skewness float64) {
	to := &b.block[r.at]
	if cCell >= zeroCell && sCell >= zeroCell {
		to.Epistemic += r.epistemic[cCell]
		to.Skewness += r.skewness[sCell]
		return
	}
	to.Epistemic += below(r.reference.Epistemic, c)
	to.Skewness += below(r.reference.Skewness, skewness)
}

// below is the rank of any value; what is undefined has moved nowhere.
func below(q drift.Quantiles, v float64) float64 {
	if math.IsNaN(v) {
		return 0.5
	}
	return q.Below(v)
}

// end ends an input, of whose predicted class the label is given, and hands the
// block over where it is full.
func (b *driftBlock) end(w *driftWatch, predicted int) {
	if predicted < len(w.ranks) {
		if r := w.ranks[predicted]; r != nil {
			b.block[r.at].Predicted++
		}
	}
	if b.inputs++; b.inputs == drift.BlockInputs {
		w.add(b.block)
		clear(b.block)
		b.inputs = 0
	}
}

// add adds a block, and tells what the windows show.
func (w *driftWatch) add(block []drift.Block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	looked := w.monitor.Add(block)
	seen := false
	for i, l := range looked {
		if !l {
			continue
		}
		seen = true
		for k, s := range w.monitor.Signals(i) {
			g := &w.gauges[i][k]
			g.epistemic.set(s.Epistemic)
			g.skewness.set(s.Skewness)
			g.predicted.set(s.Predicted)
		}
	}
	if !seen {
		return
	}
	for k := range w.alarms {
		a := &w.alarms[k]
		a.epistemic.set(w.inAlarm(k, func(s *drift.Signals) float64 { return s.Epistemic.Z }))
		a.skewness.set(w.inAlarm(k, func(s *drift.Signals) float64 { return s.Skewness.Z }))
		a.predicted.set(w.inAlarm(k, func(s *drift.Signals) float64 { return s.Predicted.Z }))
	}
}

// inAlarm reports whether a signal of a class is one over any window.
func (w *driftWatch) inAlarm(class int, z func(*drift.Signals) float64) bool {
	for i := range drift.Windows {
		if all := w.monitor.Signals(i); all != nil && math.Abs(z(&all[class])) > drift.Alarm {
			return true
		}
	}
	return false
}
