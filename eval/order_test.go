package eval_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// TestSort sorts a recording of few different inputs and the same one in another order, in either
// layout, with groups and without. It expects one order, in which each input has its passes, label and
// group, and Index to say where it came from.
func TestSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, passes, classes := rapid.IntRange(1, 12).Draw(t, "N"), rapid.IntRange(1, 3).Draw(t, "S"), rapid.IntRange(1, 3).Draw(t, "K")
		grouped := rapid.Bool().Draw(t, "grouped")
		rows, labels, groups := make([][]float32, n), make([]int, n), make([]int, n)
		for i := range rows {
			rows[i] = rapid.SliceOfN(rapid.SampledFrom([]float32{0, 0.5}), passes*classes, passes*classes).Draw(t, "row")
			labels[i], groups[i] = rapid.IntRange(0, 1).Draw(t, "label"), rapid.IntRange(0, 3).Draw(t, "group")
		}
		type input struct {
			Row   []float32
			Label int
			Group int // numbered as they appear
		}
		sorted := func(order []int, layout decomp.Layout) []input {
			r := eval.Recording{Classes: classes, Passes: decomp.Tensor{Passes: passes, Inputs: n, Layout: layout}}
			var given []int
			for _, i := range order {
				r.Labels, given = append(r.Labels, labels[i]), append(given, groups[i])
			}
			offset := func(s, j int) int {
				if layout == decomp.NSK {
					return (j*passes + s) * classes
				}
				return (s*n + j) * classes
			}
			r.Passes.Float32 = make([]float32, n*passes*classes)
			for j, i := range order {
				for s := range passes {
					copy(r.Passes.Float32[offset(s, j):], rows[i][s*classes:(s+1)*classes])
				}
			}
			if !grouped {
				given = nil
			}
			r.Sort(given)
			var all []input
			number := map[int]int{}
			for j := range n {
				next := input{Label: r.Labels[j]}
				for s := range passes {
					next.Row = append(next.Row, r.Passes.Float32[offset(s, j):offset(s, j)+classes]...)
				}
				if grouped {
					if _, seen := number[given[j]]; !seen {
						number[given[j]] = len(number)
					}
					next.Group = number[given[j]]
				}
				from := order[r.Place(j)]
				if !slices.Equal(next.Row, rows[from]) || next.Label != labels[from] || grouped && given[j] != groups[from] {
					t.Fatalf("input %d is %+v, its place has %v, %d, %d", j, next, rows[from], labels[from], groups[from])
				}
				all = append(all, next)
			}
			return all
		}
		want := sorted(numbers(n), decomp.SNK)
		layout := rapid.SampledFrom([]decomp.Layout{decomp.SNK, decomp.NSK}).Draw(t, "layout")
		if diff := cmp.Diff(want, sorted(rapid.Permutation(numbers(n)).Draw(t, "order"), layout)); diff != "" {
			t.Fatal(diff)
		}
	})
}
