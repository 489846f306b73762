package daemon

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
	"github.com/ckd-project/ckd/server"
)

// policies reloads the policies and publishes each outcome in the log, the metrics, /healthz and
// the triage page.
type policies struct {
	store   *store.Store
	server  *server.Server
	log     *zap.Logger
	metrics *metrics.Metrics
	page    *page
	failed  *failedReloads

	mu     sync.Mutex
	logged map[string]*policy.Policy // in force when a load was last logged, by model
}

// begin publishes the first load, after which the policies are in force.
func (p *policies) begin() {
	p.note(nil, time.Now())
	p.logNews()
}

// watch reloads when the files change, until ctx ends.
func (p *policies) watch(ctx context.Context) {
	p.store.Watch(ctx, p.reloaded)
}

// reload loads the policies again. The trigger is for the log.
func (p *policies) reload(trigger string) { p.reloaded(p.store.Reload(trigger)) }

// reloaded publishes the outcome of a reload.
func (p *policies) reloaded(o watch.Outcome) {
	p.note(o.Err, o.At)
	fields := []zap.Field{zap.String("trigger", o.Trigger), zap.String("set", o.Hash)}
	switch {
	case o.Err != nil:
		p.log.Error("policies not reloaded; those before stay in force", append(fields, zap.Error(o.Err))...)
	case o.Changed:
		p.log.Info("policies reloaded", fields...)
		p.logNews()
	default:
		p.log.Info("policies are unchanged", fields...)
	}
}

// note publishes how a load ended to /healthz, the metrics and the triage page.
func (p *policies) note(err error, ended time.Time) {
	text := ""
	if err != nil {
		text = "policies: not reloaded, those before stay in force: " + firstLines(err.Error())
	}
	p.failed.set("policies", text)
	p.metrics.Reloaded(err == nil, ended)
	p.page.reloaded(err, ended)
}

// logNews logs the policies that a load has put in force with what they change, as ckd check --against
// says it, and those that it has removed.
func (p *policies) logNews() {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.logged
	p.logged = map[string]*policy.Policy{}
	for _, now := range p.server.Policies() {
		p.logged[now.Name] = now
		was := before[now.Name]
		if was == nil {
			p.log.Info("policy in force", describe(now)...)
		} else if changes := policy.Changes(was, now); len(changes) > 0 {
			p.log.Info("policy in force", append(describe(now), zap.Strings("changes", changes))...)
		}
	}
	for model, was := range before {
		if p.logged[model] == nil {
			p.log.Info("policy removed", describe(was)...)
		}
	}
}

func describe(p *policy.Policy) []zap.Field {
	return []zap.Field{zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash)}
}
