package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/inference"
	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/framing"
	"github.com/ckd-project/ckd/internal/gateway"
	"github.com/ckd-project/ckd/internal/tracing"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
	"github.com/ckd-project/ckd/server"
)

// App is a daemon that listens, and answers once it runs.
type App struct {
	log      *zap.Logger
	grace    time.Duration
	server   *server.Server
	metrics  *metrics.Metrics
	store    *store.Store // nil where the policies are fixed
	page     *page
	tracer   *tracing.Tracer // nil without tracing
	inside   *inside         // nil where nothing is served over HTTP
	security *security

	listeners []net.Listener
	https     []httpServer

	telling sync.Mutex
	told    []*policy.Policy  // in force when a reload was last told of; under telling
	failed  map[string]string // by what is not reloaded, until it is; under telling

	drain, closeHTTP sync.Once
	drained          chan struct{} // closed when the RPCs have ended
	killAt           time.Time     // end of the shutdown grace; set when the daemon begins to stop
}

// httpServer is an HTTP server and where it listens.
type httpServer struct {
	name   string
	server *http.Server
	at     net.Listener
	secure bool // it speaks TLS
}

// New loads the policies that the configuration names, builds every part and
// opens every address: what can go wrong at the start goes wrong here, and then
// nothing stays open. The policies are reloaded while the daemon runs.
func New(c *config.Config, log *zap.Logger) (*App, error) {
	return build(c, log, func(a *App) (err error) {
		a.store, err = store.Open(a.server.SetPolicies, c.Policy...)
		return err
	})
}

// NewFixed is New with policies that are given and stay.
func NewFixed(c *config.Config, log *zap.Logger, set *policy.Set) (*App, error) {
	return build(c, log, func(a *App) error { return a.server.SetPolicies(set) })
}

