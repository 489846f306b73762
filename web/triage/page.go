package triage

import (
	"cmp"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Options names the sources of a Page, and who may see it.
type Options struct {
	// Gatherer is the daemon's registry: the page shows what a scrape would.
	Gatherer prometheus.Gatherer
	// Policies returns the policies in force. It may be called at any time.
	Policies func() []*policy.Policy
	// Describe returns what the API says of a policy.
	Describe func(*policy.Policy) *ckdv1.Model
	// Labels returns the labels that the classes of a policy have in the metrics, in the policy's order,
	// and how many classes share the last one; 0 if each has its own.
	Labels func(*policy.Policy) (labels []string, shared int)
	// Daemon returns the state of the daemon. It may be called at any time.
	Daemon func() pagestate.Daemon
	// Promises returns the promises, as last computed; nil where the daemon keeps no ledger.
	Promises func() []*ckdv1.PromiseFigures
	// Inputs holds the last inputs that went to a person; nil if they are not kept.
	Inputs *Inputs
	// MaySeeRecent reports whether the sender of a request with this context may see the deferred
	// inputs of a model.
	MaySeeRecent func(ctx context.Context, model string) bool
	// CaseURL is the template of links to inputs that are to be reviewed, with {id} in the place of the
	// id; empty for no links.
	CaseURL string
	// Enter gives an outcome to the ledger; nil where there is none.
	Enter func(context.Context, *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error)
	// MayEnter reports whether the sender of a request with this context may enter outcomes of a model.
	MayEnter func(ctx context.Context, model string) bool
	// Source returns the reader's name for outcomes that the sender of a request with this context enters;
	// empty where the reader types a name.
	Source func(context.Context) string
	// Failed is called when the metrics cannot be gathered, so that the page stays as it is; then not
	// again until after a success. It may be nil.
	Failed func(error)
}

// Page serves the triage page and keeps its history. It is safe for concurrent use.
type Page struct {
	options Options
	assets  fs.FS
	now     func() time.Time

	mu       sync.Mutex // guards what follows, and is held while a sample is taken
	failing  bool       // the last sample failed
	schedule schedule
	taken    time.Time // of the last successful sample
	models   models
}

// New returns a page. Its history begins with Run.
func New(o Options) *Page {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the files are part of the binary
	}
	return &Page{options: o, assets: assets, now: time.Now, models: newModels()}
}

// Run samples the metrics at the end of every step until ctx ends.
func (p *Page) Run(ctx context.Context) {
	for {
		p.sample()
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.pause()):
		}
	}
}

// pause returns the time until the next sample.
func (p *Page) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.pause(p.now())
}

// sample takes in the values that a scrape would show now.
func (p *Page) sample() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take()
}

// take takes a sample. The caller holds mu.
func (p *Page) take() {
	p.schedule.begun = p.now()
	defer func() { p.schedule.took = p.now().Sub(p.schedule.begun) }()
	scrape, err := p.options.Gatherer.Gather()
	if err != nil { // counters missing from a part would seem to begin anew
		if !p.failing && p.options.Failed != nil {
			p.options.Failed(err)
		}
		p.failing = true
		return
	}
	p.failing = false
	policies := slices.SortedFunc(slices.Values(p.options.Policies()), func(a, b *policy.Policy) int { return cmp.Compare(a.Name, b.Name) })
	p.models.replace(policies, p.taken)
	if p.options.Inputs != nil {
		p.options.Inputs.keepOnly(p.models.names)
	}
	histories := p.models.histories
	for _, of := range policies {
		h := histories[of.Name]
		if h == nil {
			continue
		}
		if h.policy != of {
			p.follow(h, of)
		}
		h.begin()
	}
	readValues(scrape, histories)

	p.taken = p.schedule.begun
	over := p.schedule.endStep(p.taken)
	for _, h := range histories {
		h.end(p.taken, over)
	}
}

// follow makes a history go on under a policy.
func (p *Page) follow(h *history, of *policy.Policy) {
	labels, rest := p.options.Labels(of)
	h.follow(of, describe(of, p.options.Describe(of)), newRows(of, labels, rest))
}

// state returns the state of a model, with the steps that changed after a sample. Nothing in it changes
// later. For no name the model is the first one. The last deferred inputs are left out unless they may
// be seen.
func (p *Page) state(r *http.Request, name string, since time.Time) *pagestate.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.schedule.fresh(p.now()) {
		p.take()
	}
	model := p.models.look(name, p.now())
	s := &pagestate.State{At: p.taken.UTC(), Daemon: p.options.Daemon(), Models: p.models.names}
	h := p.models.histories[model]
	if found := p.models.find(model); h == nil && found != nil { // only its policy is known so far
		h = &history{}
		p.follow(h, found)
	}
	if h == nil || h.policy == nil {
		return s
	}
	s.Model = h.model(since)
	if p.options.Promises != nil {
		s.Model.Promises = promisesOf(p.options.Promises(), h.policy.Hash)
	}
	switch {
	case p.options.Inputs == nil:
		s.Model.RecentWhy = "off"
	case !p.options.MaySeeRecent(r.Context(), model):
		s.Model.RecentWhy = "not allowed"
	default:
		s.Model.Recent = p.options.Inputs.recent(model, p.options.Enter != nil)
	}
	return s
}

// promisesOf returns the promises of a policy as JSON.
func promisesOf(all []*ckdv1.PromiseFigures, hash string) []json.RawMessage {
	found := []json.RawMessage{}
	for _, p := range all {
		if p.GetPromise().GetPolicy().GetHash() != hash {
			continue
		}
		if text, err := apiJSON(p); err == nil { // always: the ledger's texts are UTF-8
			found = append(found, text)
		}
	}
	return found
}

// apiJSON returns a message of the API as the page reads it.
func apiJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
}
