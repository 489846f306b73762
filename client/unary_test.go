package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// However a batch is laid out and cut into calls, each input is answered on its
// own passes, and in its place.
func TestDecomposeAnyShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "inputs")
		passes := rapid.IntRange(2, 5).Draw(rt, "passes")
		classes := rapid.IntRange(2, 6).Draw(rt, "classes")
		perCall := rapid.IntRange(0, n).Draw(rt, "per call")
		f := newFake(0)
		// The header of the call and one input fit always.
		f.info.Limits.MessageBytes = uint32(rapid.IntRange(300+4*passes*classes, 2000).Draw(rt, "message bytes"))
		c, stop := f.start(client.WithMessageBytes(int(f.info.Limits.MessageBytes)))
		defer stop()

		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		b := client.Batch{Model: model, Detail: client.Vectors, Passes: passes, Inputs: n, PerCall: perCall,
			Layout: rapid.SampledFrom([]ckdv1.Layout{client.SNK, client.NSK}).Draw(rt, "layout"),
			Values: make([]float32, passes*n*classes)}
		if rapid.Bool().Draw(rt, "with ids") {
			for i := range n {
				b.IDs = append(b.IDs, strings.Repeat("i", i%30))
			}
		}
		want := make([][][]float32, n)
		for i := range n {
			for p := range passes {
				at := (p*n + i) * classes
				if b.Layout == client.NSK {
					at = (i*passes + p) * classes
				}
				row := b.Values[at : at+classes]
				for c := range row {
					row[c] = random.Float32()
				}
				want[i] = append(want[i], row)
			}
		}
		results, err := c.Decompose(context.Background(), b)
		if err != nil || len(results) != n {
			rt.Fatalf("%d results, expected %d, error %v", len(results), n, err)
		}
		for i, r := range results {
			id := ""
			if b.IDs != nil {
				id = b.IDs[i]
			}
			if r.Row != i || r.ID != id || r.Err != nil || r.Policy == nil ||
				!slices.Equal(r.Decomposition.GetMean(), means(want[i])) {
				rt.Fatalf("result %+v, expected row %d, id %q, means %v", r, i, id, means(want[i]))
			}
		}
		if len(f.faults) > 0 {
			rt.Fatal(f.faults)
		}
	})
}

func TestDecomposeCalls(t *testing.T) {
	f := newFake(0)
	c, stop := f.start()
	defer stop()
	// 1000 inputs of 30 passes and 30 classes are 3600 bytes each: 4 MiB hold 1165.
	b := client.Batch{Model: model, Layout: client.NSK, Passes: 30, Inputs: 1300, Values: make([]float32, 1300*900)}
	results, err := c.Decompose(t.Context(), b)
	if err != nil || len(results) != 1300 {
		t.Fatalf("%d results, error %v", len(results), err)
	}
	b.PerCall = 500
	_, err = c.Decompose(t.Context(), b)
	ok(t, err)
	if results, err := c.Decompose(t.Context(), client.Batch{Layout: client.SNK, Passes: 2}); err != nil || len(results) != 0 {
		t.Errorf("no inputs: %d results, error %v", len(results), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := []int{1165, 135, 500, 500, 300}; !slices.Equal(f.calls, want) {
		t.Errorf("calls of %v inputs, expected %v", f.calls, want)
	}
}

func TestDecomposeFails(t *testing.T) {
	good := client.Batch{Model: model, Layout: client.SNK, Passes: 2, Inputs: 2, PerCall: 1, Values: make([]float32, 12)}
	type response = ckdv1.DecomposeResponse
	second := func(do func(*response) error) func(*response) (*response, error) {
		calls := 0
		return func(r *response) (*response, error) {
			calls++
			if calls == 2 {
				return r, do(r)
			}
			return r, nil
		}
	}
	full := fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, "too much", nil)
	for _, c := range []struct {
		name   string
		change func(*client.Batch)
		unary  func(*response) (*response, error)
		want   string
		code   codes.Code
		reason ckdv1.ErrorReason
	}{
		{name: "status", unary: second(func(*response) error { return full.Err() }), want: "decompose inputs 1 to 1 of 2",
			code: codes.ResourceExhausted, reason: ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE},
		{name: "too few results", unary: second(func(r *response) error { r.Results = nil; return nil }),
			want: "0 results, expected 1", code: codes.Internal},
		{name: "wrong row", unary: second(func(r *response) error { r.Results[0].Row = 1; return nil }),
			want: "result 0 is for row 1", code: codes.Internal},
		{name: "no outcome", unary: second(func(r *response) error { r.Results[0].Outcome = nil; return nil }),
			want: "neither a decomposition nor an error", code: codes.Internal},
		{name: "no policy", unary: second(func(r *response) error { r.Policy = nil; return nil }),
			want: "policy 0 of 0", code: codes.Internal},
		{name: "wrong id", unary: second(func(r *response) error { r.Results[0].InputId = "x"; return nil }),
			want: `answered as input "x"`, code: codes.Internal},
		{name: "no layout", change: func(b *client.Batch) { b.Layout = 0 }, want: "expected SNK or NSK", code: codes.Unknown},
		{name: "no passes", change: func(b *client.Batch) { b.Passes = 0 }, want: "2 inputs of 0 passes", code: codes.Unknown},
		{name: "negative", change: func(b *client.Batch) { b.Inputs = -1 }, want: "-1 inputs", code: codes.Unknown},
		{name: "ids", change: func(b *client.Batch) { b.IDs = []string{"a"} }, want: "1 ids, expected none or one for each of 2",
			code: codes.Unknown},
		{name: "length", change: func(b *client.Batch) { b.Values = b.Values[:11] },
			want: "11 values, expected a multiple of 2 passes x 2 inputs", code: codes.Unknown},
		{name: "no values", change: func(b *client.Batch) { b.Values = nil }, want: "0 values", code: codes.Unknown},
		{name: "values without inputs", change: func(b *client.Batch) { b.Inputs = 0 }, want: "12 values", code: codes.Unknown},
		{name: "overflow", change: func(b *client.Batch) { b.Inputs, b.Passes = math.MaxInt, math.MaxInt }, want: "12 values", code: codes.Unknown},
		{name: "one input too large", change: func(b *client.Batch) {
			b.Inputs, b.Passes, b.Values = 1, 1<<20, make([]float32, 2<<20)
		}, want: "input 0 takes a message of 83887", code: codes.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(0)
			f.unary = c.unary
			cl, stop := f.start()
			defer stop()
			b := good
			if c.change != nil {
				c.change(&b)
			}
			results, err := cl.Decompose(t.Context(), b)
			if err == nil || results != nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%d results, error %v, expected none and %q", len(results), err, c.want)
			}
			if status.Code(err) != c.code || client.Reason(err) != c.reason {
				t.Errorf("error %v, expected code %v and reason %v", err, c.code, c.reason)
			}
			var broken *client.ProtocolError
			if errors.As(err, &broken) != (c.code == codes.Internal) {
				t.Errorf("error %v is of the wrong type", err)
			}
		})
	}
}

