package server

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/metrics"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// admission lets calls in or refuses them, before any of their request is read. It counts
// the calls of each kind that are in flight and keeps them within the limits.
type admission struct {
	limits   Limits
	auth     *auth.Store
	metrics  *metrics.Metrics
	refusals *Refusals
	budget   *budget
	http     *HTTPConnections
	overload *overload
	kinds    func() map[string]callKind // by the full name of a method

	calls   atomic.Int64 // unary calls; see slot
	unread  atomic.Int64 // replies to unary calls that the transport holds
	streams atomic.Int64 // streams of passes
	watches atomic.Int64 // watches of the health
	others  atomic.Int64 // reflection
}

// newAdmission returns the admission of a server. services is called with the first call.
func newAdmission(o Options, b *budget, services func() map[string]grpc.ServiceInfo) *admission {
	a := &admission{
		limits: o.Limits, auth: o.Auth, metrics: o.Metrics, refusals: o.Refusals, budget: b,
		http:  &HTTPConnections{budget: b, log: o.Logger},
		kinds: sync.OnceValue(func() map[string]callKind { return callKinds(services()) }),
	}
	a.overload = &overload{
		limit: o.MemoryLimit, budget: b, log: o.Logger, metrics: o.Metrics,
		idle: func() bool { return a.idle() && b.total() == 0 },
	}
	return a
}

// roomToUnpack reports whether there is room to unpack more of a message, which is given up otherwise.
// Messages in the midst of being unpacked may take a quarter of the budget, and one may always be.
func (a *admission) roomToUnpack(unpacked int64) bool {
	most := min(max(a.budget.limit/4, a.budget.mostPerCall()), a.budget.limit-a.budget.total())
	if unpacked < most && a.overload.calm() {
		return true
	}
	a.metrics.Refused("memory", "short")
	return false
}

// idle reports whether no stream of passes and no unary call is in flight.
func (a *admission) idle() bool { return a.streams.Load() == 0 && a.calls.Load() == 0 }

// inUse returns what clients make the daemon hold, beside its limits.
func (a *admission) inUse() []metrics.Use {
	return []metrics.Use{
		{Resource: "open_bytes", InUse: a.budget.total(), Limit: a.budget.limit},
		{Resource: "streams", InUse: a.streams.Load(), Limit: int64(a.limits.Streams)},
		{Resource: "calls", InUse: a.calls.Load(), Limit: int64(a.limits.Calls)},
		{Resource: "unread_replies", InUse: a.unread.Load()},
		{Resource: "watches", InUse: a.watches.Load(), Limit: int64(a.limits.Streams)},
	}
}

// Health checks and reflection need no credentials.
const (
	// probeTime bounds how long a health check may take, and a watch until its request is there.
	probeTime    = 2 * time.Second
	othersAtOnce = 64
)

// callKind says by which limits a method is admitted.
type callKind uint8

const (
	other callKind = iota
	probe
	unary
	streaming
	watch
)

// callKinds returns the kind of every method, by its full name.
func callKinds(services map[string]grpc.ServiceInfo) map[string]callKind {
	kinds := map[string]callKind{
		healthv1.Health_Check_FullMethodName: probe, healthv1.Health_List_FullMethodName: probe,
		healthv1.Health_Watch_FullMethodName: watch,
	}
	for service, info := range services {
		if strings.HasPrefix(service, "grpc.") {
			continue
		}
		for _, m := range info.Methods {
			kind := unary
			switch {
			case m.IsServerStream || m.IsClientStream:
				kind = streaming
			case m.Name == "ServerLive" || m.Name == "ServerReady" || m.Name == "ModelReady":
				kind = probe // health calls of the Open Inference Protocol
			}
			kinds["/"+service+"/"+m.Name] = kind
		}
	}
	return kinds
}

// tap admits a call or refuses it, before any of its request is read. Unknown callers get no
// further, and what calls hold while they arrive, and for how long, is bounded. gRPC calls
// it for the calls of a connection one after the other. openStream counts streams of passes.
//
// It returns no error: gRPC would then keep the timer of the client's deadline until that is over,
// however far that may be and even if the connection has ended. The handler returns the refusal.
func (a *admission) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	admitted, err := a.admit(ctx, call)
	if err != nil {
		return context.WithValue(ctx, refusalKey{}, err), nil
	}
	return admitted, nil
}

// refusalKey is the context key of the status of a call that tap has refused.
type refusalKey struct{}

// refusalOf returns the status of a call that tap has refused, and nil for any other.
func refusalOf(ctx context.Context) error {
	err, _ := ctx.Value(refusalKey{}).(error)
	return err
}

