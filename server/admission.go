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
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ckd-project/ckd/internal/access"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// underWay is how many calls of each sort there are, from before any of their
// request is read.
type underWay struct {
	calls   atomic.Int64 // unary; see place
	unread  atomic.Int64 // replies to unary calls that the transport holds
	streams atomic.Int64 // of passes
	probes  atomic.Int64 // of health, by whomever
	others  atomic.Int64 // what is neither: reflection, channelz

	watches  atomic.Int64 // of health
	arriving atomic.Int64 // watches whose request is still to come
}

// Of what is not the daemon's purpose there is little at one time: who asks for
// health is known to nobody, and all the same its message is read.
const (
	probesAtOnce = 16
	probeTime    = 2 * time.Second
	othersAtOnce = 64
)

// sort of a method.
type sort uint8

const (
	other sort = iota
	probe
	unary
	streaming
	watch
)

// sorts is the sort of every method, by its full name.
func sorts(services map[string]grpc.ServiceInfo) map[string]sort {
	of := map[string]sort{
		healthv1.Health_Check_FullMethodName: probe, healthv1.Health_List_FullMethodName: probe,
		healthv1.Health_Watch_FullMethodName: watch,
	}
	for service, info := range services {
		if strings.HasPrefix(service, "grpc.") {
			continue
		}
		for _, m := range info.Methods {
			s := unary
			switch {
			case m.IsServerStream || m.IsClientStream:
				s = streaming
			case m.Name == "ServerLive" || m.Name == "ServerReady" || m.Name == "ModelReady":
				s = probe // of the Open Inference Protocol
			}
			of["/"+service+"/"+m.Name] = s
		}
	}
	return of
}

// admit lets a call in, or refuses it before any of its request is read: who is not
// known gets no further, and what calls hold that come in or wait for their turn,
// and how long they wait, is bounded. gRPC calls it for every call of a connection,
// one after the other. Streams of passes are counted by openStream.
func (s *Server) admit(ctx context.Context, call *tap.Info) (_ context.Context, err error) {
	who, err := s.access.Tap(ctx, call.FullMethodName)
	if err != nil {
		return ctx, err // which access has told
	}
	defer func() {
		if err != nil {
			s.refusals.Call(who.Name(), reasonOfStatus(status.Convert(err)), zap.String("method", call.FullMethodName))
		}
	}()
	switch s.sorts()[call.FullMethodName] {
	case streaming:
		return ctx, nil
	case probe:
		return s.enter(ctx, &s.probes, probesAtOnce, "probes under way", probeTime)
	case watch:
		return s.openWatch(ctx, who)
	case other:
		return s.enter(ctx, &s.others, othersAtOnce, "calls of this kind under way", 0)
	}
	if !who.UsesModels() {
		return ctx, statusOf(&fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, value: "no model", expected: "an identity that may use models",
			message: "the identity may use no model",
		}, location{}).Err()
	}
	return s.takePlace(ctx, who, s.limits.CallTime)
}

// enter counts a call until it ends, which it does after some time if there is one
// given; or refuses it, where there would be more than most.
func (s *Server) enter(
	ctx context.Context, n *atomic.Int64, most int64, what string, limit time.Duration,
) (context.Context, error) {
	if is := n.Add(1); is > most {
		n.Add(-1)
		return ctx, s.overloaded(what, is, most)
	}
	cancel := context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	context.AfterFunc(ctx, func() { // gRPC ends it with the call
		cancel()
		n.Add(-1)
	})
	return ctx, nil
}

// openWatch counts a watch of the health until it ends, or refuses it as one too many
// of the daemon's or of its identity. A client that balances holds one for each of
// its connections, so that there may be many; few of them may wait for their request
// at one time, and not for long, as a request can be as large as any message.
func (s *Server) openWatch(ctx context.Context, who *access.Identity) (context.Context, error) {
	refused := func(what string, n, limit int64) (context.Context, error) {
		s.metrics.WatchRefused()
		return ctx, tooMany(what, n, limit)
	}
	if !who.AcquireWatch() {
		return refused("watches of the health by "+who.Name(), int64(who.Watches())+1, int64(who.Watches()))
	}
	if n, most := s.watches.Add(1), int64(s.limits.Watches); n > most {
		s.watches.Add(-1)
		who.ReleaseWatch()
		return refused("watches of the health", n, most)
	}
	if n, most := s.arriving.Add(1), int64(s.limits.Calls); n > most {
		s.arriving.Add(-1)
		s.watches.Add(-1)
		who.ReleaseWatch()
		return refused("watches of the health whose request is still to come", n, most)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a := &arrival{ended: sync.OnceFunc(func() { s.arriving.Add(-1) })}
	a.late = time.AfterFunc(probeTime, func() { cancel(context.DeadlineExceeded) })
	context.AfterFunc(ctx, func() { // gRPC ends it with the call
		cancel(nil)
		a.late.Stop()
		a.ended()
		s.watches.Add(-1)
		who.ReleaseWatch()
	})
	return context.WithValue(causeContext{ctx}, arrivalKey{}, a), nil
}

// arrival is a watch whose request is still to come.
type arrival struct {
	late  *time.Timer // ends the watch
	ended func()
}

// causeContext has the cause of its end as its error, which gRPC tells the client.
type causeContext struct{ context.Context }

func (c causeContext) Err() error { return context.Cause(c.Context) }

// arrivalKey is the context's key of the arrival.
type arrivalKey struct{}

// arriveStream ends the arrival of a watch when its request is there.
func arriveStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if a, ok := stream.Context().Value(arrivalKey{}).(*arrival); ok {
		stream = &arrivingStream{stream, a}
	}
	return handler(srv, stream)
}

type arrivingStream struct {
	grpc.ServerStream
	arrival *arrival
}

// RecvMsg receives the request, which is the only message of a watch.
func (s *arrivingStream) RecvMsg(to any) error {
	err := s.ServerStream.RecvMsg(to)
	s.arrival.late.Stop()
	s.arrival.ended()
	return err
}

// overloaded refuses a call, and says when to try again.
func (s *Server) overloaded(what string, n, limit int64) error {
	s.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED), 1)
	return tooMany(what, n, limit)
}

// tooMany is the status of a call for which there is no room now.
func tooMany(what string, n, limit int64) error {
	f := overLimit(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "", what, n, limit)
	f.retry = retryCall
	return statusOf(f, location{}).Err()
}

// openStream counts a stream in, or refuses it, as one too many of the daemon's or
// of who opens it.
func (s *Server) openStream(who *access.Identity) error {
	n, limit, what := s.streams.Add(1), int64(s.limits.Streams), "streams"
	if n <= limit {
		if who.AcquireStream() {
			return nil
		}
		limit, what = int64(who.Streams()), "streams of "+who.Name()
		n = limit + 1
	}
	s.streams.Add(-1)
	s.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS), 1)
	f := overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, "stream", what, n, limit)
	f.retry = retryStream
	return statusOf(f, location{}).Err()
}

func (s *Server) closeStream(who *access.Identity) {
	who.ReleaseStream()
	s.streams.Add(-1)
}
