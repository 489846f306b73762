package triage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/policy"
)

const (
	stepTime    = 15 * time.Second // of the history, and between samples while nobody watches
	watchedTime = 2 * time.Second  // between samples while somebody does

	// leastRest after a sample, in times of what it took: samples for those who watch
	// take 2% of a processor at most. The one at the end of each step is taken whatever
	// it costs: that is more if it takes longer than 0.3 s.
	leastRest = 50

	// mostHistories is how many models have a history at one time; where there are
	// more models, it is those that were looked at last.
	mostHistories = 64

	// mostEncodings of a sample are kept, for who asks for the same.
	mostEncodings = 16

	defaultWatchers = 32
)

// Options are what a Page shows, and to whom.
type Options struct {
	// Gatherer is the daemon's registry: the page shows what a scrape would.
	Gatherer prometheus.Gatherer
	// Policies in force. It may be called at any time.
	Policies func() []*policy.Policy
	// Daemon is the state of the daemon. It may be called at any time.
	Daemon func() Daemon
	// Deferrals are the last deferred inputs; nil if they are not kept.
	Deferrals *Deferrals
	// MaySeeRecent reports whether who makes a request, of this context, may see
	// those of a model; nil: everybody may.
	MaySeeRecent func(ctx context.Context, model string) bool
	// Failed is told when the metrics cannot be gathered, so that the page stays as it
	// is: once, until they can be again. It may be nil.
	Failed func(error)
	// Watchers is how many event streams there may be at one time; 0 takes 32.
	Watchers int
}

// Page is the triage page with its history. It may be shared.
type Page struct {
	options   Options
	assets    map[string]*asset // by path under assets/
	now       func() time.Time
	patience  time.Duration // with a watcher that does not read
	heartbeat time.Duration // between what is sent to a watcher, at most

	watchers chan struct{} // a token for each
	woken    chan struct{} // tells Run that somebody watches
	ended    chan struct{} // closed when Run ends
	end      sync.Once

	sampling sync.Mutex // held for a whole sample, so that they come in order
	failing  bool       // the last one did; guarded by sampling

	mu        sync.Mutex
	tried     time.Time     // when a sample was last begun
	took      time.Duration // it
	sampled   uint64        // samples so far
	at        time.Time     // of the last one
	stepAt    time.Time     // when the step began that is going on
	begun     time.Time     // when a history was last begun for who looked
	daemon    Daemon
	policies  []*policy.Policy // in force, by name
	models    []string         // their names
	histories map[string]*history
	encodings map[encodingOf]encoding // of the last sample
	news      chan struct{}           // closed by the next sample
}

// encodingOf is what was asked for of one sample.
type encodingOf struct {
	model  string
	since  uint64 // the sample whose steps are known already; 0: none are
	recent bool   // the last deferred inputs may be seen
}

// encoding is a state as JSON, made when it is first called.
type encoding func() ([]byte, error)

// New makes the page. It has a history from the first sample on: see Run.
func New(o Options) *Page {
	if o.Watchers <= 0 {
		o.Watchers = defaultWatchers
	}
	if o.MaySeeRecent == nil {
		o.MaySeeRecent = func(context.Context, string) bool { return true }
	}
	return &Page{
		options:   o,
		assets:    embedded(),
		now:       time.Now,
		patience:  10 * time.Second,
		heartbeat: 5 * time.Second,

		watchers: make(chan struct{}, o.Watchers),
		woken:    make(chan struct{}, 1),
		ended:    make(chan struct{}),

		models:    []string{},
		histories: make(map[string]*history),
		news:      make(chan struct{}),
	}
}

// Run samples the metrics until ctx ends, and then ends the event streams, for
// good. It is called once.
func (p *Page) Run(ctx context.Context) {
	defer p.end.Do(func() { close(p.ended) })
	p.sample()
	for {
		timer := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.woken: // it may be sooner now
			timer.Stop()
		case <-timer.C:
			p.sample()
		}
	}
}

// pause is how long it is to the next sample: at the end of the step, or sooner
// while somebody watches.
func (p *Page) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, soon := p.stepAt.Add(stepTime), p.tried.Add(p.rest())
	next := soon
	if end.After(p.tried) && (len(p.watchers) == 0 || end.Sub(soon) < watchedTime/2) {
		next = end
	}
	return max(0, next.Sub(p.now()))
}

// rest is how long there is none after a sample at least: it is costly where there
// are many models.
func (p *Page) rest() time.Duration { return min(stepTime, max(watchedTime, leastRest*p.took)) }

// refresh takes a sample if the last one is not of now.
func (p *Page) refresh() {
	p.sampling.Lock()
	defer p.sampling.Unlock()
	p.mu.Lock()
	fresh := p.now().Sub(p.tried) < p.rest()
	p.mu.Unlock()
	if !fresh {
		p.sampleInTurn()
	}
}

// sample takes in what a scrape would show now.
func (p *Page) sample() {
	p.sampling.Lock()
	defer p.sampling.Unlock()
	p.sampleInTurn()
}

