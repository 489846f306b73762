package wire

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

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
