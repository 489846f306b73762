package integration_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// idiomatic serves as a daemon of three classes would that is written in the usual way, and has gRPC's
// own options against those who abuse it, and no more.
type idiomatic struct {
	ckdv1.UnimplementedUncertaintyServiceServer
}

// serveIdiomatic serves until the process is killed.
func serveIdiomatic() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer(
		grpc.MaxConcurrentStreams(128),
		grpc.MaxRecvMsgSize(abuseMessage),
		grpc.MaxHeaderListSize(64<<10),
		grpc.StaticStreamWindowSize(64<<10),
		grpc.StaticConnWindowSize(1<<20),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: 5 * time.Minute, MaxConnectionAge: time.Hour,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	ckdv1.RegisterUncertaintyServiceServer(s, idiomatic{})
	healthv1.RegisterHealthServer(s, health.NewServer())
	fmt.Fprintf(os.Stderr, `{"msg":"listening","for":"grpc","address":%q}`+"\n", l.Addr())
	return s.Serve(netutil.LimitListener(l, abuseConnections))
}

// Decompose answers a tensor laid out [inputs][passes][classes].
func (idiomatic) Decompose(_ context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	values := r.GetValues()
	for raw := r.GetValuesLe(); len(raw) >= 4; raw = raw[4:] {
		values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	inputs, each := int(r.GetInputs()), int(r.GetPasses())*3
	if inputs == 0 || len(values) != inputs*each {
		return nil, status.Error(codes.InvalidArgument, "the number of values is not inputs x passes x classes")
	}
	response := &ckdv1.DecomposeResponse{}
	for i := range inputs {
		response.Results = append(response.Results, decomposed(uint32(i), values[i*each:(i+1)*each], 1))
	}
	return response, nil
}

// DecomposeStream answers each block, which has all passes of its inputs.
func (idiomatic) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	for first := true; ; first = false {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		response := &ckdv1.DecomposeStreamResponse{}
		if first {
			response.Info = &ckdv1.StreamInfo{}
		}
		b := message.GetBlock()
		inputs := len(b.GetInputIds())
		if len(b.GetValues()) < inputs*3 {
			return status.Error(codes.InvalidArgument, "too few values")
		}
		for i := range inputs {
			response.Results = append(response.Results, decomposed(uint32(i), b.GetValues()[i*3:], inputs))
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// decomposed decides on the passes of an input, which lie so many rows apart.
func decomposed(row uint32, values []float32, apart int) *ckdv1.Result {
	var mean, square [3]float64
	passes := 0.0
	for ; len(values) >= 3; values = values[min(3*apart, len(values)):] {
		passes++
		for k := range mean {
			v := float64(values[k])
			mean[k] += v
			square[k] += v * v
		}
	}
	d := &ckdv1.Decomposition{Decision: &ckdv1.Decision{Action: ckdv1.Action_ACTION_RETAIN}, Passes: uint32(passes)}
	for k := range mean {
		mean[k] /= passes
		variance := (square[k] - passes*mean[k]*mean[k]) / (passes - 1)
		d.C = append(d.C, 0.5*variance/(mean[k]+1e-10))
		if mean[k] > mean[d.Predicted] {
			d.Predicted = uint32(k)
		}
	}
	if d.Decision.Value = max(d.C[1], d.C[2]); d.Decision.Value > 0.05 {
		d.Decision.Action = ckdv1.Action_ACTION_DEFER
	}
	return &ckdv1.Result{Row: row, Outcome: &ckdv1.Result_Decomposition{Decomposition: d}}
}
