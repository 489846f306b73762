package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/internal/triage"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/server"
)

// page is the triage page with what it is told of the daemon.
type page struct {
	*triage.Page
	app       *App
	started   time.Time
	deferrals *triage.Deferrals // nil: none are kept

	mu     sync.Mutex
	reload triage.Reload
}

func newPage(c *config.Config, a *App, registry *prometheus.Registry) *page {
	p := &page{app: a, started: time.Now()}
	if c.RecentInputs > 0 {
		p.deferrals = triage.NewDeferrals(c.RecentInputs)
	}
	p.Page = triage.New(triage.Options{
		Gatherer:  registry,
		Policies:  func() []*policy.Policy { return a.server.Policies() },
		Daemon:    p.daemon,
		Deferrals: p.deferrals,
		MaySeeRecent: func(ctx context.Context, model string) bool {
			who := access.FromContext(ctx)
			return who.MaySeeRecent() && who.MayUse(model)
		},
		Failed: func(err error) { a.log.Error("the triage page cannot read the metrics", zap.Error(err)) },
	})
	return p
}

// deferred is what the server is to tell deferred inputs to.
func (p *page) deferred() server.Deferred {
	if p.deferrals == nil {
		return nil
	}
	return func(of *policy.Policy, id []byte, o *engine.Outcome) { p.deferrals.Add(of, string(id), o) }
}

// reloaded tells of an attempt to load the policies.
func (p *page) reloaded(err error, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	success := p.reload.Success
	if err == nil {
		success = at
	}
	p.reload = triage.Reload{OK: err == nil, At: at, Success: success}
	if err != nil {
		p.reload.Error = firstLines(err.Error())
	}
}

// firstLines of what is wrong: the log has all of it, but it goes to every watcher
// with every event.
func firstLines(text string) string {
	const mostLines, mostBytes = 20, 4096
	lines := strings.SplitAfter(text, "\n")
	kept, size := 0, 0
	for kept < len(lines) && kept < mostLines && size+len(lines[kept]) <= mostBytes {
		size += len(lines[kept])
		kept++
	}
	switch left := len(lines) - kept; {
	case left == 0:
		return text
	case kept == 0:
		return httperror.Clip(lines[0]) + " (the log has all of it)"
	default:
		return text[:size] + fmt.Sprintf("and %d more: the log has them", left)
	}
}

func (p *page) daemon() triage.Daemon {
	info := buildinfo.Get()
	d := triage.Daemon{
		Version: info.Version, Revision: info.Revision, Arithmetic: decomp.Kernel(),
		Started: p.started, Serving: p.app.server.Serving(),
	}
	if certs := p.app.security.certs; certs != nil {
		ends := certs.NotAfter()
		d.CertificateEnds = &ends
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d.Reload = p.reload
	return d
}
