package main

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// kindSink is a server that looks at nothing: what it costs is the transport.
const kindSink = "sink"

// Metadata that tells a sink how long its replies are, and how many messages make a group.
const (
	keyReplyBytes = "bench-reply-bytes"
	keyMessages   = "bench-messages"
)

// unread takes a received message whose bytes nothing looks at.
type unread struct{}

// newSink returns a server that answers each group by as many bytes as it was told.
func newSink() *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.ReadBufferSize(128<<10))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ckdv1.UncertaintyService_ServiceDesc.ServiceName,
		Streams: []grpc.StreamDesc{{
			StreamName: "DecomposeStream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return sinkStream(s) },
		}},
		Methods: []grpc.MethodDesc{{
			MethodName: "Decompose",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				bytes, err := told(ctx, keyReplyBytes)
				if err != nil {
					return nil, err
				}
				return make([]byte, bytes), decode(&unread{})
			},
		}},
	}, nil)
	return s
}

// sinkStream answers the header, and then the last message of each group.
func sinkStream(s grpc.ServerStream) error {
	bytes, err := told(s.Context(), keyReplyBytes)
	if err != nil {
		return err
	}
	messages, err := told(s.Context(), keyMessages)
	if err != nil {
		return err
	}
	reply := make([]byte, bytes)
	for n := 0; ; n++ {
		if err := s.RecvMsg(&unread{}); err != nil {
			return unlessEnded(err)
		}
		if n%messages != 0 {
			continue
		}
		if err := s.SendMsg(reply); err != nil {
			return err
		}
	}
}

// told returns a number of a call's metadata.
func told(ctx context.Context, key string) (int, error) {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) != 1 {
		return 0, fmt.Errorf("metadata %q: %d values, expected 1", key, len(values))
	}
	return strconv.Atoi(values[0])
}
