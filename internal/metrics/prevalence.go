package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/internal/monitor/prevalence"
	"github.com/ckd-project/ckd/policy"
)

// prevalenceWatches declares the series of the suggested prevalence, and holds the watch of each model
// with a risk model.
type prevalenceWatches struct {
	suggested *computed
	shards    int
	watches   map[string]*prevalenceWatch // by model, under the collector's lock
}

func declarePrevalence(t *table, shards int) prevalenceWatches {
	return prevalenceWatches{
		suggested: t.computed("ckd_prevalence_suggested",
			"Share of critical inputs that live priorities suggest, without labels, with its 95% interval. "+
				"Absent while it is not known. Nothing applies it.",
			"model", "bound"),
		shards:  shards,
		watches: make(map[string]*prevalenceWatch),
	}
}

// prevalenceWatch counts the priorities of a model's last inputs under one policy. Inputs wait in their
// shard as in a driftWatch.
type prevalenceWatch struct {
	families    *prevalenceWatches
	model, hash string // of the policy
	on          prevalence.Calibration
	shards      []*prevalence.Counts // each under the lock of its shard; nil until an input is counted

	mu     sync.Mutex // may be locked while a shard is locked
	window prevalence.Window
}

// model returns the watch of a policy, or nil if it has no risk model, or does not say what that was fitted
// on. Another policy begins anew, since its priorities are others.
func (f *prevalenceWatches) model(p *policy.Policy) *prevalenceWatch {
	if p.Risk == nil || p.Calibration == nil || p.Calibration.Recording.CriticalInputs == 0 {
		delete(f.watches, p.Name)
		return nil
	}
	recording, fitted := &p.Calibration.Recording, 1
	if p.Calibration.Certificate != nil {
		fitted = 3 // a third of the recording has fitted, and the others certified
	}
	on := prevalence.Calibration{
		Prevalence: p.Risk.Prevalence, Critical: recording.CriticalInputs / fitted, Others: (recording.Inputs - recording.CriticalInputs) / fitted,
	}
	if w := f.watches[p.Name]; w != nil && w.hash == p.Hash && w.on == on {
		return w
	}
	w := &prevalenceWatch{families: f, model: p.Name, hash: p.Hash, on: on, shards: make([]*prevalence.Counts, f.shards)}
	f.watches[p.Name] = w
	return w
}

// observe counts an input in a shard, whose lock the caller holds.
func (w *prevalenceWatch) observe(shard int, priority float64) {
	counts := w.shards[shard]
	if counts == nil {
		counts = new(prevalence.Counts)
		w.shards[shard] = counts
	}
	if counts.Add(priority) {
		w.take(counts)
	}
}

// collectShard collects the inputs that wait in a shard, whose lock the caller holds.
func (w *prevalenceWatch) collectShard(shard int) {
	if counts := w.shards[shard]; counts != nil {
		w.take(counts)
	}
}

func (w *prevalenceWatch) take(counts *prevalence.Counts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.window.Take(counts)
}

// collect sends a scrape what is suggested.
func (w *prevalenceWatch) collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	window := w.window // no input waits for the estimate
	w.mu.Unlock()
	share, known := window.Suggest(w.on)
	if !known {
		return
	}
	for bound, value := range map[string]float64{"low": share.Low, "estimate": share.Estimate, "high": share.High} {
		w.families.suggested.send(to, value, w.model, bound)
	}
}

// ObservePriority counts the priority of an input that Observe has counted: the probability that it is
// truly critical, where that can be trusted.
func (r *Recorder) ObservePriority(priority float64) {
	if r.model.prevalence != nil {
		r.model.prevalence.observe(r.index, priority)
	}
}
