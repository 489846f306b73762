package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// openStream opens a stream and reads the first reply, which describes the limits.
func openStream(ctx context.Context, conn *grpc.ClientConn) (ckdv1.UncertaintyService_DecomposeStreamClient, error) {
	stream, err := ckdv1.NewUncertaintyServiceClient(conn).DecomposeStream(ctx)
	if err != nil {
		return nil, err
	}
	header := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{
		Model: "fetal-health", Detail: ckdv1.Detail_DETAIL_FULL,
	}}}
	if err := stream.Send(header); err != nil && !errors.Is(err, io.EOF) { // Recv tells why a stream has ended already
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

// further returns one more pass of a group that block opened.
func further(group uint64, inputs int, final bool) *ckdv1.DecomposeStreamRequest {
	m := block(group, inputs, 1, final)
	m.GetBlock().InputIds = nil
	return m
}

// block returns a message that opens a group of inputs with some passes. A final block closes it
// too.
func block(group uint64, inputs, passes int, final bool) *ckdv1.DecomposeStreamRequest {
	values := make([]float32, 0, inputs*passes*3)
	for s := range passes {
		for range inputs {
			p := 0.1 + 0.8*float32(s)/float32(passes)
			values = append(values, p, (1-p)/2, (1-p)/2)
		}
	}
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{
		Group: group, InputIds: make([]string, inputs), Passes: uint32(passes), Values: values, Final: final,
	}}}
}

// streamOf returns the header of a stream.
func streamOf(model string) *ckdv1.DecomposeStreamRequest {
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: model}}}
}

// guestInputs is the number of open inputs on each stream of a guest.
const guestInputs = 4

// guest holds a stream with open inputs.
type guest struct {
	stream ckdv1.UncertaintyService_DecomposeStreamClient
}

// arrive opens the stream of a guest. The token may be empty.
func arrive(t *testing.T, conn *grpc.ClientConn, token string) *guest {
	t.Helper()
	ctx := inTime(t)
	if token != "" {
		ctx = bearer(t, token)
	}
	stream, err := openStream(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{stream}
	g.send(t, block(1, guestInputs, 5, false))
	return g
}

// send sends a message.
func (g *guest) send(t *testing.T, m *ckdv1.DecomposeStreamRequest) {
	t.Helper()
	if err := g.stream.Send(m); err != nil {
		t.Fatal(err)
	}
}

// receive waits for a message. The error is nil where all inputs are answered.
func (g *guest) receive() error {
	m, err := g.stream.Recv()
	if err == nil && len(m.GetResults()) != guestInputs {
		err = fmt.Errorf("received %v", m)
	}
	return err
}

// modelsOf returns the names that ListModels answers with.
func modelsOf(ctx context.Context, conn *grpc.ClientConn) ([]string, error) {
	r, err := ckdv1.NewUncertaintyServiceClient(conn).ListModels(ctx, &ckdv1.ListModelsRequest{})
	var names []string
	for _, m := range r.GetModels() {
		names = append(names, m.GetPolicy().GetModel())
	}
	return names, err
}

// tryStream opens a stream, abandons it and returns the error of opening it.
func tryStream(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := openStream(ctx, conn)
	return err
}

// isRefusal reports whether err has this code and reason.
func isRefusal(err error, code codes.Code, reason ckdv1.ErrorReason) bool {
	return status.Code(err) == code && client.Reason(err) == reason
}
