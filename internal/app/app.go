package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/buildinfo"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/server"
)

// App is a daemon that listens, and answers once it runs.
type App struct {
	log       *zap.Logger
	grace     time.Duration
	server    *server.Server
	listeners []net.Listener
	admin     *http.Server // nil for none
	adminAt   net.Listener
	drain     sync.Once
}

// New loads the policies, builds every part and opens every address: what can
// go wrong at the start goes wrong here, and then nothing stays open.
func New(c *config.Config, log *zap.Logger, load func() (*policy.Set, error)) (*App, error) {
	set, err := load()
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := buildinfo.Get()
	m, err := metrics.New(registry, metrics.Options{
		ClassLabels: c.ClassLabels, RejectReasons: server.RejectReasons(), Version: build.Version, Revision: build.Revision,
	})
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	s, err := server.New(server.Options{Limits: limits(c), Logger: log, Metrics: m, Registry: registry})
	if err != nil {
		return nil, err
	}
	if err := s.SetPolicies(set); err != nil {
		return nil, err
	}
	a := &App{log: log, grace: c.ShutdownGrace, server: s}
	if err := a.listen(c); err != nil {
		a.close()
		return nil, err
	}
	if a.adminAt != nil {
		a.admin = newAdmin(registry, s, log)
	}
	for _, p := range set.All() {
		log.Info("policy in force", zap.String("model", p.Name), zap.String("version", p.Version), zap.String("hash", p.Hash),
			zap.Bool("observes", p.Observes()))
	}
	return a, nil
}

// limits are the settings as the server takes them.
func limits(c *config.Config) server.Limits {
	return server.Limits{
		MessageBytes:        c.MaxMessageBytes,
		Streams:             c.MaxStreams,
		OpenInputsPerStream: c.MaxOpenInputs,
		OpenGroupsPerStream: c.MaxOpenGroups,
		InputsPerRequest:    c.MaxInputsPerRequest,
		PassesPerInput:      c.MaxPasses,
		InputIDBytes:        c.MaxIDBytes,
		OpenInputBytes:      c.MaxOpenBytes,
		Classes:             c.MaxClasses,
		SendStall:           c.SendStallTimeout,
		InputIdle:           c.InputIdleTimeout,
		StreamAge:           c.MaxStreamAge,
	}
}

// listen opens every address.
func (a *App) listen(c *config.Config) error {
	for _, address := range c.Listen {
		l, err := listen(address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		a.listeners = append(a.listeners, l)
	}
	if c.Admin == config.Off {
		return nil
	}
	l, err := listen(c.Admin)
	if err != nil {
		return fmt.Errorf("admin on %s: %w", c.Admin, err)
	}
	a.adminAt = l
	return nil
}

// close gives up what listen opened.
func (a *App) close() {
	for _, l := range a.listeners {
		_ = l.Close() // nothing was accepted
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
func (a *App) AdminURL() string {
	if a.adminAt == nil {
		return ""
	}
	return "http://" + a.adminAt.Addr().String()
}

// Serving reports whether the daemon wants traffic.
func (a *App) Serving() bool { return a.server.Serving() }

// Run serves until ctx ends or a part fails, then stops: it says NOT_SERVING,
// takes no more connections, lets open calls go on for the shutdown grace, ends
// them, and closes the admin address last. The error is nil if ctx ended it.
func (a *App) Run(ctx context.Context) error {
	var group run.Group
	wait, stop := context.WithCancel(ctx)
	group.Add(func() error {
		<-wait.Done()
		return ctx.Err()
	}, func(error) { stop() })
	for _, l := range a.listeners {
		group.Add(func() error {
			a.log.Info("listening", zap.String("for", "grpc"), zap.String("address", target(l.Addr())))
			return a.server.GRPC().Serve(l)
		}, func(error) { a.drain.Do(a.stopServing) })
	}
	if a.admin != nil {
		group.Add(func() error {
			a.log.Info("listening", zap.String("for", "admin"), zap.String("address", a.AdminURL()))
			return a.admin.Serve(a.adminAt)
		}, func(error) { a.stopAdmin() })
	}
	err := group.Run()
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		a.log.Info("stopped")
		return nil
	}
	return err
}

// stopServing ends the RPCs: gracefully, or hard when the grace is over.
func (a *App) stopServing() {
	a.log.Info("stopping", zap.Duration("grace", a.grace))
	a.server.Drain()
	done := make(chan struct{})
	go func() {
		a.server.GRPC().GracefulStop()
		close(done)
	}()
	grace := time.NewTimer(a.grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		a.log.Warn("calls still open after the shutdown grace are ended")
		a.server.Kill()
		a.server.GRPC().Stop()
		<-done
	}
}

// stopAdmin ends the admin address; a scrape that is under way may finish.
func (a *App) stopAdmin() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.admin.Shutdown(ctx); err != nil {
		_ = a.admin.Close() // it did not finish in time
	}
}

// target is a listener's address as a client dials it.
func target(address net.Addr) string {
	if address.Network() == "unix" {
		return "unix:" + address.String()
	}
	return address.String()
}

// listen opens HOST:PORT or unix:PATH. A socket file that nobody listens on any
// more is what a daemon that was killed leaves behind, and is replaced.
func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", path)
	if err == nil || !isStale(path) {
		return l, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}
