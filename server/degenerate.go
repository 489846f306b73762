package server

import (
	"sync"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/passcheck"
)

// A model's passes are degenerate from the eighth degenerate input of a window of 64 on, and until a
// whole window has at most one. Confident inputs saturate one by one, so that saturated inputs stand in
// no window; they are degenerate where 64 follow each other.
const (
	degenerateWindow = 64
	degenerateMost   = 8
	degenerateFew    = 1
)

// degeneracy says whether the latest inputs of a model look like passes. It is safe for concurrent use.
type degeneracy struct {
	mu        sync.Mutex
	window    looks // of inputs that are not saturated
	saturated int   // saturated inputs in a row
	found     why   // empty while the inputs look like passes
}

// looks counts inputs by how their passes look.
type looks struct{ inputs, degenerate, softmaxTwice, saturated int }

// why says what degenerate passes look like, in words for people.
type why string

const (
	hardlyDiffer why = "the passes of an input hardly differ: is dropout on?"
	softmaxTwice why = "softmax was taken twice: send probabilities as they are, or logits as kind logits"
	allSaturated why = "all inputs are saturated: every pass is the same one-hot row; is dropout on?"
)

// count counts an input.
func (l *looks) count(o *engine.Outcome) {
	l.inputs++
	switch {
	case o.Saturated:
		l.saturated++
	case o.SoftmaxTwice:
		l.softmaxTwice++
		l.degenerate++
	case o.Degenerate:
		l.degenerate++
	}
}

// add adds inputs, and reports whether the state has changed.
func (d *degeneracy) add(l looks) (now why, changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.found
	if d.saturated += l.saturated; l.saturated < l.inputs {
		d.saturated = 0
	}
	w := &d.window
	w.inputs += l.inputs - l.saturated
	w.degenerate += l.degenerate
	w.softmaxTwice += l.softmaxTwice
	switch {
	case w.degenerate >= degenerateMost && 2*w.softmaxTwice > w.degenerate:
		d.found = softmaxTwice
	case w.degenerate >= degenerateMost:
		d.found = hardlyDiffer
	case d.saturated >= degenerateWindow:
		d.found = allSaturated
	case w.inputs >= degenerateWindow && w.degenerate <= degenerateFew:
		d.found = ""
	}
	if w.inputs >= degenerateWindow {
		*w = looks{}
	}
	return d.found, d.found != was
}

// state returns why the inputs do not look like passes, or nothing.
func (d *degeneracy) state() why {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}

// look takes the inputs that a counter has seen, and logs it where the state of the model's passes
// changes.
func (m *model) look(log *zap.Logger, l looks) {
	if l.inputs == 0 {
		return
	}
	now, changed := m.standing.passes.add(l)
	switch {
	case !changed:
	case now == "":
		log.Info("passes look like passes again", zap.String("model", m.ref.GetModel()))
	default:
		log.Warn("what is sent does not look like passes, and says nothing about uncertainty: "+string(now),
			zap.String("model", m.ref.GetModel()), zap.String("degenerate_inputs", string(m.Policy().Degenerate)))
	}
}

// run returns the run of the calls that come over a connection for a model.
func (a *account) run(m *model) *passcheck.Run {
	if a.exempt {
		return m.run // of no connection
	}
	if run, ok := a.runs.Load(m.run); ok {
		return run.(*passcheck.Run)
	}
	run, _ := a.runs.LoadOrStore(m.run, passcheck.NewRun(len(m.Policy().Classes), m.run))
	return run.(*passcheck.Run)
}

// Degenerate returns, by model, why the latest inputs do not look like passes.
func (s *Server) Degenerate() map[string]string {
	found := map[string]string{}
	for name, m := range s.catalog.models() {
		if now := m.standing.passes.state(); now != "" {
			found[name] = string(now)
		}
	}
	return found
}
