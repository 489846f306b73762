package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// The servers beside ckd. All answer on ckd's own method paths.
const (
	kindEcho        = "echo"                           // hands the buffers received back
	kindSink        = "sink"                           // answers what it was told to, without looking
	kindIdiomatic   = "idiomatic"                      // the daemon as one would first write it
	kindObserving   = "idiomatic+metrics"              // the same, with metrics of what it decides
	kindIntercepted = "idiomatic+metrics+interceptors" // the same, with ckd's interceptors too, as one would first write them
)

// methodReply tells a sink what to answer: a little-endian uint32, after how many messages, and
// then the answer.
const methodReply = "/ckd.v1.UncertaintyService/BenchReply"

// readBuffer is the read buffer of the servers that pass buffers through, which suits large
// messages.
const readBuffer = 128 << 10

// serverRole serves on a unix socket until standard input ends.
func serverRole(kind, socket string) error {
	s, err := newServer(kind)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the process that started this one
		s.Stop()
	}()
	return s.Serve(l)
}

func newServer(kind string) (*grpc.Server, error) {
	raw := []grpc.ServerOption{grpc.ForceServerCodecV2(rawCodec{}), grpc.ReadBufferSize(readBuffer)}
	switch kind {
	case kindEcho:
		s := grpc.NewServer(raw...)
		register(s, echoStream, func(decode func(any) error) (any, error) {
			f := &frame{}
			return f, decode(f)
		})
		return s, nil
	case kindSink:
		s, k := grpc.NewServer(raw...), &sink{}
		register(s, k.stream, k.unary, grpc.MethodDesc{MethodName: "BenchReply", Handler: unaryHandler(k.tell)})
		return s, nil
	case kindIdiomatic, kindObserving:
		s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
		ckdv1.RegisterUncertaintyServiceServer(s, newIdiomatic(kind == kindObserving))
		return s, nil
	case kindIntercepted:
		options, err := commonInterceptors()
		if err != nil {
			return nil, err
		}
		s := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxMessage))...)
		ckdv1.RegisterUncertaintyServiceServer(s, newIdiomatic(true))
		return s, nil
	}
	return nil, fmt.Errorf("server %q: expected %s, %s, %s, %s or %s",
		kind, kindEcho, kindSink, kindIdiomatic, kindObserving, kindIntercepted)
}

// register serves a stream and a unary method under the names of ckd's.
func register(
	s *grpc.Server, stream func(grpc.ServerStream) error, unary func(decode func(any) error) (any, error),
	more ...grpc.MethodDesc,
) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ckdv1.UncertaintyService_ServiceDesc.ServiceName,
		Streams: []grpc.StreamDesc{{
			StreamName: "DecomposeStream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return stream(s) },
		}},
		Methods: append(more, grpc.MethodDesc{MethodName: "Decompose", Handler: unaryHandler(unary)}),
	}, nil)
}

func unaryHandler(unary func(decode func(any) error) (any, error)) grpc.MethodHandler {
	return func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		return unary(decode)
	}
}

func echoStream(s grpc.ServerStream) error {
	var f frame
	for {
		if err := s.RecvMsg(&f); err != nil {
			return unlessEnded(err)
		}
		if err := s.SendMsg(&f); err != nil {
			return err
		}
	}
}

// sink answers the header, and then once for a fixed number of messages.
type sink struct{ answer atomic.Pointer[answer] }

type answer struct {
	every int
	reply []byte
}

func (k *sink) tell(decode func(any) error) (any, error) {
	var f frame
	if err := decode(&f); err != nil {
		return nil, err
	}
	defer f.data.Free()
	told := f.data.Materialize()
	if len(told) < 4 {
		return nil, fmt.Errorf("%d bytes, expected 4 or more", len(told))
	}
	k.answer.Store(&answer{int(binary.LittleEndian.Uint32(told)), told[4:]})
	return newFrame(nil), nil
}

func (k *sink) unary(decode func(any) error) (any, error) {
	var f frame
	if err := decode(&f); err != nil {
		return nil, err
	}
	f.data.Free()
	return newFrame(k.answer.Load().reply), nil
}

func (k *sink) stream(s grpc.ServerStream) error {
	a := k.answer.Load()
	if a == nil {
		return errors.New("the sink was not told what to answer")
	}
	var f frame
	reply := mem.BufferSlice{mem.SliceBuffer(a.reply)}
	for n := 0; ; n++ {
		if err := s.RecvMsg(&f); err != nil {
			return unlessEnded(err)
		}
		f.data.Free()
		if n%a.every != 0 {
			continue
		}
		f.data = reply
		if err := s.SendMsg(&f); err != nil {
			return err
		}
	}
}

func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
