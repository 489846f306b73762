package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// unaryRequest is a request with the memory that answering it needs. Requests are pooled. It
// implements tensorRequest.
type unaryRequest struct {
	wire.UnaryRequest
	tensorCall
	limits *Limits
	model  *model
	out    *wire.Outgoing
	values []float32
	seen   map[string]struct{} // ids of the request so far
}

var unaryRequests = sync.Pool{New: func() any { return &unaryRequest{seen: map[string]struct{}{}} }}

// mostKeptValues bounds the values for which the memory of a request keeps room between calls.
const mostKeptValues = 1 << 18

func (r *unaryRequest) release() {
	r.tensorCall, r.model, r.out, r.seen = tensorCall{}, nil, nil, emptied(r.seen)
	if cap(r.values) <= mostKeptValues {
		unaryRequests.Put(r)
	}
}

// decompose implements the RPC Decompose. The call is refused only if the tensor as a whole cannot be
// read. A bad row fails its input.
func (d *decider) decompose(ctx context.Context, in *wire.Incoming) (out *wire.Outgoing, err error) {
	r := unaryRequests.Get().(*unaryRequest)
	defer r.release()
	if err := r.Decode(in); err != nil {
		return nil, undecodable(err)
	}
	inputs := int(r.Inputs)
	err = d.serve(ctx, r.Model, &inputs, func(m *model) error {
		if err := r.check(ctx, d, m); err != nil {
			return err
		}
		out = r.out
		return d.decideAll(ctx, m, &r.tensorCall, r)
	})
	if err != nil {
		return nil, err
	}
	if r.ClassNames {
		for _, name := range r.model.Policy().Classes {
			out.Class(name)
		}
	}
	return out, nil
}

// check returns what is wrong with a request, but for its values, or prepares its reply.
func (r *unaryRequest) check(ctx context.Context, d *decider, m *model) error {
	issuer, err := d.receipts.newIssuer(m, r.Receipts, r.ModelVersion)
	if err != nil {
		return err
	}
	r.answerer = d.newAnswerer(ctx, issuer, r.Posterior)
	if err := d.limits.checkCall(m, r); err != nil {
		return err
	}
	r.scratch, r.bytes, r.result = m.pool(r.Detail), 4*r.Values.Floats()+r.Values.Bytes(), resultBytes(m, r.Detail, &r.answerer.issuer)
	r.tensor = decomp.Tensor{Passes: int(r.Passes), Inputs: int(r.Inputs)}
	if r.Layout == ckdv1.Layout_LAYOUT_NSK {
		r.tensor.Layout = decomp.NSK
	}
	r.limits, r.model, r.out = &d.limits, m, wire.NewOutgoing(wire.Unary)
	r.out.Policy(m.encodedRef)
	return nil
}

func (r *unaryRequest) read(t *decomp.Tensor) {
	n := r.Values.Len()
	r.values = slices.Grow(r.values[:0], n)[:n]
	r.Values.Next(r.values)
	t.Float32 = r.values
}

// input returns the id of an input as the reply repeats it. Of two faults that of the id counts.
func (r *unaryRequest) input(i int) (id []byte, x inputContext, err error) {
	x, err = r.answerer.issuer.context(r.model, &r.Contexts, i)
	if r.IDs.Len() == 0 {
		return nil, x, err
	}
	id = r.IDs.At(i)
	name := unsafe.String(unsafe.SliceData(id), len(id)) // which seen forgets before the request is decoded into again
	_, twice := r.seen[name]
	if len(id) > 0 && r.IDs.Len() > 1 {
		r.seen[name] = struct{}{}
	}
	if twice || len(id) > r.limits.InputIDBytes {
		id, err = []byte(echo(r.limits, name)), checkID(r.limits, name, i, twice)
	}
	return id, x, err
}

func (r *unaryRequest) decided(i int, id []byte, w *scratch, drawn *issued) {
	r.out.Result(id, 0, uint32(i), 0, w.encode(w.outcome, r.Detail, false, drawn))
}

func (r *unaryRequest) refused(i int, id []byte, said *status.Status) {
	r.out.Error(id, 0, uint32(i), 0, said.Proto())
}

// checkCall checks everything about a request but its values.
func (l *Limits) checkCall(m *model, r *unaryRequest) error {
	if err := checkTerms(m, terms{r.Classes, r.Kind, r.Detail, r.Posterior}); err != nil {
		return err
	}
	if r.Layout != ckdv1.Layout_LAYOUT_SNK && r.Layout != ckdv1.Layout_LAYOUT_NSK {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_LAYOUT, "layout", r.Layout.String(), "LAYOUT_SNK or LAYOUT_NSK")
	}
	if err := l.checkCounts(int64(r.Inputs), int64(r.Passes)); err != nil {
		return err
	}
	if got, want := r.IDs.Len(), int(r.Inputs); got > 0 && got != want {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_ID_COUNT, "input_ids", fmt.Sprint(got), fmt.Sprint("none or ", want))
	}
	if err := checkContexts(r.Contexts.Len(), int(r.Inputs)); err != nil {
		return err
	}
	if err := l.checkReply(m, r.Detail, &r.answerer.issuer, int(r.Inputs)); err != nil {
		return err
	}
	return checkValues(&r.Values)
}

// checkCounts checks the inputs and passes of a request against the limits.
func (l *Limits) checkCounts(inputs, passes int64) error {
	if limit := int64(l.InputsPerRequest); inputs > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "inputs", "inputs", inputs, limit)
	}
	if limit := int64(l.PassesPerInput); passes > limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", passes, limit)
	}
	return nil
}
