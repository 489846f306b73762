package calibrate

import (
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// TestFewestPassesLeaveSomeToSave: with many passes a gate that reads skewness gets as
// many as it needs; of few it takes no more than it can do with where inputs are to be
// settled before the last.
func TestFewestPassesLeaveSomeToSave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		passes, fewest, fewestOfSettled int
	}{{30, 5, 5}, {10, 5, 5}, {5, 5, 4}, {4, 5, 4}} {
		for settles, want := range map[bool]int{false: c.fewest, true: c.fewestOfSettled} {
			r := &run{Options: Options{Settles: settles}, sample: &sample{table: &eval.Table{Passes: c.passes, Spec: decomp.Spec{}}}}
			fewest := 2
			for r.hardlyOpens(fewest, 0.3) {
				fewest++
			}
			if fewest != want {
				t.Errorf("of %d passes (settled: %v) %d at least, expected %d", c.passes, settles, fewest, want)
			}
		}
	}
}
