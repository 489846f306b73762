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
	store   *store.Store // nil if the policies are fixed
	server  *server.Server
	log     *zap.Logger
	metrics *metrics.Metrics
	page    *page
	failed  *failedReloads

	mu     sync.Mutex
	logged []*policy.Policy // in force when a reload was last logged
}

// begin publishes the first load, after which the policies are in force.
func (p *policies) begin() {
	p.logged = p.server.Policies()
	p.note(nil, time.Now())
	p.logModels()
}

// watch reloads when the files change, until ctx ends.
func (p *policies) watch(ctx context.Context) {
	if p.store != nil {
		p.store.Watch(ctx, p.reloaded)
	}
}

// reload loads the policies again, if they come from files. The trigger is for the log.
func (p *policies) reload(trigger string) {
	if p.store != nil {
		p.reloaded(p.store.Reload(trigger))
	}
}

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
		p.logModels()
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

// logNews logs how the policies differ from those logged last.
func (p *policies) logNews() {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.logged
	p.logged = p.server.Policies()
	logChanges(p.log, before, p.logged)
}

func (p *policies) logModels() {
	for _, m := range p.server.Policies() {
		p.log.Info("policy in force", zap.String("model", m.Name), zap.String("version", m.Version), zap.String("hash", m.Hash))
	}
}