func TestDecomposeInputErrors(t *testing.T) {
	f := newFake(0)
	f.unary = func(r *ckdv1.DecomposeResponse) (*ckdv1.DecomposeResponse, error) {
		r.Results[1].Outcome = &ckdv1.Result_Error{Error: fail(codes.InvalidArgument,
			ckdv1.ErrorReason_ERROR_REASON_NEGATIVE, "pass 0: class 1 is -1, expected 0 to 1", nil).Proto()}
		return r, nil
	}
	c, stop := f.start()
	defer stop()
	results, err := c.Decompose(t.Context(), client.Batch{Model: model, Layout: client.NSK, Passes: 2, Inputs: 2,
		Values: make([]float32, 12)})
	ok(t, err)
	if !results[0].Retained() {
		t.Errorf("result %+v, expected it retained", results[0])
	}
	if e := inputError(t, results[1]); e.Reason != ckdv1.ErrorReason_ERROR_REASON_NEGATIVE || e.Unanswered {
		t.Errorf("error %v, expected reason NEGATIVE", e)
	}
}

// The posterior is stated by every stream, and by every call of a batch.
func TestPosteriorIsStated(t *testing.T) {
	f := newFake(2)
	s := f.session(t, client.SessionConfig{Posterior: "ensemble"})
	batch := client.Batch{Model: model, Posterior: "mc-dropout", Layout: client.SNK, Passes: 2, Inputs: 2, PerCall: 1, Values: make([]float32, 12)}
	_, err := f.client.Decompose(t.Context(), batch)
	ok(t, err)
	ok(t, s.Close())
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := []string{"ensemble", "mc-dropout", "mc-dropout"}; !slices.Equal(f.posteriors, want) {
		t.Errorf("posteriors %q, expected %q", f.posteriors, want)
	}
}

func TestModels(t *testing.T) {
	f := newFake(0)
	c, stop := f.start()
	defer stop()
	models, err := c.Models(t.Context())
	if err != nil || len(models) != 1 || models[0].GetPolicy().GetModel() != model {
		t.Errorf("models %v, error %v", models, err)
	}
	if m, err := c.Model(t.Context(), model); err != nil || m.GetPolicy().GetHash() != "abc" {
		t.Errorf("model %v, error %v", m, err)
	}
	m, err := c.Model(t.Context(), "other")
	if m != nil || client.Reason(err) != ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL {
		t.Errorf("model %v, error %v, expected UNKNOWN_MODEL", m, err)
	}
}

func ExampleClient_Decompose() {
	daemon := newFake(0)
	c, stop := daemon.start() // elsewhere: client.Dial("localhost:9090")
	defer stop()

	results, err := c.Decompose(context.Background(), client.Batch{
		Model:  "fetal-health",
		Layout: client.NSK,
		Passes: 2,
		Inputs: 2,
		Values: []float32{
			0.9, 0.1, 0, 0.8, 0.2, 0, // the passes of the first input
			0.5, 0.5, 0, 0.1, 0.9, 0,
		},
	})
	if err != nil {
		fmt.Println(err) // no input has been cleared
		return
	}
	for _, r := range results {
		fmt.Println(r.Row, r.Retained())
	}
	// Output:
	// 0 true
	// 1 false
}
