package daemon

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/kernel"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/web/triage"
)

// page holds the triage page, with the parts of the daemon that it reads.
type page struct {
	*triage.Page
	server   *server.Server
	security *security
	started  time.Time
	ledger   string // the address that commands for the ledger take; empty without one

	mu     sync.Mutex
	reload pagestate.Reload
}

// newPage returns the page. It is served at the admin socket, if there is one.
func newPage(
	c *config.Config, s *server.Server, security *security, keeper *keeper, registry *prometheus.Registry, m *metrics.Metrics, inputs *triage.Inputs,
	at *sockets, log *zap.Logger,
) *page {
	p := &page{server: s, security: security, started: time.Now()}
	options := triage.Options{
		Gatherer: registry,
		Policies: s.Policies,
		Describe: server.PolicyMessage,
		Labels:   m.Labels,
		Daemon:   p.daemon,
		Inputs:   inputs,
		CaseURL:  c.CaseURL,
		MaySeeRecent: func(ctx context.Context, model string) bool {
			who := auth.FromContext(ctx)
			return who.MaySeeRecent() && who.MayUse(model)
		},
		MayEnter: func(ctx context.Context, model string) bool {
			who := auth.FromContext(ctx)
			if who == nil { // anybody may, who can only be on this machine
				return at.admin != nil && isLoopback(at.admin.Addr())
			}
			return who.MayReportOutcomes() && who.MayUse(model)
		},
		Source: func(ctx context.Context) string { return auth.FromContext(ctx).Name() },
		Failed: func(err error) { log.Error("the triage page cannot read the metrics", zap.Error(err)) },
	}
	if keeper != nil {
		p.ledger = cmp.Or(c.LedgerAt, at.targets()[0])
		options.Promises, options.Enter = keeper.promises, keeper.enter
	}
	p.Page = triage.New(options)
	return p
}

// reloaded records how an attempt to load the policies ended.
func (p *page) reloaded(err error, ended time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	success := p.reload.Success
	if err == nil {
		success = ended
	}
	p.reload = pagestate.Reload{OK: err == nil, At: ended, Success: success}
	if err != nil {
		p.reload.Error = firstLines(err.Error())
	}
}

// daemon returns the state of the daemon.
func (p *page) daemon() pagestate.Daemon {
	info := buildinfo.Get()
	d := pagestate.Daemon{
		Version: info.Version, Revision: info.Revision, Arithmetic: kernel.Name(),
		Started: p.started, Serving: p.server.Serving(), Ledger: p.ledger,
	}
	if certificates := p.security.certificates; certificates != nil {
		ends := certificates.NotAfter()
		d.CertificateEnds = &ends
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d.Reload = p.reload
	return d
}
