package metrics

import (
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/policy"
)

// driftWatches declares the series of drift, and holds the watch of each model that has a
// reference.
type driftWatches struct {
	z, shift, alarm *computed // by class and signal
	alarms          *prometheus.CounterVec
	shards          int
	watches         map[string]*driftWatch // by model, under the collector's lock
}

func declareDrift(t *table, shards int) driftWatches {
	return driftWatches{
		z: t.computed("ckd_drift_z",
			"How far the last inputs have moved from the calibration, in standard errors. Absent until the window is full.",
			"model", "class", "signal", "window"),
		shift: t.computed("ckd_drift_shift",
			"The same as a share: the probability that a live value is above one of the calibration, less 1/2; "+
				"for predicted, the live share less the calibration's.",
			"model", "class", "signal", "window"),
		alarm: t.computed("ckd_drift_alarm",
			"1 while ckd_drift_z is above 5.5 or below -5.5 over any window, else 0.",
			"model", "class", "signal"),
		alarms: t.counter("ckd_drift_alarms_total",
			"How often ckd_drift_alarm rose to 1.",
			"model", "class", "signal"),
		shards:  shards,
		watches: make(map[string]*driftWatch),
	}
}

// driftWatch compares the inputs of a model with its reference, which is what its calibration saw. It
// outlives its policy if the next one has the same reference.
//
// An input waits in its shard until the shard has a block of them, or until a scrape, which collects
// the waiting inputs of all shards. So inputs share no memory between processors, and a scrape lacks
// at most BlockInputs-1 inputs. The order of inputs does not matter.
type driftWatch struct {
	families  *driftWatches
	model     string
	reference *policy.Reference // of the watched classes
	classes   []watchedClass
	shards    []driftInputs // each under the lock of its shard

	mu      sync.Mutex // may be locked while a shard is locked
	retired bool       // another watch has replaced this one, and late inputs are dropped
	monitor *drift.Monitor
	waiting driftInputs
	block   []drift.Block
	alarms  []drift.Alarms // alarms that were already counted
}

// watchedClass is a class of the reference, with its series.
type watchedClass struct {
	name                string
	class               int // index in the policy
	epistemic, skewness *drift.Ranks
}

// These are the signals of drift; signalNames has the values of their label.
const (
	epistemicSignal = iota
	skewnessSignal
	predictedSignal
	driftSignals
)

var signalNames = [driftSignals]string{"epistemic", "skewness", "predicted"}

// driftInputs holds inputs that wait until there is a block of them.
type driftInputs struct {
	n      int
	blocks []drift.Block // [drift.BlockInputs][classes], each with the values of one input
	_      [96]byte      // pads to two cache lines, so that no shard waits for another's
}

// model returns the watch of a policy, or nil if it has no reference. A policy with the same classes and
// reference as its predecessor keeps the predecessor's watch.
func (f *driftWatches) model(p *policy.Policy, labels *classLabels) *driftWatch {
	reference, names := watchedReference(p, labels)
	w := f.watches[p.Name]
	if w != nil && slices.EqualFunc(w.classes, names, func(c watchedClass, name string) bool { return c.name == name }) &&
		reflect.DeepEqual(w.reference, reference) {
		return w
	}
	if w != nil {
		f.remove(p.Name)
		f.dropCounters(w, names)
	}
	if len(names) == 0 {
		return nil
	}
	w = f.newWatch(p.Name, reference, names)
	f.watches[p.Name] = w
	return w
}

// remove ends the watch of a model. Its counters stay.
func (f *driftWatches) remove(model string) {
	if w := f.watches[model]; w != nil {
		w.retire()
		delete(f.watches, model)
	}
}

// watchedReference returns the policy's reference of the classes that have labels of their own, and
// their names.
func watchedReference(p *policy.Policy, labels *classLabels) (reference *policy.Reference, names []string) {
	if p.Calibration == nil || p.Calibration.Reference == nil {
		return nil, nil
	}
	reference = &policy.Reference{Inputs: p.Calibration.Reference.Inputs}
	for _, class := range p.Calibration.Reference.Classes {
		if !labels.isCut(class.Class) {
			reference.Classes, names = append(reference.Classes, class), append(names, p.Classes[class.Class])
		}
	}
	return reference, names
}

