package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/cmd/ckd/internal/tracing"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/kernel"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/oip"
	"github.com/ckd-project/ckd/policy/store"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/web"
	"github.com/ckd-project/ckd/web/triage"
)

// Daemon listens once it is built, and answers while it runs.
type Daemon struct {
	log       *zap.Logger
	shutdown  *shutdown
	sockets   *sockets
	security  *security
	tracer    *tracing.Tracer // nil without tracing
	rpc       *rpc
	policies  *policies
	page      *page
	api       *api       // nil if the API is not served over HTTP
	keeper    *keeper    // nil without a ledger
	decisions *decisions // nil without a decision log

	admin, http, pprof *web.Server // nil where the address is off
}

// New loads the policies that the configuration names, builds every part and opens every
// address. After an error nothing stays open. The policies are reloaded while the daemon
// runs.
func New(c *config.Config, log *zap.Logger) (_ *Daemon, err error) {
	d := &Daemon{log: log, shutdown: &shutdown{grace: c.ShutdownGrace}, sockets: &sockets{}}
	defer func() {
		if err != nil {
			d.sockets.close()
			d.release()
		}
	}()
	if err := d.sockets.open(c); err != nil {
		return nil, err
	}
	info := buildinfo.Get()
	settings, err := c.Changed()
	if err != nil {
		return nil, err
	}
	log.Info("starting", zap.String("version", info.Version), zap.String("revision", info.Revision),
		zap.Any("listeners", d.sockets.names()), zap.Any("settings", settings))
	registry, m, err := newMetrics(c, info)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	connections := newConnectionLimit(c, m)
	d.sockets.limit(connections)
	if d.tracer, err = newTracer(c, info, log); err != nil {
		return nil, err
	}
	refusals, failed := server.NewRefusals(log), &failedReloads{}
	if d.security, err = newSecurity(c, log, m, refusals, failed); err != nil {
		return nil, err
	}
	if d.decisions, err = openDecisions(c, info.Version, m, failed, log); err != nil {
		return nil, err
	}
	inputs := triage.NewInputs(c.RecentInputs)
	options := server.Options{
		Limits: limits(c), Logger: log, Metrics: m, Registry: registry, Refusals: refusals,
		Credentials: tlsfiles.Credentials(d.security.certificates), Auth: d.security.access,
		MemoryLimit: limitMemory(log, cgroupMemory), Decisions: d.decisions.options(),
	}
	if inputs != nil {
		options.Referred = inputs.Add
	}
	if d.tracer != nil {
		options.Tracing = d.tracer.Handler()
	}
	s, err := server.New(options)
	if err != nil {
		return nil, err
	}
	if err := d.security.useReceiptKeys(c.ReceiptKeys, s.SetReceiptKeys); err != nil {
		return nil, err
	}
	oip.Register(s, s)
	if d.keeper, err = newKeeper(c, s, d.security.receiptKeys, inputs, m, log, failed); err != nil {
		return nil, err
	}
	d.rpc = newRPC(s, log, d.shutdown)
	d.page = newPage(c, s, d.security, d.keeper, registry, m, inputs, d.sockets, log)
	d.policies = &policies{server: s, log: log, metrics: m, page: d.page, failed: failed}
	if d.policies.store, err = store.Open(d.keeper.admit(s.SetPolicies), c.Policy...); err != nil {
		return nil, err
	}
	if err := d.openHTTP(c, registry, m, refusals, failed); err != nil {
		return nil, err
	}
	worst := options.Limits.WorstCase(len(s.Policies()), connections.all, c.HTTP != config.Off)
	worst.Itself += d.decisions.memory()
	logWorstCase(log, worst, options.MemoryLimit)
	log.Info("arithmetic", zap.String("version", kernel.Name()))
	d.policies.begin()
	d.keeper.begin()
	return d, nil
}

// newMetrics returns the daemon's metrics and their registry, which also has the metrics of Go and
// of the process.
func newMetrics(c *config.Config, info buildinfo.Info) (*prometheus.Registry, *metrics.Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m, err := metrics.New(registry, metrics.Options{
		ClassLabels: c.ClassLabels, ClassBuckets: c.ClassBuckets, RejectReasons: server.RejectReasons(), Receipts: c.ReceiptKeys != "", Version: info.Version, Revision: info.Revision,
	})
	return registry, m, err
}

// newTracer returns the tracer of the settings; nil without tracing.
func newTracer(c *config.Config, info buildinfo.Info, log *zap.Logger) (*tracing.Tracer, error) {
	if c.TraceEndpoint == config.Off {
		return nil, nil
	}
	return tracing.New(tracing.Options{Endpoint: c.TraceEndpoint, Sample: c.TraceSample, Version: info.Version, Logger: log})
}