func build(c *config.Config, log *zap.Logger, load func(*App) error) (_ *App, err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := buildinfo.Get()
	m, err := metrics.New(registry, metrics.Options{
		ClassLabels: c.ClassLabels, RejectReasons: server.RejectReasons(), MessageReasons: server.MessageReasons(),
		AccessReasons: accessReasons(),
		Version:       info.Version, Revision: info.Revision,
	})
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	options := server.Options{
		Limits: limits(c), Logger: log, Metrics: m, Registry: registry, Channelz: c.Channelz, Refusals: server.NewRefusals(log),
	}
	a := &App{log: log, grace: c.ShutdownGrace, metrics: m, drained: make(chan struct{})}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if err := a.open(c); err != nil {
		return nil, err
	}
	if err := a.introduce(c, info); err != nil {
		return nil, err
	}
	if c.TraceEndpoint != config.Off {
		a.tracer, err = tracing.New(tracing.Options{
			Endpoint: c.TraceEndpoint, Sample: c.TraceSample, Version: info.Version, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		options.Tracing = a.tracer.Handler()
	}
	a.security, err = newSecurity(c, log, m, options.Refusals)
	if err != nil {
		return nil, err
	}
	options.TLS, options.Access = a.security.certs, a.security.access
	a.page = newPage(c, a, registry)
	options.Deferred = a.page.deferred()
	s, err := server.New(options)
	if err != nil {
		return nil, err
	}
	inference.Register(s, s)
	a.server = s
	if err := load(a); err != nil {
		return nil, err
	}
	a.told = s.Policies()
	a.security.note = a.note
	a.reloadedAt(nil, time.Now())
	if err := a.prepareHTTP(c, registry); err != nil {
		return nil, err
	}
	log.Info("arithmetic", zap.String("version", decomp.Kernel()))
	for _, p := range s.Models() {
		log.Info("policy in force", zap.String("model", p.GetModel()), zap.String("version", p.GetVersion()), zap.String("hash", p.GetHash()))
	}
	return a, nil
}

// limits are the settings as the server takes them.
func limits(c *config.Config) server.Limits {
	return server.Limits{
		MessageBytes:        c.MaxMessageBytes,
		Streams:             c.MaxStreams,
		Calls:               c.MaxCalls,
		Watches:             cmp.Or(c.MaxWatches, c.MaxStreams),
		OpenInputsPerStream: c.MaxOpenInputs,
		OpenGroupsPerStream: c.MaxOpenGroups,
		InputsPerRequest:    c.MaxInputsPerRequest,
		PassesPerInput:      c.MaxPasses,
		InputIDBytes:        c.MaxIDBytes,
		ReplyBytes:          c.MaxReplyBytes,
		OpenInputBytes:      c.MaxOpenBytes,
		Classes:             c.MaxClasses,
		CallTime:            c.CallTimeout,
		SendStall:           c.SendStallTimeout,
		InputIdle:           c.InputIdleTimeout,
		StreamAge:           c.MaxStreamAge,
		DrainGrace:          c.ShutdownGrace,
	}
}

// open opens every address.
func (a *App) open(c *config.Config) error {
	for _, address := range c.Listen {
		l, err := listen(address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		a.listeners = append(a.listeners, l)
	}
	for _, h := range []struct{ name, address string }{{"admin", c.Admin}, {"http", c.HTTP}, {"pprof", c.Pprof}} {
		if h.address == config.Off {
			continue
		}
		l, err := listen(h.address)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", h.name, h.address, err)
		}
		a.https = append(a.https, httpServer{name: h.name, at: l})
	}
	return nil
}

// introduce writes the first line of the log: which build this is, where it listens, and
// how it is set.
func (a *App) introduce(c *config.Config, info buildinfo.Info) error {
	settings, err := c.Changed()
	if err != nil {
		return err
	}
	listeners := map[string]any{"grpc": a.Targets()}
	for _, h := range a.https {
		listeners[h.name] = h.at.Addr().String()
	}
	a.log.Info("starting", zap.String("version", info.Version), zap.String("revision", info.Revision),
		zap.Any("listeners", listeners), zap.Any("settings", settings))
	return nil
}

// prepareHTTP makes the servers of the HTTP addresses.
func (a *App) prepareHTTP(c *config.Config, registry *prometheus.Registry) error {
	var reload func() store.Outcome
	if c.AdminReload && a.store != nil {
		reload = func() store.Outcome { return a.reload("POST /-/reload") }
	}
	for i := range a.https {
		h, err := &a.https[i], error(nil)
		switch h.name {
		case "admin":
			handler := a.security.access.HTTP(
				adminHandler(registry, a.server, a.log, a.page.Handler(), reload, a.notReloaded, isLoopback(h.at.Addr())), access.HTTPOptions{Need: adminNeed, Basic: !c.TokensInPlaintext()})
			if c.TokensInPlaintext() {
				handler = withoutPage(handler)
			}
			h.server = newHTTPServer(handler, a.log)
			if c.AdminTLS {
				h.server.TLSConfig, h.server.ConnState = a.security.certs.TLSConfigForProbes(), a.security.certs.ConnState
			}
		case "http":
			h.server, err = a.serveHTTP(c)
		case "pprof":
			h.server = newHTTPServer(pprofHandler(), a.log)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		h.at, h.secure = framing.Guard(h.server, h.at), h.server.TLSConfig != nil
	}
	return nil
}

// inside is the way by which what comes over HTTP reaches the gRPC server.
type inside struct {
	listener *gateway.Listener
	conn     *grpc.ClientConn
}

// serveHTTP is the server of the API over HTTP.
func (a *App) serveHTTP(c *config.Config) (*http.Server, error) {
	listener := gateway.Pipe()
	conn, err := listener.Client(access.OutgoingOptions()...)
	if err != nil {
		return nil, err
	}
	a.inside = &inside{listener, conn}
	api := gateway.New(conn, gateway.Options{
		MessageBytes: c.MaxMessageBytes, BodyBytes: c.MaxOpenBytes, WriteTimeout: c.SendStallTimeout, Refused: a.httpRefused,
		Tensor: a.server.Tensor,
	})
	refuse := func(w http.ResponseWriter, r *http.Request, st *status.Status) { gateway.WriteError(w, r, st.Err()) }
	s := gateway.NewServer(a.security.access.HTTP(a.untilStopping(api), access.HTTPOptions{Need: apiNeed, Refuse: refuse}), zap.NewStdLog(a.log))
	if a.security.certs != nil {
		s.TLSConfig, s.ConnState = a.security.certs.TLSConfig(), a.security.certs.ConnState
	}
	return s, nil
}

// httpRefused counts and logs a request that was refused before it became a call. The
// log has none of the client's words.
func (a *App) httpRefused(code int, requestID string) {
	a.metrics.HTTPRefused(code)
	a.security.refusals.HTTP(code, zap.String("request_id", requestID))
}

// untilStopping answers in place of an API whose gRPC server takes no more calls:
// the daemon is alive, and wants no traffic.
func (a *App) untilStopping(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := a.server.Stopping()
		switch {
		case why == nil:
			api.ServeHTTP(w, r)
		case r.URL.Path == "/v2/health/live":
			answerJSON(w, http.StatusOK, `{"live":true}`+"\n")
		case r.URL.Path == "/v2/health/ready":
			answerJSON(w, http.StatusServiceUnavailable, `{"ready":false}`+"\n")
		default:
			gateway.WriteError(w, r, why)
		}
	})
}

func answerJSON(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that went away needs no answer
}

func (i *inside) close() {
	if i != nil {
		_ = i.conn.Close() // all calls are over
		_ = i.listener.Close()
	}
}

// close gives up what was opened.
func (a *App) close() {
	for _, l := range a.listeners {
		_ = l.Close() // nothing was accepted
	}
	for _, h := range a.https {
		_ = h.at.Close()
	}
	a.inside.close()
	a.closeTracer()
}

// closeTracer sends the spans that are left, if that does not take long.
func (a *App) closeTracer() {
	if a.tracer == nil {
		return
	}
	ctx, cancel := a.within(2*time.Second, 1800*time.Millisecond)
	defer cancel()
	if err := a.tracer.Close(ctx); err != nil {
		a.log.Warn("spans were not sent", zap.Error(err))
	}
}

// Targets are the gRPC addresses as a client dials them.
func (a *App) Targets() []string {
	var targets []string
	for _, l := range a.listeners {
		targets = append(targets, target(l.Addr()))
	}
	return targets
}

// AdminURL is where the admin address is served; empty for nowhere.
func (a *App) AdminURL() string { return a.urlOf("admin") }

// HTTPURL is where the API is served over HTTP; empty for nowhere.
func (a *App) HTTPURL() string { return a.urlOf("http") }

func (a *App) urlOf(name string) string {
	for _, h := range a.https {
		if h.name == name {
			return h.url()
		}
	}
	return ""
}

func (h *httpServer) url() string {
	if h.secure {
		return "https://" + h.at.Addr().String()
	}
	return "http://" + h.at.Addr().String()
}

func (h *httpServer) serve() error {
	if h.secure {
		return h.server.ServeTLS(h.at, "", "") // the configuration has the certificates
	}
	return h.server.Serve(h.at)
}

// Serving reports whether the daemon wants traffic.
func (a *App) Serving() bool { return a.server.Serving() }

// Run serves until ctx ends or a part fails, then stops: it says NOT_SERVING,
// opens no more inputs and takes no more connections, lets what is open go on
// for the shutdown grace, ends it, and closes the admin address last. It returns
// within two seconds of the grace. The error is nil if ctx ended it.
func (a *App) Run(ctx context.Context) error {
	var group run.Group
	wait, stop := context.WithCancel(ctx)
	group.Add(func() error {
		<-wait.Done()
		return ctx.Err()
	}, func(error) { stop() })
	watching, stopWatching := context.WithCancel(ctx)
	group.Add(func() error {
		a.watch(watching)
		return nil
	}, func(error) { stopWatching() })
	showing, stopShowing := context.WithCancel(ctx)
	group.Add(func() error {
		a.page.Run(showing)
		return nil
	}, func(error) { stopShowing() })
	for _, l := range a.listeners {
		group.Add(func() error {
			a.log.Info("listening", zap.String("for", "grpc"), zap.String("address", target(l.Addr())))
			return a.serve(l)
		}, func(error) { a.drain.Do(a.stopServing) })
	}
	if a.inside != nil {
		group.Add(func() error { return a.serve(a.inside.listener) }, func(error) { a.drain.Do(a.stopServing) })
	}
	for _, h := range a.https {
		group.Add(func() error {
			a.log.Info("listening", zap.String("for", h.name), zap.String("address", h.url()))
			return h.serve()
		}, func(error) { a.closeHTTP.Do(a.stopHTTP) })
	}
	err := group.Run()
	a.inside.close()
	a.closeTracer()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		a.log.Info("stopped")
		return nil
	}
	return err
}