// newWatch returns a watch with its series.
func (f *driftWatches) newWatch(model string, reference *policy.Reference, names []string) *driftWatch {
	classes := make([]watchedClass, len(names))
	for i, name := range names {
		expected := &reference.Classes[i]
		c := &classes[i]
		c.name, c.class = name, expected.Class
		c.epistemic, c.skewness = drift.NewRanks(expected.Epistemic), drift.NewRanks(expected.Skewness)
	}
	return &driftWatch{
		families: f, model: model, reference: reference, classes: classes, shards: make([]driftInputs, f.shards),
		monitor: drift.NewMonitor(reference),
		waiting: newDriftInputs(len(classes)),
		block:   make([]drift.Block, len(classes)),
		alarms:  make([]drift.Alarms, len(classes)),
	}
}

// retire ends the watch.
func (w *driftWatch) retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
}

// dropCounters deletes the counters of classes of a watch that are not among the next ones. Its
// other series go with the watch.
func (f *driftWatches) dropCounters(before *driftWatch, next []string) {
	for _, c := range before.classes {
		if slices.Contains(next, c.name) {
			continue
		}
		for _, signal := range signalNames {
			f.alarms.DeleteLabelValues(before.model, c.name, signal)
		}
	}
}

func newDriftInputs(classes int) driftInputs {
	return driftInputs{blocks: make([]drift.Block, drift.BlockInputs*classes)}
}

// next returns the elements of the next input.
func (in *driftInputs) next() []drift.Block {
	classes := len(in.blocks) / drift.BlockInputs
	return in.blocks[in.n*classes:][:classes]
}

// observe adds an input to those that wait in a shard, whose lock the caller holds.
func (w *driftWatch) observe(shard int, res *decomp.Result) {
	in := &w.shards[shard]
	if in.blocks == nil {
		*in = newDriftInputs(len(w.classes))
	}
	into := in.next()
	for i := range into {
		class := &w.classes[i]
		into[i] = drift.Block{
			Epistemic: class.epistemic.Of(res.C[class.class]), Skewness: class.skewness.Of(res.Skewness[class.class]),
			Predicted: oneIf(class.class == res.Predicted),
		}
	}
	if in.n++; in.n == drift.BlockInputs {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.compare(in)
	}
}

// collectShard collects the inputs that wait in a shard, whose lock the caller holds.
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

// compare adds a block of inputs to the windows, and counts alarms that rose.
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
	if !w.monitor.Add(w.block) {
		return
	}
	for k, now := range w.monitor.Alarms() {
		before := w.alarms[k]
		count := func(signal int, now, before bool) {
			if now && !before {
				w.families.alarms.WithLabelValues(w.model, w.classes[k].name, signalNames[signal]).Inc()
			}
		}
		count(epistemicSignal, now.Epistemic, before.Epistemic)
		count(skewnessSignal, now.Skewness, before.Skewness)
		count(predictedSignal, now.Predicted, before.Predicted)
		w.alarms[k] = now
	}
}

// collect sends a scrape what all windows show at one time.
func (w *driftWatch) collect(to chan<- prometheus.Metric) {
	var signals [len(drift.Windows)][]drift.Signals
	w.mu.Lock()
	for i := range drift.Windows {
		if w.monitor.Filled(i) {
			signals[i] = w.monitor.Signals(i)
		}
	}
	alarms := slices.Clone(w.monitor.Alarms())
	w.mu.Unlock()
	f := w.families
	for i, window := range drift.Windows {
		for k, s := range signals[i] {
			for signal, value := range [driftSignals]drift.Signal{s.Epistemic, s.Skewness, s.Predicted} {
				labels := []string{w.model, w.classes[k].name, signalNames[signal], strconv.Itoa(window)}
				f.z.send(to, value.Z, labels...)
				f.shift.send(to, value.Shift, labels...)
			}
		}
	}
	for k, a := range alarms {
		for signal, raised := range [driftSignals]bool{a.Epistemic, a.Skewness, a.Predicted} {
			f.alarm.send(to, oneIf(raised), w.model, w.classes[k].name, signalNames[signal])
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
