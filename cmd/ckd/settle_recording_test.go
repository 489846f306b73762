package main

import (
	"slices"
	"testing"

	"github.com/ckd-project/ckd/internal/record"
)

// The same passes in every layout and width are one recording.
func TestSettleRecording(t *testing.T) {
	t.Parallel()
	// [passes][inputs][classes] and [inputs][passes][classes] of 2 passes of 3 inputs over 2 classes.
	snk := []float32{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}
	nsk := []float32{0, 1, 100, 101, 10, 11, 110, 111, 20, 21, 120, 121}
	wide := func(narrow []float32) (v []float64) {
		for _, x := range narrow {
			v = append(v, float64(x))
		}
		return v
	}
	labels := []int{0, 1, 1}
	for name, c := range map[string]struct {
		shape  []int
		layout record.Layout
		array  record.Array
	}{
		"snk float32": {[]int{2, 3, 2}, record.SNK, record.Array{Float32: snk}},
		"snk float64": {[]int{2, 3, 2}, record.SNK, record.Array{Float64: wide(snk)}},
		"nsk float32": {[]int{3, 2, 2}, record.NSK, record.Array{Float32: nsk}},
		"nsk float64": {[]int{3, 2, 2}, record.NSK, record.Array{Float64: wide(nsk)}},
	} {
		c.array.Shape = c.shape
		passes, err := record.NewPasses(name, &c.array, record.Options{Layout: c.layout})
		if err != nil {
			t.Fatal(err)
		}
		r := settleRecording(passes, labels, true)
		if r.Passes != 2 || r.Inputs != 3 || !r.Ordered || !slices.Equal(r.Labels, labels) || !slices.Equal(r.Values, snk) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