// watch reloads policies, certificates and identities on SIGHUP and when their
// files change.
func (a *App) watch(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	var files sync.WaitGroup
	defer files.Wait()
	files.Go(func() { a.security.watch(ctx) })
	if a.store != nil {
		files.Go(func() { a.store.Watch(ctx, a.reloaded) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			a.security.reload("SIGHUP")
			if a.store != nil {
				a.reload("SIGHUP")
			}
		}
	}
}

func (a *App) reload(trigger string) store.Outcome {
	outcome := a.store.Reload(trigger)
	a.reloaded(outcome)
	return outcome
}

// reloaded tells of a reload, in the log and in the metrics.
func (a *App) reloaded(o store.Outcome) {
	a.reloadedAt(o.Err, o.At)
	fields := []zap.Field{zap.String("trigger", o.Trigger), zap.String("set", o.Hash)}
	switch {
	case o.Err != nil:
		a.log.Error("policies not reloaded; those before stay in force", append(fields, zap.Error(o.Err))...)
	case o.Changed:
		a.log.Info("policies reloaded", fields...)
		a.telling.Lock()
		before := a.told
		a.told = a.server.Policies()
		logChanges(a.log, before, a.told)
		a.telling.Unlock()
		for _, p := range a.server.Models() {
			a.log.Info("policy in force", zap.String("model", p.GetModel()), zap.String("version", p.GetVersion()), zap.String("hash", p.GetHash()))
		}
	default:
		a.log.Info("policies are unchanged", fields...)
	}
	if o.WatchErr != nil {
		a.log.Warn("policy files cannot be watched; changes are found by a slow poll", zap.Error(o.WatchErr))
	}
}

func (a *App) reloadedAt(err error, at time.Time) {
	text := ""
	if err != nil {
		text = "policies: not reloaded, those before stay in force: " + firstLines(err.Error())
	}
	a.note("policies", text)
	a.metrics.Reloaded(err == nil, at)
	a.page.reloaded(err, at)
}

// serve serves RPCs until they have ended. gRPC itself would wait for peers in the
// midst of a handshake too.
func (a *App) serve(l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- a.server.GRPC().Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-a.drained:
		return nil
	}
}

