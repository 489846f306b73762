package metrics

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/drift"
	"github.com/ckd-project/ckd/policy"
)

// driftWatch compares the inputs of a model with what its calibration saw. It
// outlives the policy that it was made for, as long as the next one has the same
// reference.
//
// An input waits in its shard until there are as many as a block has, or until a
// scrape, which collects what waits in all shards. So inputs share no memory, and
// what a scrape shows lacks BlockInputs-1 of them at most. In which order they come
// does not matter.
type driftWatch struct {
	model   string
	inputs  int // of the reference
	classes []watchedClass
	shards  []driftInputs // each under the lock of its shard

	mu      sync.Mutex // may be taken by who holds the lock of a shard
	retired bool       // another has taken its place: late inputs count into nothing
	monitor *drift.Monitor
	waiting driftInputs
	block   []drift.Block
	alarms  []drift.Alarms // as they are counted already

	compared prometheus.Counter
	visible  [len(drift.Windows)]gaugeSample
	filled   [len(drift.Windows)]gaugeSample
}

// watchedClass is a class of the reference, with its series.
type watchedClass struct {
	name                string
	reference           drift.ClassReference
	epistemic, skewness *drift.Ranks
	series              [driftSignals]signalSeries
}

// The signals of drift, as their label has them.
const (
	epistemicSignal = iota
	skewnessSignal
	predictedSignal
	driftSignals
)

var signalNames = [driftSignals]string{"epistemic", "skewness", "predicted"}

// signalSeries is the series of one signal of one class.
type signalSeries struct {
	z, shift [len(drift.Windows)]gaugeSample
	alarm    gaugeSample
	raised   prometheus.Counter
}

// comparedClass is a watched class as inputs of one policy are compared with it.
type comparedClass struct {
	class               int // in the policy's order
	epistemic, skewness *drift.Ranks
}

// driftInputs is inputs that wait until there is a block of them.
type driftInputs struct {
	n      int
	blocks []drift.Block // [drift.BlockInputs][classes]; each of one input
	_      [96]byte      // two cache lines, so that no shard waits for another's
}

// watch is the watch of a policy: that of the policy before, where it has the same
// reference. It is nil where there is nothing to compare with.
func (s *series) watch(p *policy.Policy, labels *classLabels) *driftWatch {
	inputs, classes := watchedClasses(p, labels)
	before := s.watches[p.Name]
	if before != nil && before.watches(inputs, classes) {
		return before
	}
	if before != nil {
		before.retire()
		delete(s.watches, p.Name)
		s.dropDriftCounters(before, classes)
	}
	if len(classes) == 0 {
		return nil
	}
	w := s.newWatch(p.Name, inputs, classes)
	s.watches[p.Name] = w
	return w
}

// watchedClasses is the classes of the policy's reference that have labels of
// their own, and the inputs that it is of.
func watchedClasses(p *policy.Policy, labels *classLabels) (inputs int, classes []watchedClass) {
	if p.Calibration == nil || p.Calibration.Reference == nil {
		return 0, nil
	}
	for _, class := range p.Calibration.Reference.Classes {
		if !labels.isCut(class.Class) {
			classes = append(classes, watchedClass{name: p.Classes[class.Class], reference: class})
		}
	}
	return p.Calibration.Reference.Inputs, classes
}

// watches reports whether it is these that it compares with. The order of the
// policy's classes is of no matter.
func (w *driftWatch) watches(inputs int, classes []watchedClass) bool {
	return w.inputs == inputs && slices.EqualFunc(w.classes, classes, func(a, b watchedClass) bool {
		return a.name == b.name && a.reference.Predicted == b.reference.Predicted &&
			slices.Equal(a.reference.Epistemic, b.reference.Epistemic) && slices.Equal(a.reference.Skewness, b.reference.Skewness)
	})
}

func (s *series) newWatch(model string, inputs int, classes []watchedClass) *driftWatch {
	reference := &drift.Reference{Inputs: inputs}
	for i := range classes {
		c := &classes[i]
		reference.Classes = append(reference.Classes, c.reference)
		c.epistemic, c.skewness = drift.NewRanks(c.reference.Epistemic), drift.NewRanks(c.reference.Skewness)
		for signal, name := range signalNames {
			of := &c.series[signal]
			of.alarm = s.driftAlarm.with(model, c.name, name)
			of.raised = s.driftAlarms.WithLabelValues(model, c.name, name)
			for w, inputs := range drift.Windows {
				of.z[w] = s.driftZ.with(model, c.name, name, strconv.Itoa(inputs))
				of.shift[w] = s.driftShift.like(of.z[w])
			}
		}
	}
	w := &driftWatch{
		model: model, inputs: inputs, classes: classes, shards: make([]driftInputs, len(s.shards)),
		monitor:  drift.NewMonitor(reference),
		waiting:  newDriftInputs(len(classes)),
		block:    make([]drift.Block, len(classes)),
		alarms:   make([]drift.Alarms, len(classes)),
		compared: s.driftInputs.WithLabelValues(model),
	}
	for i, inputs := range drift.Windows {
		w.visible[i] = s.driftVisible.with(model, strconv.Itoa(inputs))
		w.visible[i].value = drift.SmallestVisible(inputs, w.inputs)
		w.filled[i] = s.driftFilled.with(model, strconv.Itoa(inputs))
	}
	return w
}