// admit is tap for one call; it returns the status of a refusal.
func (a *admission) admit(ctx context.Context, call *tap.Info) (_ context.Context, err error) {
	ctx, who, err := a.auth.Tap(ctx, call.FullMethodName)
	if err != nil {
		return ctx, err // auth has already reported it
	}
	defer func() {
		if err != nil {
			a.refusals.Call(who.Name(), reasonOrCode(err), zap.String("method", call.FullMethodName))
		}
	}()
	kind := a.kinds()[call.FullMethodName]
	if kind == streaming || kind == unary { // probes are exempt
		if err := a.overload.refusal(func() bool { return a.isSpared(ctx, who) }); err != nil {
			return ctx, err
		}
	}
	switch kind {
	case streaming:
		return ctx, nil
	case probe, watch:
		return a.await(ctx, who), nil
	case other:
		return a.enterOther(ctx)
	}
	if !who.UsesModels() {
		return ctx, statusOf(&fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, value: "no model", expected: "an identity that may use models",
			message: "the identity may use no model",
		}, location{}).Err()
	}
	return a.takeSlot(ctx, who, a.limits.CallTime)
}

// accountOf returns the account of an identity's calls over the connection that a call came by: over
// HTTP that is the HTTP connection.
func (a *admission) accountOf(ctx context.Context, who *auth.Identity) (*account, error) {
	switch c := connectionOf(ctx); {
	case c == nil:
		return a.budget.shared, nil
	case c.inProcess:
		return a.http.account(ctx, who)
	default:
		return c.line.account(who), nil
	}
}

// isSpared reports whether calls of an identity over a connection are taken while memory is short.
func (a *admission) isSpared(ctx context.Context, who *auth.Identity) bool {
	account, err := a.accountOf(ctx, who)
	return err == nil && account.isSpared()
}

// enterOther counts a call of reflection until it ends, or refuses it as one too many.
func (a *admission) enterOther(ctx context.Context) (context.Context, error) {
	if n := a.others.Add(1); n > othersAtOnce {
		a.others.Add(-1)
		return ctx, a.overloaded("calls of this kind under way", n, othersAtOnce)
	}
	line := lineOf(ctx)
	line.begin()
	context.AfterFunc(ctx, func() { // gRPC cancels ctx at the end of the call
		a.others.Add(-1)
		line.end()
	})
	return ctx, nil
}

// await lets in a health check or a watch whose request is still to come, and gives it probeTime. It
// takes no place that others need.
func (a *admission) await(ctx context.Context, who *auth.Identity) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &arrival{admission: a, who: who}
	w.late = time.AfterFunc(probeTime, func() { cancel(context.DeadlineExceeded) })
	line := lineOf(ctx)
	line.begin()
	context.AfterFunc(ctx, func() { // gRPC cancels ctx at the end of the call
		cancel(nil)
		w.late.Stop()
		line.end()
	})
	return context.WithValue(causeContext{ctx}, arrivalKey{}, w)
}

// arrival is a health check or watch whose request is still to come.
type arrival struct {
	admission *admission
	who       *auth.Identity
	late      *time.Timer // ends the call
}

// openWatch counts a watch of the health until its context ends, or refuses it as one too many of the
// daemon or of its identity. Clients that balance load hold one for each of their connections, so there
// may be many.
func (a *admission) openWatch(ctx context.Context, who *auth.Identity) error {
	own := who.Watches()
	if !own.Acquire() {
		a.metrics.Refused("watches", "full")
		return tooMany("watches of the health by "+who.Name(), own.Limit()+1, own.Limit())
	}
	if n, most := a.watches.Add(1), int64(a.limits.Streams); n > most {
		a.watches.Add(-1)
		own.Release()
		a.metrics.Refused("watches", "full")
		return tooMany("watches of the health", n, most)
	}
	context.AfterFunc(ctx, func() { // gRPC cancels ctx at the end of the call
		a.watches.Add(-1)
		own.Release()
	})
	return nil
}

// causeContext returns the cause of its end as its error, which gRPC tells the client.
type causeContext struct{ context.Context }

func (c causeContext) Err() error { return context.Cause(c.Context) }

// arrivalKey is the context key of an arrival.
type arrivalKey struct{}

// overloaded counts a refused call and returns its status, which says when to try again.
func (a *admission) overloaded(what string, n, limit int64) error {
	a.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED), 1)
	return tooMany(what, n, limit)
}

// tooMany returns the status of a call for which there is no room now.
func tooMany(what string, n, limit int64) error {
	f := overLimit(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "", what, n, limit)
	f.retry = retryCall
	return statusOf(f, location{}).Err()
}

// openStream counts a stream, or refuses it as one too many of the daemon or of its identity.
func (a *admission) openStream(who *auth.Identity) error {
	n, limit, what := a.streams.Add(1), int64(a.limits.Streams), "streams"
	if n <= limit {
		if who.Streams().Acquire() {
			return nil
		}
		limit, what = who.Streams().Limit(), "streams of "+who.Name()
		n = limit + 1
	}
	a.streams.Add(-1)
	a.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS), 1)
	f := overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, "stream", what, n, limit)
	f.retry = retryStream
	return statusOf(f, location{}).Err()
}

// closeStream counts the end of a stream.
func (a *admission) closeStream(who *auth.Identity) {
	who.Streams().Release()
	a.streams.Add(-1)
}
