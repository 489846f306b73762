package passcheck

import "sync/atomic"

// runLength returns after how many squashed inputs in a row softmax was taken twice: 64, and 256 of two
// classes, whose range is wide. See decomp.Result.Squashed.
func runLength(classes int) int {
	if classes == 2 {
		return 256
	}
	return 64
}

// Run counts the squashed inputs of one caller that follow each other. Each input also counts in the
// Run above, if there is one: that of all callers of the model. A nil Run counts nothing. Run is safe
// for concurrent use.
type Run struct {
	above  *Run
	length int32
	inputs atomic.Int32 // at most length
}

// NewRun returns an empty Run for inputs with K classes, below another, which may be nil.
func NewRun(classes int, above *Run) *Run {
	return &Run{above: above, length: int32(runLength(classes))}
}

// Completes reports whether a squashed input that comes next makes the Run, or one above it, as long as
// runLength, or it has been so long before: then softmax was taken twice.
func (r *Run) Completes() bool {
	for ; r != nil; r = r.above {
		if r.inputs.Load() >= r.length-1 {
			return true
		}
	}
	return false
}

// Count takes an input. One that is not squashed begins the Run anew.
func (r *Run) Count(squashed bool) {
	for ; r != nil; r = r.above {
		switch n := r.inputs.Load(); {
		case !squashed && n != 0: // written to only if it changes, since all callers share it
			r.inputs.Store(0)
		case squashed && n < r.length:
			r.inputs.Add(1)
		}
	}
}
