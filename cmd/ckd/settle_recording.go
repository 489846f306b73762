package main

import (
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/settle/learn"
)

// settleRecording is what rules to settle by are learned from and held against:
// passes as [passes][inputs][classes] of float32, as they come to a daemon. Those
// that were recorded so are not copied. labels may be nil; ordered passes are the
// members of an ensemble. Concentrations are none: they do not come in passes.
func settleRecording(passes *record.Passes, labels []int, ordered bool) learn.Recording {
	r := learn.Recording{Passes: passes.S, Inputs: passes.N, Labels: labels, Ordered: ordered}
	if passes.Layout == record.SNK && passes.Float32 != nil {
		r.Values = passes.Float32
		return r
	}
	r.Values = make([]float32, 0, passes.S*passes.N*passes.K)
	var row []float64
	for s := range passes.S {
		for n := range passes.N {
			row = passes.Row(row[:0], s, n)
			for _, v := range row {
				r.Values = append(r.Values, float32(v))
			}
		}
	}
	return r
}