// comparedClasses is its classes where the policy has them.
func (w *driftWatch) comparedClasses(p *policy.Policy) []comparedClass {
	if w == nil {
		return nil
	}
	var all []comparedClass
	for _, c := range w.classes {
		all = append(all, comparedClass{slices.Index(p.Classes, c.name), c.epistemic, c.skewness})
	}
	return all
}

// retire ends the watch.
func (w *driftWatch) retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
}

// dropDriftCounters deletes what the watch before has counted of classes that are
// not among the next ones. The other series go with the watch.
func (s *series) dropDriftCounters(before *driftWatch, next []watchedClass) {
	for _, c := range before.classes {
		if slices.ContainsFunc(next, func(n watchedClass) bool { return n.name == c.name }) {
			continue
		}
		for _, signal := range signalNames {
			s.driftAlarms.DeleteLabelValues(before.model, c.name, signal)
		}
	}
	if len(next) == 0 {
		s.driftInputs.DeleteLabelValues(before.model)
	}
}

func newDriftInputs(classes int) driftInputs {
	return driftInputs{blocks: make([]drift.Block, drift.BlockInputs*classes)}
}

// next is where the next input goes.
func (in *driftInputs) next() []drift.Block {
	classes := len(in.blocks) / drift.BlockInputs
	return in.blocks[in.n*classes:][:classes]
}

// count counts the next input of a shard, which is written. The caller holds the
// lock of the shard.
func (w *driftWatch) count(shard *driftInputs) {
	if shard.n++; shard.n < drift.BlockInputs {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compare(shard)
}

// collectShard collects the inputs that wait in a shard, whose lock the caller
// holds.
func (w *driftWatch) collectShard(shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := &w.shards[shard]
	waiting := from.n
	for from.n = 0; from.n < waiting; from.n++ {
		copy(w.waiting.next(), from.next())
		if w.waiting.n++; w.waiting.n == drift.BlockInputs {
			w.compare(&w.waiting)
		}
	}
	from.n = 0
}

// compare adds a block of inputs to the windows, and counts the alarms.
func (w *driftWatch) compare(in *driftInputs) {
	clear(w.block)
	for in.n = range drift.BlockInputs {
		for k, one := range in.next() {
			w.block[k].Epistemic += one.Epistemic
			w.block[k].Skewness += one.Skewness
			w.block[k].Predicted += one.Predicted
		}
	}
	in.n = 0
	if w.retired {
		return
	}
	w.compared.Add(drift.BlockInputs)
	if !w.monitor.Add(w.block) {
		return
	}
	for k, now := range w.monitor.Alarms() {
		before, series := w.alarms[k], &w.classes[k].series
		count := func(signal int, now, before bool) {
			if now && !before {
				series[signal].raised.Inc()
			}
		}
		count(epistemicSignal, now.Epistemic, before.Epistemic)
		count(skewnessSignal, now.Skewness, before.Skewness)
		count(predictedSignal, now.Predicted, before.Predicted)
		w.alarms[k] = now
	}
}

// collect tells a scrape what the windows show, all at one time.
func (w *driftWatch) collect(to chan<- prometheus.Metric) {
	var found []gaugeSample
	tell := func(of gaugeSample, value float64) {
		of.value = value
		found = append(found, of)
	}
	w.mu.Lock()
	for i := range drift.Windows {
		found = append(found, w.visible[i])
		tell(w.filled[i], oneIf(w.monitor.Filled(i)))
		for k, s := range w.monitor.Signals(i) {
			for signal, value := range [driftSignals]drift.Signal{s.Epistemic, s.Skewness, s.Predicted} {
				tell(w.classes[k].series[signal].z[i], value.Z)
				tell(w.classes[k].series[signal].shift[i], value.Shift)
			}
		}
	}
	for k, a := range w.monitor.Alarms() {
		for signal, is := range [driftSignals]bool{a.Epistemic, a.Skewness, a.Predicted} {
			tell(w.classes[k].series[signal].alarm, oneIf(is))
		}
	}
	w.mu.Unlock()
	for i := range found {
		to <- &found[i]
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// gauges is a family whose values are not kept, but found when a scrape asks.
type gauges struct{ desc *prometheus.Desc }

// with is the series of the values of the labels.
func (g *gauges) with(values ...string) gaugeSample {
	return gaugeSample{desc: g.desc, labels: prometheus.MakeLabelPairs(g.desc, values)}
}

// like is the series of the same labels as one of another family, which they share.
func (g *gauges) like(other gaugeSample) gaugeSample {
	return gaugeSample{desc: g.desc, labels: other.labels}
}

// Describe implements vec.
func (g *gauges) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// DeleteLabelValues implements vec: there is nothing to delete.
func (*gauges) DeleteLabelValues(...string) bool { return false }

// DeletePartialMatch implements vec.
func (*gauges) DeletePartialMatch(prometheus.Labels) int { return 0 }

// gaugeSample is one series as a scrape found it: a prometheus.Metric.
type gaugeSample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  float64
}

// Desc implements prometheus.Metric.
func (s *gaugeSample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *gaugeSample) Write(into *dto.Metric) error {
	into.Label, into.Gauge = s.labels, &dto.Gauge{Value: &s.value}
	return nil
}
