package main

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// verify checks the reply to a group: it must have a decision for every input, with the value that
// decomp computes.
func (p *payload) verify(group int, reply []byte) error {
	var answer interface {
		proto.Message
		GetResults() []*ckdv1.Result
	} = &ckdv1.DecomposeStreamResponse{}
	if p.mode == unary {
		answer = &ckdv1.DecomposeResponse{}
	}
	err := proto.Unmarshal(reply, answer)
	if err == nil {
		err = checkResults(p.shape, p.groups[group].values, answer.GetResults())
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
		if e := checkResult(s, r, results[next], next, critical); e != nil && fault == nil {
			fault = fmt.Errorf("input %d: %w", next, e)
		}
		next++
	})
	if err != nil {
		return err
	}
	return fault
}

func checkResult(s shape, r *decomp.Result, got *ckdv1.Result, row int, critical []int) error {
	d := got.GetDecomposition()
	if d == nil {
		return fmt.Errorf("no decomposition but %v", got.GetError())
	}
	score := decomp.CCritMax
	for _, k := range critical {
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
