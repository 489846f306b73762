package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// verify checks the reply to a group: it must have a decision for every input, with the value that
// decomp computes.
func (l *load) verify(group int, reply []byte) (err error) {
	var results []*ckdv1.Result
	if l.payload.mode == unary {
		var m ckdv1.DecomposeResponse
		err = proto.Unmarshal(reply, &m)
		results = m.GetResults()
	} else {
		var m ckdv1.DecomposeStreamResponse
		err = proto.Unmarshal(reply, &m)
		results = m.GetResults()
	}
	if err == nil {
		err = checkResults(l.payload.shape, l.payload.groups[group].values, results)
	}
	if err != nil {
		return fmt.Errorf("group %d: %w", group, err)
	}
	return nil
}

// checkResults compares results with the passes that they answer.
func checkResults(s shape, values []float32, results []*ckdv1.Result) error {
	if len(results) != s.inputs {
		return fmt.Errorf("%d results, expected %d", len(results), s.inputs)
	}
	critical, safe := s.sets()
	d, err := newDecomposer(s, values, decomp.Spec{Classes: s.classes, Critical: critical, Safe: safe})
	if err != nil {
		return err
	}
	next := 0
	var fault error
	err = d.run(1, func(r *decomp.Result) {
		got := results[next]
		if e := checkResult(s, r, got, next); e != nil && fault == nil {
			fault = fmt.Errorf("input %d: %w", next, e)
		}
		next++
	})
	if err != nil {
		return err
	}
	return fault
}

func checkResult(s shape, r *decomp.Result, got *ckdv1.Result, row int) error {
	d := got.GetDecomposition()
	if d == nil {
		return fmt.Errorf("no decomposition but %v", got.GetError())
	}
	score := decomp.CCritMax
	for k := range min(s.classes/2, 10) { // the critical ones
		if r.Skewness[k] > reliability {
			score = decomp.CBEC
		}
	}
	want, value := r.Scores[score], d.GetDecision().GetValue()
	switch {
	case int(got.GetRow()) != row || len(got.GetInputId()) != 8:
		return fmt.Errorf("row %d of input %q, expected row %d of one of 8 bytes", got.GetRow(), got.GetInputId(), row)
	case int(d.GetPasses()) != s.passes:
		return fmt.Errorf("%d passes, expected %d", d.GetPasses(), s.passes)
	case !(math.Abs(value-want) <= tolerance*max(want, 1e-3)):
		return fmt.Errorf("%v is %v, expected %v", d.GetDecision().GetScore(), value, want)
	case int(d.GetPredicted()) != r.Predicted:
		return fmt.Errorf("class %d is predicted, expected %d", d.GetPredicted(), r.Predicted)
	}
	return nil
}

// tell makes a sink server answer after every given number of messages, with a reply of the given
// size.
func tell(ctx context.Context, l *load, every, bytes int) error {
	told := binary.LittleEndian.AppendUint32(nil, uint32(every))
	return l.conn.Invoke(ctx, methodReply, newFrame(append(told, make([]byte, bytes)...)), &receipt{})
}
