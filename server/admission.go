package server

import (
	"context"
	"strings"

	"google.golang.org/grpc/tap"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// admit lets a call in, or refuses it before any of its request is read: what
// calls that wait for their turn would hold, and how long they would wait, is
// bounded that way. Streams, which take their messages one by one, have a limit
// of their own; health, other probes and reflection have none, so that they
// answer when all else is busy. gRPC calls it for every call of a connection, one after the other.
func (s *Server) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
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