// openHTTP builds the servers of the HTTP addresses.
func (d *Daemon) openHTTP(c *config.Config, registry *prometheus.Registry, m *metrics.Metrics, refusals *server.Refusals, failed *failedReloads) (err error) {
	if l := d.sockets.admin; l != nil {
		options := web.AdminOptions{
			Registry: registry, State: d.rpc.server, Page: d.page.Handler(), FailedReloads: failed.lines,
			Access: d.security.access, TokensInPlaintext: c.TokensInPlaintext(), Loopback: isLoopback(l.Addr()), Log: d.log,
		}
		s := web.NewHTTP(web.Admin(options), d.log)
		if c.AdminTLS {
			s.TLSConfig, s.ConnState = d.security.certificates.TLSConfigForProbes(), d.security.certificates.ConnState
		}
		d.admin = web.NewServer(s, l)
	}
	if l := d.sockets.http; l != nil {
		if d.api, err = newAPI(c, d.rpc.server, d.security, m, refusals, d.log); err != nil {
			return fmt.Errorf("http: %w", err)
		}
		d.http = web.NewServer(d.api.server, l)
	}
	if l := d.sockets.pprof; l != nil {
		d.pprof = web.NewServer(web.NewHTTP(web.Profiler(), d.log), l)
	}
	return nil
}

// Targets returns the gRPC addresses as a client dials them.
func (d *Daemon) Targets() []string { return d.sockets.targets() }

// AdminURL returns where the admin address is served; empty for nowhere.
func (d *Daemon) AdminURL() string { return urlOf(d.admin) }

// HTTPURL returns where the API is served over HTTP; empty for nowhere.
func (d *Daemon) HTTPURL() string { return urlOf(d.http) }

// urlOf returns the address of a server, or an empty text for none.
func urlOf(s *web.Server) string {
	if s == nil {
		return ""
	}
	return s.URL
}

// Run serves until ctx ends or a part fails, and then stops every part: the daemon says
// NOT_SERVING, opens no more inputs and takes no more connections, lets what is open go on for
// the shutdown grace, ends it, and closes the HTTP addresses last. It returns within two
// seconds of the grace. The error is nil if ctx ended it.
func (d *Daemon) Run(ctx context.Context) error {
	var parts run.Group // they are stopped in the order in which they are added
	background(ctx, &parts, func(ctx context.Context) { <-ctx.Done() })
	background(ctx, &parts, d.rpc.server.GuardMemory)
	background(ctx, &parts, d.reload)
	background(ctx, &parts, d.page.Run)
	if d.keeper != nil {
		background(ctx, &parts, d.keeper.run)
	}
	for _, l := range d.sockets.grpc {
		parts.Add(func() error {
			d.log.Info("listening", zap.String("for", "grpc"), zap.String("address", target(l.Addr())))
			return d.rpc.serve(l)
		}, func(error) { d.rpc.stop() })
	}
	if d.api != nil {
		parts.Add(func() error { return d.rpc.serve(d.api.pipe) }, func(error) { d.rpc.stop() })
	}
	closeHTTP := sync.OnceFunc(d.closeHTTP)
	for name, s := range d.httpServers() {
		parts.Add(func() error {
			d.log.Info("listening", zap.String("for", name), zap.String("address", s.URL))
			return s.Serve()
		}, func(error) { closeHTTP() })
	}
	err := parts.Run()
	d.release()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		d.log.Info("stopped")
		return nil
	}
	return err
}

// background adds a part that runs until its context ends.
func background(ctx context.Context, parts *run.Group, part func(context.Context)) {
	own, stop := context.WithCancel(ctx)
	parts.Add(func() error {
		part(own)
		<-own.Done() // one with nothing to do may have returned at once
		return ctx.Err()
	}, func(error) { stop() })
}

// reload reloads policies, certificates, identities and keys on SIGHUP and when their files change,
// until ctx ends.
func (d *Daemon) reload(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	var files sync.WaitGroup
	defer files.Wait()
	files.Go(func() { d.security.watch(ctx) })
	files.Go(func() { d.policies.watch(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			d.decisions.reopen()
			d.security.reload("SIGHUP")
			d.policies.reload("SIGHUP")
		}
	}
}

// httpServers returns the servers of the HTTP addresses that are not off, by name.
func (d *Daemon) httpServers() map[string]*web.Server {
	servers := map[string]*web.Server{}
	for name, s := range map[string]*web.Server{"admin": d.admin, "http": d.http, "pprof": d.pprof} {
		if s != nil {
			servers[name] = s
		}
	}
	return servers
}

// closeHTTP ends the HTTP servers. Requests that are under way may finish, for a second.
func (d *Daemon) closeHTTP() {
	ctx, cancel := d.shutdown.within(time.Second, 1500*time.Millisecond)
	defer cancel()
	var closing sync.WaitGroup
	for _, s := range d.httpServers() {
		closing.Go(func() { s.Shutdown(ctx) })
	}
	closing.Wait()
}

// release closes the parts that no address serves: the ledger, the connection inside the
// process, the decision log and the tracer, which send what is left if that does not take long.
func (d *Daemon) release() {
	d.keeper.end()
	d.api.close()
	d.decisions.close(d.shutdown)
	if d.tracer == nil {
		return
	}
	ctx, cancel := d.shutdown.within(2*time.Second, 1800*time.Millisecond)
	defer cancel()
	if err := d.tracer.Close(ctx); err != nil {
		d.log.Warn("spans were not sent", zap.Error(err))
	}
}
