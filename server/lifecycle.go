package server

import (
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// lifecycle tells clients and streams whether the daemon serves, drains or ends. It only goes
// forward: once the daemon drains, it never serves again.
type lifecycle struct {
	health  *health.Server
	drained chan struct{} // closed when the daemon begins to stop
	killed  chan struct{} // closed when it waits no longer
}

// newLifecycle returns the lifecycle of a daemon that does not serve yet.
func newLifecycle() *lifecycle {
	l := &lifecycle{health: health.NewServer(), drained: make(chan struct{}), killed: make(chan struct{})}
	l.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	return l
}

// publish reports some names of services and models as serving, and models that are in
// force no more as unknown. It has no effect once the daemon drains.
func (l *lifecycle) publish(serving []string, before, after models) {
	for _, name := range serving {
		l.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	for name := range before {
		if after[name] == nil {
			l.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
		}
	}
}

// drain reports NOT_SERVING to health checks and tells streams to open no more inputs.
func (l *lifecycle) drain() {
	l.health.Shutdown()
	close(l.drained)
}

// draining reports whether the daemon has begun to stop.
func (l *lifecycle) draining() bool {
	select {
	case <-l.drained:
		return true
	default:
		return false
	}
}

// kill tells the streams that are left to end. Like drain, it may be called once.
func (l *lifecycle) kill() { close(l.killed) }

// stopping returns the status of calls that arrive once the daemon drains, and nil before.
func (l *lifecycle) stopping() error {
	if l.draining() {
		return stoppingStatus()
	}
	return nil
}

// stoppingStatus returns the status of a call or stream that the daemon's stop refuses or ends.
func stoppingStatus() error {
	return statusOf(draining("the daemon is stopping"), location{}).Err()
}
