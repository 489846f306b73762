package eval

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
)

// Sort puts the inputs into an order of their passes and labels alone, so that neither a random draw
// nor the rounding of a sum depends on the order of the file. It moves the values of Passes, Labels
// and groups in place, and sets Index. groups has a number for each input; nil where inputs are
// independent. Whole groups stay together.
func (r *Recording) Sort(groups []int) {
	n := r.Passes.Inputs
	content := r.contents()
	ofGroup := content
	if groups != nil {
		sums := make(map[int]uint64) // over the inputs of a group, in any order
		for i, g := range groups {
			sums[g] += content[i]
		}
		ofGroup = make([]uint64, n)
		for i, g := range groups {
			ofGroup[i] = sums[g]
		}
	}
	order := inputsOf(n)
	slices.SortFunc(order, func(a, b int32) int {
		c := cmp.Compare(ofGroup[a], ofGroup[b])
		if c == 0 && groups != nil {
			c = cmp.Compare(groups[a], groups[b]) // groups of one content may take turns, their inputs may not
		}
		return cmp.Or(c, cmp.Compare(content[a], content[b]), cmp.Compare(a, b))
	})
	if r.Index == nil {
		r.Index = make([]int, n)
		for i := range r.Index {
			r.Index[i] = i
		}
	}
	reorder(r.Index, 1, order)
	reorder(r.Labels, 1, order)
	reorder(groups, 1, order)
	for plane, width := range r.planes() {
		if p := r.Passes.Float32; p != nil {
			reorder(p[plane:plane+n*width], width, order)
		} else {
			reorder(r.Passes.Float64[plane:plane+n*width], width, order)
		}
	}
}

// planes yields the parts of the passes that have a row for each input: where a part begins, and the
// length of a row.
func (r *Recording) planes() func(yield func(at, width int) bool) {
	passes, width := r.Passes.Passes, r.Classes
	if r.Passes.Layout == decomp.NSK {
		passes, width = 1, passes*width
	}
	return func(yield func(at, width int) bool) {
		for s := range passes {
			if !yield(s*r.Passes.Inputs*width, width) {
				return
			}
		}
	}
}

// contents returns a hash of the passes and the label of each input, the same for passes of float32
// and of float64.
func (r *Recording) contents() []uint64 {
	n := r.Passes.Inputs
	hash := make([]uint64, n)
	for i, label := range r.Labels {
		hash[i] = uint64(label)
	}
	value := func(at int) float64 { return r.Passes.Float64[at] }
	if r.Passes.Float32 != nil {
		value = func(at int) float64 { return float64(r.Passes.Float32[at]) }
	}
	count := parts(n)
	_ = concurrently(context.Background(), count, func(part int) { // without a context there is no error
		for at, width := range r.planes() {
			for i := part * n / count; i < (part+1)*n/count; i++ {
				for row := at + i*width; row < at+(i+1)*width; row += r.Classes {
					sum := uint64(0)
					for k := range r.Classes {
						sum += mix(math.Float64bits(value(row+k)) ^ uint64(k)<<48)
					}
					hash[i] = mix(hash[i] ^ sum)
				}
			}
		}
	})
	return hash
}

// mix scatters the bits of a number (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// reorder puts rows of a width into an order, in place: row order[j] comes to j. It does nothing
// without rows.
func reorder[T any](rows []T, width int, order []int32) {
	if rows == nil {
		return
	}
	row := func(i int32) []T { return rows[int(i)*width : (int(i)+1)*width] }
	done, first := make([]bool, len(order)), make([]T, width)
	for start := range order {
		if done[start] {
			continue
		}
		copy(first, row(int32(start)))
		end := int32(start)
		for from := order[end]; from != int32(start); from = order[end] {
			copy(row(end), row(from))
			done[end] = true
			end = from
		}
		copy(row(end), first)
		done[end] = true
	}
}