// note keeps why files are not reloaded, for /healthz; empty once they are.
func (a *App) note(what, text string) {
	a.telling.Lock()
	defer a.telling.Unlock()
	if a.failed == nil {
		a.failed = map[string]string{}
	}
	delete(a.failed, what)
	if text != "" {
		a.failed[what] = text
	}
}

// notReloaded are lines on the files whose last reload failed.
func (a *App) notReloaded() (lines string) {
	a.telling.Lock()
	defer a.telling.Unlock()
	for _, what := range slices.Sorted(maps.Keys(a.failed)) {
		lines += strings.TrimSuffix(a.failed[what], "\n") + "\n"
	}
	return lines
}

// stopServing ends the RPCs: as soon as none of ours is under way, or when the
// grace is over. It does not wait for what is no call of ours: connections that
// say nothing, or clients that watch the health.
func (a *App) stopServing() {
	defer close(a.drained)
	a.killAt = time.Now().Add(a.grace)
	a.log.Info("stopping", zap.Duration("grace", a.grace))
	a.server.Drain()
	graceful := make(chan struct{})
	go func() {
		a.server.GRPC().GracefulStop()
		close(graceful)
	}()
	grace := time.NewTimer(a.grace)
	defer grace.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for idle := 0; idle < idleLooks; {
		select {
		case <-graceful:
			return
		case <-grace.C:
			a.log.Warn("calls still open after the shutdown grace are ended")
			a.server.Kill()
			if ends(graceful, trailerTime) {
				return
			}
			idle = idleLooks
		case <-look.C:
			if idle++; !a.server.Idle() {
				idle = 0
			}
		}
	}
	stopped := make(chan struct{})
	go func() {
		a.server.GRPC().Stop()
		close(stopped)
	}()
	ends(stopped, 500*time.Millisecond) // what is left has no call of ours
}

// idleLooks in a row without a call are the end of them: a call that came in just
// before has begun by then, and what was answered last has been sent.
const idleLooks = 5

// trailerTime is how long clients have, after the grace, to read why their streams were
// ended. Closing their connections at once would tear that off.
const trailerTime = 500 * time.Millisecond

// ends waits until c is closed, and reports whether that happened in time.
func ends(c <-chan struct{}, limit time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return false
	}
}

// stopHTTP ends the HTTP servers; requests that are under way may finish.
func (a *App) stopHTTP() {
	ctx, cancel := a.within(time.Second, 1500*time.Millisecond)
	defer cancel()
	var ending sync.WaitGroup
	for _, h := range a.https {
		ending.Go(func() {
			if err := h.server.Shutdown(ctx); err != nil {
				_ = h.server.Close() // a request did not finish in time
			}
		})
	}
	ending.Wait()
}

// within returns a context for a part of the end: it has its own time, but none beyond
// the given one after the shutdown grace, so that the whole exit is bounded.
func (a *App) within(own, afterGrace time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(own)
	if limit := a.killAt.Add(afterGrace); !a.killAt.IsZero() && limit.Before(end) {
		end = limit
	}
	return context.WithDeadline(context.Background(), end)
}
