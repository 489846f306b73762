package server

import (
	"context"
	"strings"

	"google.golang.org/grpc/tap"

	"github.com/ckd-project/ckd/internal/access"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// admit lets a call in, or refuses it before any of its request is read: who is
// not known does not get further. What
// calls that wait for their turn would hold, and how long they would wait, is
// bounded that way. Streams, which take their messages one by one, have a limit
// of their own; health, other probes and reflection have none, so that they
// answer when all else is busy. gRPC calls it for every call of a connection, one after the other.
func (s *Server) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	if ctx, err := s.access.Tap(ctx, call); err != nil {
		return ctx, err
	}
	if !s.unaryMethods()[call.FullMethodName] {
		return ctx, nil
	}
	if n, limit := s.calls.Add(1), int64(s.limits.Calls); n > limit {
		s.calls.Add(-1)
		s.metrics.RejectedUnknownModel(reasonWord(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED), 1)
		f := overLimit(ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "", "calls under way", n, limit)
		f.retry = retryCall
		return ctx, statusOf(f, location{}).Err()
	}
	context.AfterFunc(ctx, func() { s.calls.Add(-1) }) // gRPC ends it with the call
	return ctx, nil
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

// unary is the full names of the unary methods that are the daemon's purpose.
func (s *Server) unary() map[string]bool {
	names := map[string]bool{}
	for service, info := range s.grpc.GetServiceInfo() {
		if strings.HasPrefix(service, "grpc.") {
			continue
		}
		for _, m := range info.Methods {
			if !m.IsServerStream && !m.IsClientStream && !probes[m.Name] {
				names["/"+service+"/"+m.Name] = true
			}
		}
	}
	return names
}

// probes are the methods by which the Open Inference Protocol asks for health.
var probes = map[string]bool{"ServerLive": true, "ServerReady": true, "ModelReady": true}