// sampleInTurn is a sample for who holds sampling.
func (p *Page) sampleInTurn() {
	p.mu.Lock()
	p.tried = p.now()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.took = p.now().Sub(p.tried)
		p.mu.Unlock()
	}()
	scrape, err := p.options.Gatherer.Gather()
	if err != nil { // what is missing in part would look like counters that begin anew
		if !p.failing && p.options.Failed != nil {
			p.options.Failed(err)
		}
		p.failing = true
		return
	}
	p.failing = false
	p.take(scrape, p.options.Policies(), p.options.Daemon())
}

// take takes in a scrape, and what is in force.
func (p *Page) take(scrape []*dto.MetricFamily, policies []*policy.Policy, daemon Daemon) {
	policies = slices.SortedFunc(slices.Values(policies), func(a, b *policy.Policy) int { return cmp.Compare(a.Name, b.Name) })

	p.mu.Lock()
	defer p.mu.Unlock()
	p.daemon = daemon
	p.serve(policies)
	readLabels(scrape, p.histories)
	for _, of := range policies {
		if h := p.histories[of.Name]; h != nil {
			h.begin(of)
		}
	}
	readValues(scrape, p.histories)

	p.at = p.tried
	p.sampled++
	over := p.sampled == 1 || p.at.Sub(p.stepAt) >= stepTime
	if over {
		p.stepAt = p.at
	}
	for _, h := range p.histories {
		h.fold(p.at, p.sampled, over)
	}
	p.encodings = make(map[encodingOf]encoding)
	close(p.news)
	p.news = make(chan struct{})
}

// serve forgets models that are no more, and begins histories of those that are
// new, while there is room.
func (p *Page) serve(policies []*policy.Policy) {
	was := p.models
	p.policies = policies
	p.models = make([]string, len(policies))
	for i, of := range policies {
		p.models[i] = of.Name
	}
	for name := range p.histories {
		if _, ok := slices.BinarySearch(p.models, name); !ok {
			delete(p.histories, name)
		}
	}
	for _, name := range p.models {
		if p.histories[name] != nil || len(p.histories) >= p.mostHistories() {
			continue
		}
		h := &history{}
		if _, known := slices.BinarySearch(was, name); !known {
			h.from = p.at // its counters began at 0 since; of the first sample this is not known
		}
		p.histories[name] = h
	}
	if p.options.Deferrals != nil {
		p.options.Deferrals.keepOnly(p.models)
	}
}

func (p *Page) mostHistories() int { return max(mostHistories, p.options.Watchers) }

// look finds a model by name, or for no name the first, and begins a history of
// one that has none, at the expense of the one that was not looked at for longest.
// That takes a sample, so there is one such in a time: who comes too soon has to look
// again.
func (p *Page) look(name string) string {
	p.mu.Lock()
	if name == "" && len(p.models) > 0 {
		name = p.models[0]
	}
	_, served := slices.BinarySearch(p.models, name)
	h := p.histories[name]
	begins := h == nil && served && p.now().Sub(p.begun) >= p.rest()
	if begins {
		p.begun = p.now()
		h = &history{}
		p.forgetOne()
		p.histories[name] = h
	}
	if h != nil {
		h.looked = p.now()
	}
	p.mu.Unlock()
	if begins {
		p.sample()
	}
	return name
}

func (p *Page) forgetOne() {
	if len(p.histories) < p.mostHistories() {
		return
	}
	var longest string
	for name, h := range p.histories {
		if was := p.histories[longest]; was == nil || h.looked.Before(was.looked) {
			longest = name
		}
	}
	delete(p.histories, longest)
}

// encoded is the state of a model as JSON, the sample that it is of, and what is
// closed when there is a newer one. Nobody else waits while it is encoded but those
// who asked for the same.
func (p *Page) encoded(what encodingOf) (state []byte, sampled uint64, news <-chan struct{}, err error) {
	p.mu.Lock()
	encode, ok := p.encodings[what]
	if !ok {
		s := p.state(what)
		encode = sync.OnceValues(func() ([]byte, error) { return json.Marshal(s) })
		if s.Model != nil && len(p.encodings) < mostEncodings {
			p.encodings[what] = encode
		}
	}
	sampled, news = p.sampled, p.news
	p.mu.Unlock()
	if state, err = encode(); err != nil {
		return nil, 0, nil, fmt.Errorf("state of the page: %w", err)
	}
	return state, sampled, news, nil
}

// state is all that was asked for. It has nothing that changes later.
func (p *Page) state(what encodingOf) *State {
	s := &State{At: p.at.UTC(), Daemon: p.daemon, Models: p.models}
	h := p.histories[what.model]
	if i, served := slices.BinarySearch(p.models, what.model); h == nil && served {
		of := p.policies[i] // all that is known as yet
		h = &history{}
		h.follow(of, newRows(of.Classes, false, of))
	}
	if h == nil || h.policy == nil {
		return s
	}
	s.Model = h.model(what.since)
	switch {
	case p.options.Deferrals == nil:
		s.Model.RecentWhy = "off"
	case !what.recent:
		s.Model.RecentWhy = "not allowed"
	default:
		s.Model.Recent = p.options.Deferrals.recent(what.model)
	}
	return s
}

func (p *Page) maySeeRecent(r *http.Request, model string) bool {
	return p.options.MaySeeRecent(r.Context(), model)
}
