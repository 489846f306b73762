package decomp

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/ckd-project/ckd/internal/kernel"
)

// Layout says in which order the values of a tensor lie.
type Layout uint8

// The layouts.
const (
	SNK Layout = iota // [passes][inputs][classes]
	NSK               // [inputs][passes][classes]
)

// Tensor holds the complete passes of some inputs: Passes*Inputs*K values in one of the two slices.
// The other must be empty.
type Tensor struct {
	Passes, Inputs int
	Layout         Layout
	Float32        []float32
	Float64        []float64
	// SumRounding is how far the sum of a row of probabilities may be off because the values were
	// rounded before they came here, and how far a value may be outside of [0,1]. It adds to the
	// plan's tolerance.
	SumRounding float64
}

// job is a tensor to compute, and how to compute it.
type job struct {
	Tensor
	stride int // from one pass of an SNK tensor to the next
	// checked says that the rows need not be checked again, nor clamped.
	checked bool
	// logits says, by input, that a pass shows the rows to be logits. Nil if the rows are to tell.
	logits []bool
	// part says that further passes exist. Sums of squares are then not divided, so that moments
	// can be joined. before holds, by input, the moments of earlier passes.
	part   bool
	before []*moments
}

// Batch computes complete passes by going over them twice: for the means, then for the moments
// about them.
//
// It works on panels of neighbouring inputs. A panel is S rows of columns, one column for each
// input and class; package kernel does the arithmetic of columns.
type Batch struct {
	plan *Plan
	job  job

	panel32     panel[float32]
	panel64     panel[float64]
	divisor     float64 // divisor of sums of squares
	panelInputs int     // inputs of a full panel
	first, end  int     // inputs of the current panel
	columns     *kernel.Columns
	faults      []error // by input of the panel
	pairs       comoments
	sums        sums // sums of the latest input
	complement  complement
	joining     joining
	spare       *Result
	dirichlet   dirichletScratch
	relaid      relaid
}

// relaid holds a copy of the current panel as the kernel needs it, if the tensor has it otherwise.
type relaid struct {
	probabilities []float64 // probabilities computed from logits
	turned32      []float32 // NSK as SNK, or clamped
	turned64      []float64
}

// joining holds the moments of the latest input, if the tensor has only some of its passes.
type joining struct {
	chunk  *moments // moments of the tensor
	merged *moments // moments of the tensor and the passes before it
}

const (
	// maxColumns limits the columns of a panel, unless one input has more classes. A panel of fewer
	// than minColumns is not worth the call.
	maxColumns, minColumns = 1024, 64
	// panelValues is about how many values of a panel stay in the cache.
	panelValues = 1 << 13
	// maxPanelValues limits the values of a panel that is made wider for having many passes.
	maxPanelValues = 1 << 17
	// keptScratch is how many numbers of scratch memory a Batch keeps between tensors.
	keptScratch = 1 << 18
	// turnedClasses is the number of classes from which on one NSK input makes a panel wide enough.
	turnedClasses = 32
)

// NewBatch returns a Batch for inputs of the plan.
func (p *Plan) NewBatch() *Batch {
	inputs := max(1, maxColumns/p.classes)
	b := &Batch{
		plan:       p,
		columns:    kernel.NewColumns(inputs * p.classes),
		faults:     make([]error, inputs),
		pairs:      newComoments(p),
		complement: newComplement(p),
	}
	if p.kind == Dirichlet {
		b.dirichlet = newDirichletScratch(p.classes)
	}
	return b
}

// Reset sets the tensor to compute. Its values are read, but not written to, until the next call of
// Reset. The error is a *ShapeError if the number of values is not Passes*Inputs*K, a *PassesError
// if there are too few passes (fewer than 2; for Dirichlet rows not exactly 1), or another if both
// slices have values.
func (b *Batch) Reset(t Tensor) error {
	b.Clear()
	if len(t.Float32) > 0 && len(t.Float64) > 0 {
		return errors.New("a tensor of float32 and float64 values: expected one of them")
	}
	got := len(t.Float32) + len(t.Float64)
	if t.Passes < 0 || t.Inputs < 0 || !isProduct(got, t.Passes, t.Inputs, b.plan.classes) {
		return &ShapeError{t.Passes, t.Inputs, b.plan.classes, got}
	}
	if least := b.plan.fewestPasses(); t.Passes < least {
		return &PassesError{Got: t.Passes, Least: least}
	}
	if b.plan.kind == Dirichlet && t.Passes > 1 {
		return &PassesError{Got: t.Passes, Least: 1, Most: 1}
	}
	b.reset(job{Tensor: t, stride: t.Inputs * b.plan.classes})
	return nil
}

