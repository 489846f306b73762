package wire

import (
	"testing"

	"google.golang.org/grpc/mem"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// following is a Sending that counts its calls.
type following struct {
	begun, moved, ended int
	gone                bool
}

func (f *following) Begin(int64) { f.begun++ }
func (f *following) Moved()      { f.moved++ }
func (f *following) Gone() bool  { return f.gone }
func (f *following) End(int64)   { f.ended++ }

// TestTrackedReplies handles replies as the transport does: a reply ends with its last reference,
// or at once if its stream was closed while it was handed over.
func TestTrackedReplies(t *testing.T) {
	built := func() any {
		out := NewOutgoing(Unary)
		out.Result([]byte("id"), 0, 0, 0, &Decomposition{})
		return out
	}
	for name, reply := range map[string]func() any{
		"hot":   built,
		"small": func() any { return &ckdv1.GetModelRequest{Model: "m"} },
		"empty": func() any { return &ckdv1.ListModelsRequest{} },
	} {
		t.Run(name, func(t *testing.T) {
			expect := func(when string, f *following, ended bool) {
				t.Helper()
				if (f.ended > 0) != ended || f.begun != 1 {
					t.Errorf("%s: begun %d times, ended %d times, want it ended: %t", when, f.begun, f.ended, ended)
				}
			}
			hand := func() (*following, mem.BufferSlice) {
				f := &following{}
				data, err := Codec{}.Marshal(Track(reply(), f))
				if err != nil {
					t.Fatal(err)
				}
				data.Ref() // the transport's
				return f, data
			}

			sent, data := hand()
			data.Free() // SendMsg's
			sent.gone = true
			reader := data.Reader()
			data.Free() // the writer's, which has the reader's now
			expect("answered, and not read", sent, false)
			if n := reader.Remaining(); n > 0 {
				if _, err := reader.Discard(n); err != nil {
					t.Fatal(err)
				}
				if sent.moved == 0 {
					t.Error("it has not moved")
				}
			}
			if err := reader.Close(); err != nil {
				t.Fatal(err)
			}
			expect("read", sent, true)

			dropped, data := hand()
			dropped.gone = true
			data.Free() // SendMsg's; the transport's never comes
			expect("closed while it was handed over", dropped, true)
		})
	}
}
