package drift_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/monitor/drift"
	"github.com/ckd-project/ckd/policy"
)

// TestSample checks that all classes, or some, each have their own values.
func TestSample(t *testing.T) {
	inputs := []struct {
		c, skewness []float64
		predicted   int
	}{
		{[]float64{1, 2, 3}, []float64{10, 20, 30}, 2},
		{[]float64{4, 5, 6}, []float64{40, 50, 60}, 0},
		{[]float64{7, 8, 9}, []float64{70, 80, 90}, 2},
		{[]float64{0, 1, 0}, []float64{0, 10, 0}, 1},
	}
	want := []policy.ClassReference{
		{Class: 0, Predicted: 0.25, Epistemic: drift.NewQuantiles([]float64{1, 4, 7, 0}), Skewness: drift.NewQuantiles([]float64{10, 40, 70, 0})},
		{Class: 1, Predicted: 0.25, Epistemic: drift.NewQuantiles([]float64{2, 5, 8, 1}), Skewness: drift.NewQuantiles([]float64{20, 50, 80, 10})},
		{Class: 2, Predicted: 0.5, Epistemic: drift.NewQuantiles([]float64{3, 6, 9, 0}), Skewness: drift.NewQuantiles([]float64{30, 60, 90, 0})},
	}
	for _, c := range []struct {
		classes []int
		want    []policy.ClassReference
	}{{nil, want}, {[]int{2, 0}, []policy.ClassReference{want[2], want[0]}}} {
		t.Run(fmt.Sprintf("classes %v", c.classes), func(t *testing.T) {
			s := drift.Sample{Classes: c.classes}
			if s.Reference() != nil {
				t.Error("a reference of nothing")
			}
			for _, in := range inputs {
				s.Add(in.c, in.skewness, in.predicted)
			}
			if diff := cmp.Diff(&policy.Reference{Inputs: 4, Classes: c.want}, s.Reference()); diff != "" {
				t.Errorf("reference (-want +got):\n%s", diff)
			}
		})
	}
}
