package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// registrar registers services at a gRPC server. A unary call that tap has refused ends at once, as
// beginStream ends streams; any other keeps its slot until its reply is sent, and its message is decoded
// here. A message that does not decode, or would take far more memory than its bytes, is then the
// client's fault; gRPC itself would say INTERNAL, or accept it.
type registrar struct{ *grpc.Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(of *grpc.ServiceDesc, implementation any) {
	d := *of
	d.Methods = slices.Clone(d.Methods)
	for i, m := range d.Methods {
		handler := m.Handler
		if of != &service || m.MethodName != unaryName { // which decodes its message by itself
			handler = func(srv any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				return m.Handler(srv, ctx, func(to any) error { return receive(ctx, read, to) }, intercept)
			}
		}
		d.Methods[i].Handler = withSlot(handler)
	}
	r.Server.RegisterService(&d, implementation)
}

// compressionOf returns how the messages of a call are compressed; empty for not at all.
func compressionOf(ctx context.Context) string {
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); ok {
		return s.RecvCompress()
	}
	return ""
}

// errNoRoom is why a compressed message was not unpacked to its end.
var errNoRoom = statusOf(&fault{
	reason: ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, retry: retryBudget, message: "there is no room to unpack a compressed message",
	value: "a compressed message", expected: "a later attempt, or an uncompressed message",
}, location{}).Err()

// take receives a message of a call with read. A message that is too large, or was not unpacked for lack of
// room, is an error.
func take(ctx context.Context, read func(any) error, into *wire.Incoming) error {
	if err := read(into); err != nil {
		return err
	}
	if c := callOf(ctx); c != nil && c.conn != nil {
		c.conn.line.handed(into.Size())
	}
	if err := into.Oversize(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error()) // no details, as from gRPC itself: clients look for none
	}
	if into.Cut() {
		return errNoRoom
	}
	return nil
}

// receive reads and decodes a message.
func receive(ctx context.Context, read func(any) error, to any) error {
	var in wire.Incoming
	defer in.Free()
	if err := take(ctx, read, &in); err != nil {
		return err
	}
	if err := in.Message(to.(proto.Message)); err != nil {
		return undecodable(err)
	}
	return nil
}

// undecodable returns the status of bytes that are no message.
func undecodable(err error) error {
	return status.Error(codes.InvalidArgument, "a message does not decode: "+clip(err.Error()))
}
