package client

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Batch holds the complete passes of some inputs.
type Batch struct {
	// Model, Classes, Detail, Kind and Posterior mean the same as in SessionConfig.
	Model     string
	Classes   []string
	Detail    ckdv1.Detail
	Kind      ckdv1.Kind
	Posterior string
	Passes    int
	Inputs    int
	// IDs may be empty; otherwise there must be one for every input.
	IDs []string
	// Receipts and ModelVersion mean the same as in SessionConfig. Contexts may be empty; otherwise
	// there must be one for every input.
	Receipts     ckdv1.Receipts
	ModelVersion string
	Contexts     []*ckdv1.InputContext
	// Values, laid out [passes][inputs][classes], must not change until Decompose returns.
	Values []float32
	// Reconnect applies to each call: one that finds no daemon, loses it, or finds it overloaded is
	// made again.
	Reconnect Reconnect
}

// inputsPerCall is the daemon's limit on the inputs of a request.
const inputsPerCall = 65536

// Decompose sends a batch and returns one result for each input, in order. A batch that is too
// large for one message is sent in several calls, one after the other. The policy may change
// between calls, so each result names its own.
//
// An error means that a call failed. Decompose then returns no results, and no input has been
// cleared. Sending the batch again is safe.
func (c *Client) Decompose(ctx context.Context, b Batch) ([]Result, error) {
	classes, err := b.check()
	if err != nil {
		return nil, err
	}
	reconnect, err := b.Reconnect.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkContexts(b.Contexts, b.Inputs); err != nil {
		return nil, err
	}
	results := make([]Result, 0, b.Inputs)
	for from, to := 0, 0; from < b.Inputs; from = to {
		if to, err = b.cut(from, classes, c.messageBytes); err != nil {
			return nil, err
		}
		var reply *ckdv1.DecomposeResponse
		request := b.request(from, to, classes)
		err := retry(ctx, reconnect, retryable, func() (err error) {
			reply, err = c.rpc.Decompose(ctx, request)
			return err
		})
		if err == nil {
			results, err = b.read(results, from, to, reply)
		}
		if err != nil {
			return nil, fmt.Errorf("decompose inputs %d to %d of %d: %w", from, to-1, b.Inputs, err)
		}
	}
	return results, nil
}

// check rejects a batch that cannot be cut into calls. It returns the number of classes.
func (b *Batch) check() (classes int, err error) {
	if b.Inputs < 0 || b.Passes < 1 {
		return 0, fmt.Errorf("%d inputs of %d passes, expected at least 0 and 1", b.Inputs, b.Passes)
	}
	if len(b.IDs) != 0 && len(b.IDs) != b.Inputs {
		return 0, fmt.Errorf("%d ids, expected none or one for each of %d inputs", len(b.IDs), b.Inputs)
	}
	if b.Inputs > 0 {
		classes = len(b.Values) / b.Inputs / b.Passes
	}
	if (b.Inputs > 0 && classes == 0) || classes*b.Inputs*b.Passes != len(b.Values) {
		return 0, fmt.Errorf("%d values, expected a multiple of %d passes x %d inputs", len(b.Values), b.Passes, b.Inputs)
	}
	return classes, nil
}

// cut returns the end of the call that begins with input from.
func (b *Batch) cut(from, classes, messageBytes int) (to int, err error) {
	size := proto.Size(b.request(from, from, classes)) + blockOverhead
	for to = from; to < b.Inputs && to-from < inputsPerCall; to++ {
		size += b.Passes * classes * valueBytes
		if len(b.IDs) > 0 {
			size += len(b.IDs[to]) + idOverhead
		}
		if len(b.Contexts) > 0 {
			size += contextBytes(b.Contexts[to : to+1])
		}
		if size > messageBytes {
			break
		}
	}
	if to == from {
		return 0, fmt.Errorf("input %d takes a message of %d bytes, expected at most %d", from, size, messageBytes)
	}
	return to, nil
}

// request returns the request for the inputs from up to, not including, to.
func (b *Batch) request(from, to, classes int) *ckdv1.DecomposeRequest {
	r := &ckdv1.DecomposeRequest{
		Model:     b.Model,
		Classes:   b.Classes,
		Detail:    b.Detail,
		Kind:      b.Kind,
		Posterior: b.Posterior,
		Layout:    ckdv1.Layout_LAYOUT_SNK,
		Passes:    uint32(b.Passes),
		Inputs:    uint32(to - from),

		Receipts:     b.Receipts,
		ModelVersion: b.ModelVersion,
	}
	if len(b.IDs) > 0 {
		r.InputIds = b.IDs[from:to]
	}
	if len(b.Contexts) > 0 {
		r.Contexts = b.Contexts[from:to]
	}
	r.ValuesLe = make([]byte, 0, (to-from)*b.Passes*classes*valueBytes)
	pass := b.Inputs * classes
	for p := range b.Passes {
		r.ValuesLe = appendValues(r.ValuesLe, b.Values[p*pass+from*classes:p*pass+to*classes])
	}
	return r
}

// read appends the results of a call for the inputs from up to, not including, to.
func (b *Batch) read(results []Result, from, to int, reply *ckdv1.DecomposeResponse) ([]Result, error) {
	if got := len(reply.GetResults()); got != to-from {
		return nil, broken("%d results, expected %d", got, to-from)
	}
	var policies []*ckdv1.PolicyRef
	if p := reply.GetPolicy(); p != nil {
		policies = append(policies, p)
	}
	for i, r := range reply.GetResults() {
		if int(r.GetRow()) != i {
			return nil, broken("result %d is for row %d", i, r.GetRow())
		}
		id := ""
		if len(b.IDs) > 0 {
			id = b.IDs[from+i]
		}
		result, err := newResult(id, from+i, r, policies)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}