// Clear drops the tensor, and scratch memory that an uncommonly large one needed.
func (b *Batch) Clear() {
	b.first, b.end, b.job = 0, 0, job{}
	b.panel32, b.panel64 = panel[float32]{}, panel[float64]{}
	b.sums = sums{}
	if len(b.relaid.probabilities)+len(b.relaid.turned32)+len(b.relaid.turned64)+len(b.complement.values) > keptScratch {
		b.relaid.probabilities, b.relaid.turned32, b.relaid.turned64, b.complement.values = nil, nil, nil, nil
	}
}

// reset sets a job whose shape is right.
func (b *Batch) reset(t job) {
	b.first, b.end, b.job = 0, 0, t
	b.divisor = b.plan.divisor(t.Passes)
	if t.part {
		b.divisor = 1
	}
	k, s := b.plan.classes, max(t.Passes, 1)
	b.panelInputs = min(t.Inputs, 1)
	if t.Inputs > 1 && (t.Layout == SNK || k < turnedClasses) {
		inputs := max(panelValues/s, min(minColumns, maxPanelValues/s)) / k
		b.panelInputs = min(max(inputs, 1), len(b.faults), t.Inputs)
	}
	values := s * b.panelInputs * k
	if b.plan.kind == Logits && len(b.relaid.probabilities) < values {
		b.relaid.probabilities = make([]float64, values)
	}
	if b.turns() && b.single() && len(b.relaid.turned32) < values {
		b.relaid.turned32 = make([]float32, values)
	}
	if b.turns() && !b.single() && len(b.relaid.turned64) < values {
		b.relaid.turned64 = make([]float64, values)
	}
}

// single reports whether the values are float32.
func (b *Batch) single() bool { return len(b.job.Float64) == 0 }

// turns reports whether panels of the tensor must be copied into another layout.
func (b *Batch) turns() bool {
	return b.job.Layout == NSK && b.panelInputs > 1
}

// isProduct reports whether n = a*b*c for non-negative numbers, even if the product overflows.
func isProduct(n, a, b, c int) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	over, product := bits.Mul64(low, uint64(c))
	return high == 0 && over == 0 && product == uint64(n)
}

// Result computes input i of the tensor, 0 <= i < Inputs, into r, which must come from the same
// plan; the type Result documents formula, range, unit and equation of every field. The vectors of
// r belong to the Batch and are valid until its next call. If a row of the input is bad, the error
// is a *RowError and r is undefined.
//
// Asking for inputs in order is fastest: an input outside the current panel makes Result compute
// another panel.
func (b *Batch) Result(i int, r *Result) error {
	if i < b.first || i >= b.end {
		b.first, b.end = i, min(i+b.panelInputs, b.job.Inputs)
		if b.single() {
			b.panel32 = newPanel(b, b.job.Float32, b.relaid.turned32)
			load(b, &b.panel32, &b.relaid.turned32)
		} else {
			b.panel64 = newPanel(b, b.job.Float64, b.relaid.turned64)
			load(b, &b.panel64, &b.relaid.turned64)
		}
	}
	index := i - b.first
	if err := b.faults[index]; err != nil {
		return err
	}
	r.view(b.columns, index*b.plan.classes)
	if b.single() && b.plan.kind != Logits {
		finish(b, &b.panel32, index, r)
	} else {
		finish(b, &b.panel64, index, r)
	}
	return nil
}

// finish completes the result of the input at an index of the current panel.
func finish[T float](b *Batch, p *panel[T], index int, r *Result) {
	s, k := &b.sums, b.plan.classes
	if b.plan.kind == Dirichlet {
		for j, v := range p.input(index, k).row(0) {
			b.dirichlet.alpha[j] = float64(v)
		}
		b.plan.finishDirichlet(&b.dirichlet, r)
		return
	}
	s.passes, s.divisor = p.passes, b.divisor
	if len(b.plan.pairs) > 0 {
		sumPairs(b, &b.pairs, p, index, &s.co)
		s.roots = b.pairs.roots[index*k : (index+1)*k]
	}
	if b.plan.ovaMI {
		s.rest = ofComplement(b, &b.complement, p.input(index, k), r)
	}
	if b.job.part {
		if b.joining.chunk == nil {
			b.joining.chunk, b.joining.merged = newMoments(b.plan), newMoments(b.plan)
		}
		set(b.joining.chunk, b.plan, s, p.input(index, k), r)
		if b.job.before == nil {
			return // only the moments were asked for
		}
		b.joining.merged.copy(b.job.before[b.first+index])
		b.joining.merged.join(b.plan, b.joining.chunk)
		b.joining.merged.fill(b.plan, s, r)
	}
	r.Spread, r.Squashed = spread(p.input(index, k), r), squashed(b.plan, p.input(index, k), r.Mean)
	b.plan.finish(s, r)
}

