package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestRepliesOverTheTransport runs many streams over a real server, with clients that read slowly,
// give up in the middle, or use gzip. Every reply states its own expected content, so that memory
// reused too early is noticed.
func TestRepliesOverTheTransport(t *testing.T) {
	conn := serve(t)
	client := ckdv1.NewUncertaintyServiceClient(conn)
	var group errgroup.Group
	for worker := range 12 {
		group.Go(func() error {
			for round := range 2 {
				if err := exchange(client, uint64(worker), worker%4 == 1, worker%4 == 2); err != nil {
					return fmt.Errorf("worker %d, round %d: %w", worker, round, err)
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for n := range uint32(200) {
			reply, err := client.Decompose(t.Context(), &ckdv1.DecomposeRequest{Inputs: n % 50, InputIds: []string{"id"}, ValuesLe: make([]byte, 1000)})
			if err != nil {
				return err
			}
			if err := checkPattern(reply.GetResults(), int(n%50)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	// The others go the standard way.
	if reply, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil ||
		reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", reply, err)
	}
}

// exchange asks for replies of random sizes, and reads them.
func exchange(client ckdv1.UncertaintyServiceClient, worker uint64, giveUp, compress bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var options []grpc.CallOption
	if compress {
		options = append(options, grpc.UseCompressor(gzip.Name))
	}
	stream, err := client.DecomposeStream(ctx, options...)
	if err != nil {
		return err
	}
	const messages = 100
	random := rand.New(rand.NewPCG(worker, 2))
	wants := make([]uint32, messages)
	for i := range wants {
		wants[i] = random.Uint32N([]uint32{2, 30, 800}[random.IntN(3)])
	}
	var sender errgroup.Group
	sender.Go(func() error {
		for _, n := range wants {
			values := make([]float32, n)
			for i := range values {
				values[i] = float32(i)
			}
			b := &ckdv1.Block{Group: worker<<32 | uint64(n), Passes: n, InputIds: []string{"id"}, Values: values}
			if err := stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}); err != nil {
				return nil // the receiver has the reason
			}
		}
		return stream.CloseSend()
	})
	for i := 0; ; i++ {
		if i%16 == 0 {
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		if giveUp && i == messages/3 {
			cancel()
			return sender.Wait()
		}
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if i != messages {
				return fmt.Errorf("%d replies, want %d", i, messages)
			}
			return sender.Wait()
		}
		if err != nil {
			return err
		}
		if err := checkPattern(reply.GetResults(), int(wants[i])); err != nil {
			return fmt.Errorf("reply %d: %w", i, err)
		}
		for _, r := range reply.GetResults() {
			if r.GetGroup() != worker<<32|uint64(wants[i]) {
				return fmt.Errorf("reply %d is of group %d", i, r.GetGroup())
			}
		}
	}
}

// pattern appends n results that follow from their group and row.
func pattern(o *Outgoing, group uint64, n int) {
	c := make([]float64, 5)
	for row := range n {
		for k := range c {
			c[k] = float64(group%1e9) + float64(row*k)
		}
		d := Decomposition{Predicted: uint32(row), Vectors: true, C: c, DecidingClass: -1, Dominant: -1}
		o.Result(fmt.Append(nil, group, "/", row), group, uint32(row), 0, &d)
	}
}

func checkPattern(results []*ckdv1.Result, n int) error {
	if len(results) != n {
		return fmt.Errorf("%d results, want %d", len(results), n)
	}
	for row, r := range results {
		d := r.GetDecomposition()
		if r.GetInputId() != fmt.Sprint(r.GetGroup(), "/", row) || r.GetRow() != uint32(row) || d.GetPredicted() != uint32(row) || len(d.GetC()) != 5 {
			return fmt.Errorf("result %d is %v", row, r)
		}
		for k, c := range d.GetC() {
			if c != float64(r.GetGroup()%1e9)+float64(row*k) {
				return fmt.Errorf("result %d: c[%d] is %v", row, k, c)
			}
		}
	}
	return nil
}

// serve starts a server that answers a block or a request with a pattern of bytes.
func serve(t *testing.T) *grpc.ClientConn {
	server := grpc.NewServer(grpc.ForceServerCodecV2(Codec{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: ckdv1.UncertaintyService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "DecomposeStream", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return answer(stream) },
		}},
		Methods: []grpc.MethodDesc{{MethodName: "Decompose", Handler: answerUnary}},
	}, nil)
	healthpb.RegisterHealthServer(server, health.NewServer())
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func answer(stream grpc.ServerStream) error {
	var in Incoming
	defer in.Free()
	var request StreamRequest
	out := NewOutgoing(Stream)
	for {
		if err := stream.RecvMsg(&in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := request.Decode(&in); err != nil {
			return err
		}
		b := request.Block
		if b.Values.Len() != int(b.Passes) || b.IDs.Len() != 1 || string(b.IDs.At(0)) != "id" {
			return status.Errorf(codes.DataLoss, "%d values, %d ids", b.Values.Len(), b.IDs.Len())
		}
		var next [1]float32
		for i := range b.Passes {
			if b.Values.Next(next[:]); next[0] != float32(i) {
				return status.Errorf(codes.DataLoss, "value %d is %v", i, next[0])
			}
		}
		out.Begin(Stream)
		pattern(out, b.Group, int(b.Passes))
		if err := stream.SendMsg(out); err != nil {
			return err
		}
	}
}

//nolint:revive // the order is gRPC's
func answerUnary(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var in Incoming
	defer in.Free()
	var request UnaryRequest
	if err := errors.Join(decode(&in), request.Decode(&in)); err != nil {
		return nil, err
	}
	if request.IDs.Len() != 1 || request.Values.Bytes() != 1000 {
		return nil, status.Error(codes.DataLoss, "not what was sent")
	}
	out := NewOutgoing(Unary)
	pattern(out, math.MaxUint64, int(request.Inputs))
	return out, nil
}

// countingPool counts what was given back.
type countingPool struct {
	mem.NopBufferPool
	returned int
}

func (p *countingPool) Put(*[]byte) { p.returned++ }

func TestIncomingHoldsBuffersUntilFreed(t *testing.T) {
	var first, second countingPool
	receive := func(pool *countingPool, in *Incoming) {
		b := make([]byte, 2000)
		data := mem.BufferSlice{mem.NewBuffer(&b, pool)}
		if err := (Codec{}).Unmarshal(data, in); err != nil {
			t.Fatal(err)
		}
		data.Free() // as gRPC does
	}
	expect := func(when string, wantFirst, wantSecond int) {
		t.Helper()
		if first.returned != wantFirst || second.returned != wantSecond {
			t.Errorf("%s: %d and %d were returned, want %d and %d", when, first.returned, second.returned, wantFirst, wantSecond)
		}
	}
	var in Incoming
	in.Free()
	receive(&first, &in)
	expect("after the first", 0, 0)
	receive(&second, &in)
	expect("after the second", 1, 0)
	if in.size != 2000 {
		t.Errorf("length %d", in.size)
	}
	in.Free()
	in.Free()
	expect("when freed", 1, 1)
	if in.size != 0 {
		t.Errorf("length %d when freed", in.size)
	}
}

// TestValuesAfterFreePanic checks that values used after their message was freed panic instead of
// reading the next message's buffers.
func TestValuesAfterFreePanic(t *testing.T) {
	in := received(encoded(&ckdv1.DecomposeRequest{Values: []float32{1, 2}}), 0)
	var r UnaryRequest
	if err := r.Decode(in); err != nil {
		t.Fatal(err)
	}
	in.Free()
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "out of range") {
			t.Errorf("recovered %v", p)
		}
	}()
	r.Values.Next(make([]float32, 1))
}

// TestMessagesFormatAsNothing checks that messages format as nothing: tracing formats them later,
// when their memory belongs to another message.
func TestMessagesFormatAsNothing(t *testing.T) {
	out := NewOutgoing(Stream)
	out.Result([]byte("secret"), 1, 2, 3, &Decomposition{})
	if s := fmt.Sprintf("%v %v", out, received([]byte("secret"), 0)); s != "outgoing message incoming message" {
		t.Errorf("got %q", s)
	}
}
