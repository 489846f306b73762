package client_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestDecomposeAnyShape checks that each input is answered on its own passes and in its place,
// however a batch is cut into calls.
func TestDecomposeAnyShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "inputs")
		passes := rapid.IntRange(2, 5).Draw(rt, "passes")
		classes := rapid.IntRange(2, 6).Draw(rt, "classes")
		f := newFake(0)
		// A call with one input always fits.
		f.info.Limits.MessageBytes = uint32(rapid.IntRange(300+4*passes*classes, 2000).Draw(rt, "message bytes"))
		c := f.dial(rt, client.WithMessageBytes(int(f.info.Limits.MessageBytes)))
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		b := client.Batch{Model: model, Detail: client.Vectors, Passes: passes, Inputs: n,
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
	})
}

// TestDecomposeFails checks that a call which fails, a wrong answer and a wrong batch fail the whole
// batch. Its calls have one input each, and the second is answered wrongly.
func TestDecomposeFails(t *testing.T) {
	const tooLarge = ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE
	good := client.Batch{Model: model, Passes: 2, Inputs: 2, Values: make([]float32, 12)}
	type response = ckdv1.DecomposeResponse
	broken := func(text string) fault { return fault{codes.Internal, 0, text} }
	for _, c := range []struct {
		name   string
		answer func(*response) error
		batch  func(*client.Batch)
		want   fault
	}{
		{name: "status", answer: func(*response) error { return fail(codes.ResourceExhausted, tooLarge, "too much", nil).Err() },
			want: fault{codes.ResourceExhausted, tooLarge, "decompose inputs 1 to 1 of 2"}},
		{name: "too few results", answer: func(r *response) error { r.Results = nil; return nil }, want: broken("0 results, expected 1")},
		{name: "wrong row", answer: func(r *response) error { r.Results[0].Row = 1; return nil }, want: broken("result 0 is for row 1")},
		{name: "no outcome", answer: func(r *response) error { r.Results[0].Outcome = nil; return nil },
			want: broken("neither a decomposition nor an error")},
		{name: "no policy", answer: func(r *response) error { r.Policy = nil; return nil }, want: broken("policy 0 of 0")},
		{name: "wrong id", answer: func(r *response) error { r.Results[0].InputId = "x"; return nil }, want: broken(`answered as input "x"`)},
		{name: "no passes", batch: func(b *client.Batch) { b.Passes = 0 }, want: saying("2 inputs of 0 passes")},
		{name: "negative", batch: func(b *client.Batch) { b.Inputs = -1 }, want: saying("-1 inputs")},
		{name: "ids", batch: func(b *client.Batch) { b.IDs = []string{"a"} }, want: saying("1 ids, expected none or one for each of 2")},
		{name: "length", batch: func(b *client.Batch) { b.Values = b.Values[:11] },
			want: saying("11 values, expected a multiple of 2 passes x 2 inputs")},
		{name: "no values", batch: func(b *client.Batch) { b.Values = nil }, want: saying("0 values")},
		{name: "values without inputs", batch: func(b *client.Batch) { b.Inputs = 0 }, want: saying("12 values")},
		{name: "overflow", batch: func(b *client.Batch) { b.Inputs, b.Passes = math.MaxInt, math.MaxInt }, want: saying("12 values")},
		{name: "one input too large", batch: func(b *client.Batch) {
			b.Inputs, b.Passes, b.Values = 1, 1<<20, make([]float32, 2<<20)
		}, want: saying("input 0 takes a message of 83887")},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(0)
			calls := 0
			f.unary = func(r *response) (*response, error) {
				if calls++; calls == 2 {
					return r, c.answer(r)
				}
				return r, nil
			}
			b := good
			if c.batch != nil {
				c.batch(&b)
			}
			results, err := f.dial(t, client.WithMessageBytes(180)).Decompose(t.Context(), b) // room for one input
			c.want.check(t, "Decompose", err)
			if results != nil {
				t.Errorf("%d results, expected none", len(results))
			}
		})
	}
}

// TestModels checks the calls that return policies.
func TestModels(t *testing.T) {
	c := newFake(0).dial(t)
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

// Decompose sends inputs whose passes are at hand in one call.
func ExampleClient_Decompose() {
	daemon := newFake(0)
	c, stop := daemon.start() // elsewhere: client.Dial("localhost:9090")
	defer stop()

	results, err := c.Decompose(context.Background(), client.Batch{
		Model:  "fetal-health",
		Passes: 2,
		Inputs: 2,
		Values: []float32{
			0.9, 0.1, 0, 0.5, 0.5, 0, // the first pass of both inputs
			0.8, 0.2, 0, 0.1, 0.9, 0,
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