// panel is S rows of columns: row s is data[s*stride:][:width].
type panel[T float] struct {
	data                  []T
	passes, width, stride int
}

// row returns the values of pass s.
func (p panel[T]) row(s int) []T {
	at := s * p.stride
	return p.data[at : at+p.width : at+p.width]
}

// input returns the columns of the input at an index of the panel.
func (p *panel[T]) input(at, classes int) panel[T] {
	return panel[T]{p.data[at*classes:], p.passes, classes, p.stride}
}

// newPanel returns the current panel of the tensor. It copies an NSK tensor with several inputs to
// turned; otherwise the panel shares the values of the tensor.
func newPanel[T float](b *Batch, data, turned []T) panel[T] {
	k, s, inputs := b.plan.classes, b.job.Passes, b.end-b.first
	width := inputs * k
	switch {
	case b.turns():
		for i := range inputs {
			from := data[(b.first+i)*s*k:][:s*k]
			for pass := range s {
				copy(turned[pass*width+i*k:], from[pass*k:(pass+1)*k])
			}
		}
		return panel[T]{turned, s, width, width}
	case b.job.Layout == NSK:
		return panel[T]{data[b.first*s*k:], s, k, k}
	}
	return panel[T]{data[b.first*k:], s, width, b.job.stride}
}

// clamped clamps all values of a panel to [0,1]. It writes to a copy in *to, unless the panel is
// there already: the tensor belongs to the caller.
func (p panel[T]) clamped(own bool, scratch *[]T) panel[T] {
	if !own {
		*scratch = slices.Grow((*scratch)[:0], p.passes*p.width)[:p.passes*p.width]
		for s := range p.passes {
			copy((*scratch)[s*p.width:], p.row(s))
		}
		p = panel[T]{*scratch, p.passes, p.width, p.width}
	}
	for s := range p.passes {
		clamp(p.row(s))
	}
	return p
}

// load checks the rows of the current panel and computes its columns. It clamps probabilities in
// scratch memory, and writes logits as probabilities to b.panel64, before.
func load[T float](b *Batch, p *panel[T], scratch *[]T) {
	faults := b.faults[:b.end-b.first]
	clear(faults)
	if !b.job.checked && b.first == 0 {
		b.job.checked = b.allPlain()
	}
	if !b.job.checked {
		if _, clamps := checkComplete(b.plan, b.job.SumRounding, faults, p); clamps {
			*p = p.clamped(b.turns(), scratch)
		}
	}
	if b.job.logits != nil {
		for i, shown := range b.job.logits[b.first:b.end] {
			if !shown {
				faults[i] = probabilitiesAsLogits(b.passes(b.first + i))
			}
		}
	}
	switch b.plan.kind {
	case Dirichlet:
	case Logits:
		probabilities := panel[float64]{b.relaid.probabilities, p.passes, p.width, p.width}
		for s := range p.passes {
			logits, row := p.row(s), probabilities.row(s)
			for i, k := 0, b.plan.classes; i < len(faults); i++ {
				if faults[i] == nil {
					softmax(row[i*k:(i+1)*k], logits[i*k:(i+1)*k])
				}
			}
		}
		b.panel64 = probabilities
		compute(b, &b.panel64)
	default:
		compute(b, p)
	}
}

// allPlain reports whether the quick check passes the rows of all panels. It is for tensors whose
// values stay in the cache; larger ones are checked panel by panel. Rows of a panel that lie apart
// would need a call for each pass.
func (b *Batch) allPlain() bool {
	values := b.job.Float32
	return b.plan.kind == Probabilities && 0 < len(values) && len(values) <= maxPanelValues &&
		kernel.Plain(values, b.plan.classes, b.plan.sumTolerance+b.job.SumRounding)
}

// compute computes the columns of the current panel, and what the panel needs as a whole.
func compute[T float](b *Batch, p *panel[T]) {
	kernel.Moments(b.columns, p.data, p.passes, p.width, p.stride, b.divisor)
	sumPanel(b, &b.pairs, p)
}

// passes returns how many passes input i has had.
func (b *Batch) passes(i int) int {
	n := b.job.Passes
	if b.job.before != nil {
		n += b.job.before[i].passes
	}
	return n
}

// scratch returns a result for callers that want only something else.
func (b *Batch) scratch() *Result {
	if b.spare == nil {
		b.spare = b.plan.NewResult()
	}
	return b.spare
}
