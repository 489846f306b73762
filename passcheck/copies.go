package passcheck

import "github.com/ckd-project/ckd/decomp"

// copies returns the group of each input, the same for copies: inputs that are equal bit for bit in all
// passes. copied counts those beyond the first of each group. Groups are nil where fewer than 1% are copies,
// and no more than four inputs are equal.
//
// Inputs may be equal and no copies, where votes are hard, models saturate or values are rounded. So a
// group also needs rows that no other input has, and that are not one-hot, in at least half of the passes.
// Copies that lack them are not found.
func (d *data) copies(hashes []uint64) (groups []int, copied int) {
	first := make(map[uint64]int, len(hashes)) // first input with a hash
	size := make(map[int]int)                  // inputs equal to a first one, itself included
	for i, h := range hashes {
		f, seen := first[h]
		if !seen {
			first[h] = i
			continue
		}
		size[f] = max(size[f], 1) + 1
	}
	if len(size) == 0 {
		return nil, 0
	}
	own := make(map[int]int) // passes in which no other input has the row of a first one
	row := make([]float64, d.classes)
	for s := range d.Tensor.Passes {
		sharing := make(map[uint64]int)
		for f := range size {
			sharing[d.hash(s, f)] = 0
		}
		for i := range d.Inputs {
			h := d.hash(s, i)
			if n, counts := sharing[h]; counts {
				sharing[h] = n + 1
			}
		}
		for f, n := range size {
			if d.row(row, s, f); sharing[d.hash(s, f)] == n && (d.kind == decomp.Dirichlet || second(row) > 0) {
				own[f]++
			}
		}
	}
	groups = make([]int, len(hashes))
	largest := 0
	for i, h := range hashes {
		groups[i] = i
		if f := first[h]; f != i && own[f] >= min(d.Tensor.Passes, max(2, d.Tensor.Passes/2)) {
			groups[i] = f
			copied++
			largest = max(largest, size[f])
		}
	}
	if 100*copied < len(hashes) && largest < 5 { // nothing depends on so few
		return nil, 0
	}
	return groups, copied
}

// equalInputs says that there are many copies. A few are in most public data.
func equalInputs(copied, n int) (Sign, bool) {
	const many = 0.05
	if n < fewInputs || float64(copied) < many*float64(n) {
		return Sign{}, false
	}
	return ofInputs(signEqualInputs, copied, n, "%d of the %d inputs are copies of others, equal in every pass, as oversampling before a split makes them: "+
		"%d inputs are distinct. Copies count as one group unless --groups says what belongs together; better split first and oversample the training "+
		"part alone.", copied, n, n-copied), true
}
