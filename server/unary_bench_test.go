package server

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/rpcmetrics"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// transportStream stands in for the stream of gRPC's transport.
type transportStream struct{}

func (transportStream) Method() string               { return ckdv1.UncertaintyService_Decompose_FullMethodName }
func (transportStream) SetHeader(metadata.MD) error  { return nil }
func (transportStream) SendHeader(metadata.MD) error { return nil }
func (transportStream) SetTrailer(metadata.MD) error { return nil }
func (transportStream) RecvCompress() string         { return "" }

// unaryLoad makes unary calls again and again, as gRPC would without its transport.
type unaryLoad struct {
	server   *Server
	requests []mem.BufferSlice
	next     int // call
	peer     *peer.Peer
	md       metadata.MD
	handler  grpc.MethodHandler
	chain    grpc.UnaryServerInterceptor
}

// newUnaryLoad returns a load of a number of calls under a policy, each with values of its own.
func newUnaryLoad(t testing.TB, p *policy.Policy, of shape, calls int) *unaryLoad {
	t.Helper()
	s, n, k := of.s, of.n, of.k
	log, err := zap.NewProduction()
	if err != nil {
		t.Fatal(err)
	}
	server := newLoadServer(t, p, log)
	l, ids := &unaryLoad{server: server}, make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("input-%02d", i)
	}
	for seed := range calls {
		raw, err := proto.Marshal(&ckdv1.DecomposeRequest{
			Model: "m", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: uint32(s), Inputs: uint32(n),
			InputIds: ids, ValuesLe: softmaxes(uint64(1+seed), s, n, k),
		})
		if err != nil {
			t.Fatal(err)
		}
		l.requests = append(l.requests, mem.BufferSlice{mem.SliceBuffer(raw)})
	}
	conn := &connection{of: connections{stall: DefaultLimits().SendStall}, line: server.budget.open(nil)}
	l.peer = &peer.Peer{Addr: &net.UnixAddr{Name: "@", Net: "unix"}, AuthInfo: tlsfiles.Connected{Conn: conn, AuthInfo: tlsfiles.Plaintext{}}}
	l.md = metadata.MD{":authority": {"x"}, "content-type": {"application/grpc"}, "user-agent": {"grpc-go/1"}}
	for _, m := range service.Methods {
		if m.MethodName == unaryName {
			l.handler = withSlot(m.Handler)
		}
	}
	rpc, err := rpcmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	unary, _ := interceptors(rpc, nil, server.streams.ends, server.admission)
	l.chain = chained(unary)
	return l
}

// chained composes interceptors as gRPC does.
func chained(list []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(list) == 0 {
		return nil
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return list[0](ctx, req, info, next(list, 0, info, handler))
	}
}

// next returns the handler that the interceptor at a place calls.
func next(list []grpc.UnaryServerInterceptor, at int, info *grpc.UnaryServerInfo, final grpc.UnaryHandler) grpc.UnaryHandler {
	if at == len(list)-1 {
		return final
	}
	return func(ctx context.Context, req any) (any, error) {
		return list[at+1](ctx, req, info, next(list, at+1, info, final))
	}
}

// call makes the next call and waits until its slot is given back.
func (l *unaryLoad) call(t testing.TB, tapped bool) {
	l.next++
	request := l.requests[l.next%len(l.requests)]
	ctx, cancel := context.WithCancel(context.Background())
	ctx = peer.NewContext(ctx, l.peer)
	ctx = metadata.NewIncomingContext(ctx, l.md)
	if tapped {
		var err error
		if ctx, err = l.server.admission.tap(ctx, &tap.Info{FullMethodName: ckdv1.UncertaintyService_Decompose_FullMethodName}); err != nil {
			t.Fatal(err)
		}
	}
	ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream{})
	reply, err := l.handler(l.server, ctx, func(to any) error { return (wire.Codec{}).Unmarshal(request, to) }, l.chain)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := (wire.Codec{}).Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	sent.Ref()
	sent.Free()
	sent[0].ReadOnlyData()
	sent.Free()
	cancel()
	for l.server.admission.calls.Load() > 0 {
		runtime.Gosched()
	}
}

// BenchmarkUnary measures a unary call with one input, without gRPC's transport, and what
// admission and the interceptors cost of it.
func BenchmarkUnary(b *testing.B) {
	run := func(name string, tapped bool, change func(l *unaryLoad)) {
		b.Run(name, func(b *testing.B) {
			l := newUnaryLoad(b, loadPolicy(b, 30, 4), shape{30, 1, 4}, 1)
			if change != nil {
				change(l)
			}
			l.call(b, tapped)
			b.ReportAllocs()
			for b.Loop() {
				l.call(b, tapped)
			}
		})
	}
	run("whole", true, nil)
	run("without tap and slot", false, nil)
	run("without interceptors", true, func(l *unaryLoad) { l.chain = nil })
	run("without tap, slot and interceptors", false, func(l *unaryLoad) { l.chain = nil })
}
