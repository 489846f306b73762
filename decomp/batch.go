package decomp

import (
	"errors"
	"math/bits"

	"github.com/ckd-project/ckd/internal/kernel"
)

// Layout says in which order a tensor's values come.
type Layout uint8

// The layouts.
const (
	SNK Layout = iota // [passes][inputs][classes]
	NSK               // [inputs][passes][classes]
)

// Tensor is the complete passes of some inputs. At most one of the two slices
// may be set; it has Passes*Inputs*K values.
type Tensor struct {
	Passes, Inputs int
	Layout         Layout
	Float32        []float32
	Float64        []float64
	// SumRounding is by how much the sum of a row of probabilities may be off for the
	// rounding of the values before they came here, on top of the plan's tolerance.
	SumRounding float64
}

// job is a tensor to compute, and how.
type job struct {
	Tensor
	stride int // how far the passes of an SNK tensor are apart
	// checked rows need not be checked again.
	checked bool
	// part: the passes are not all there are. Sums of squares are then left as
	// they are, for moments to be merged; before is, by input, the earlier ones'.
	part   bool
	before []*moments
}

// Batch computes complete passes by going over them twice: means first, then
// the moments about them.
//
// It works on panels of neighbouring inputs. A panel is S rows of columns, one
// column for each input and class; the arithmetic of columns is the kernel's.
type Batch struct {
	plan *Plan
	job  job

	panel32     panel[float32]
	panel64     panel[float64]
	divisor     float64 // of sums of squares
	panelInputs int     // inputs of a full panel
	from, to    int     // inputs of the panel at hand
	columns     *kernel.Columns
	faults      []error // per input of the panel
	pairs       comoments
	sums        sums // of the input asked for last
	complement  complement
	chunk       *moments // of the input asked for last, where the tensor is a part
	merged      *moments // the same with its earlier passes
	spare       *Result
	dirichlet   dirichletScratch

	// The panel where it is not in the tensor as it has to be: logits as
	// probabilities, and NSK as SNK.
	probabilities []float64
	turned32      []float32
	turned64      []float64
}

const (
	// mostColumns is how many columns a panel may have, but for one input of more
	// classes; a panel of fewest is worth the call.
	mostColumns, fewestColumns = 1024, 64
	// panelValues is about how many values of a panel stay in the cache.
	panelValues = 1 << 13
	// mostPanelValues is up to how many values a panel is made wider than it need
	// be, where its passes are many.
	mostPanelValues = 1 << 17
	// keptScratch is how many numbers a Batch keeps room for between tensors.
	keptScratch = 1 << 18
	// turnedClasses is from how many on the passes of one NSK input are a panel
	// that is wide enough.
	turnedClasses = 32
)

// NewBatch makes a Batch for inputs of the plan.
func (p *Plan) NewBatch() *Batch {
	inputs := max(1, mostColumns/p.classes)
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

// Reset takes a tensor to compute. Its values are read, never written to, until
// the next call of Reset. The error is a *ShapeError if the number of values is
// not Passes*Inputs*K, a *PassesError if there are too few passes (2 at least; for
// Dirichlet rows exactly 1), or another if there are values in both slices.
func (b *Batch) Reset(t Tensor) error {
	b.Clear()
	if len(t.Float32) > 0 && len(t.Float64) > 0 {
		return errors.New("a tensor of float32 and float64 values: expected one of them")
	}
	got := len(t.Float32) + len(t.Float64)
	if t.Passes < 0 || t.Inputs < 0 || !isProduct(got, t.Passes, t.Inputs, b.plan.classes) {
		return &ShapeError{t.Passes, t.Inputs, b.plan.classes, got}
	}
	if least := b.plan.FewestPasses(); t.Passes < least {
		return &PassesError{Got: t.Passes, Least: least}
	}
	if b.plan.kind == Dirichlet && t.Passes > 1 {
		return &PassesError{Got: t.Passes, Least: 1, Most: 1}
	}
	b.reset(job{Tensor: t, stride: t.Inputs * b.plan.classes})
	return nil
}

// Clear lets go of the tensor, and of what was needed for an uncommonly large one.
func (b *Batch) Clear() {
	b.from, b.to, b.job = 0, 0, job{}
	b.panel32, b.panel64 = panel[float32]{}, panel[float64]{}
	b.sums = sums{}
	if len(b.probabilities)+len(b.turned32)+len(b.turned64)+len(b.complement.values) > keptScratch {
		b.probabilities, b.turned32, b.turned64, b.complement.values = nil, nil, nil, nil
	}
}

// reset takes a job whose shape is right.
func (b *Batch) reset(t job) {
	b.from, b.to, b.job = 0, 0, t
	b.divisor = b.plan.divisor(t.Passes)
	if t.part {
		b.divisor = 1
	}
	k, s := b.plan.classes, max(t.Passes, 1)
	b.panelInputs = min(t.Inputs, 1)
	if t.Inputs > 1 && (t.Layout == SNK || k < turnedClasses) {
		inputs := max(panelValues/s, min(fewestColumns, mostPanelValues/s)) / k
		b.panelInputs = min(max(inputs, 1), len(b.faults), t.Inputs)
	}
	values := s * b.panelInputs * k
	if b.plan.kind == Logits && len(b.probabilities) < values {
		b.probabilities = make([]float64, values)
	}
	if b.turns() && b.single() && len(b.turned32) < values {
		b.turned32 = make([]float32, values)
	}
	if b.turns() && !b.single() && len(b.turned64) < values {
		b.turned64 = make([]float64, values)
	}
}

// single reports whether the values are float32.
func (b *Batch) single() bool { return len(b.job.Float64) == 0 }

// turns reports whether the panels of the tensor have to be laid out anew.
func (b *Batch) turns() bool {
	return b.job.Layout == NSK && b.panelInputs > 1
}

// isProduct reports whether n = a*b*c for non-negative numbers, which a stated shape
// could make overflow.
func isProduct(n, a, b, c int) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	over, product := bits.Mul64(low, uint64(c))
	return high == 0 && over == 0 && product == uint64(n)
}

// Result writes what the passes of input i of the tensor, 0 <= i < Inputs, say
// to r, which must come from the same plan; the type Result has formula, range,
// unit and equation of every field. Its vectors are the Batch's own: they are
// good until the next call. If one of the rows is refused the error is a
// *RowError, and r is not to be used. Inputs are best asked for in order: a
// panel is computed anew when an input outside it is asked for.
func (b *Batch) Result(i int, r *Result) error {
	if i < b.from || i >= b.to {
		b.from, b.to = i, min(i+b.panelInputs, b.job.Inputs)
		if b.single() {
			b.panel32 = newPanel(b, b.job.Float32, b.turned32)
			load(b, &b.panel32)
		} else {
			b.panel64 = newPanel(b, b.job.Float64, b.turned64)
			load(b, &b.panel64)
		}
	}
	at := i - b.from
	if err := b.faults[at]; err != nil {
		return err
	}
	r.view(b.columns, at*b.plan.classes)
	if b.single() && b.plan.kind != Logits {
		finish(b, &b.panel32, at, r)
	} else {
		finish(b, &b.panel64, at, r)
	}
	return nil
}

// finish completes the result of the input at a place in the panel at hand.
func finish[T float](b *Batch, p *panel[T], at int, r *Result) {
	s, k := &b.sums, b.plan.classes
	if b.plan.kind == Dirichlet {
		for j, v := range p.input(at, k).row(0) {
			b.dirichlet.alpha[j] = float64(v)
		}
		b.plan.finishDirichlet(&b.dirichlet, r)
		return
	}
	s.passes, s.divisor = p.passes, b.divisor
	s.identical = isConstant(r.Variance) && identical(p.input(at, k))
	if len(b.plan.pairs) > 0 {
		sumPairs(b, &b.pairs, p, at, &s.co)
		s.roots = b.pairs.roots[at*k : (at+1)*k]
	}
	if b.plan.ovaMI {
		s.rest = ofComplement(b, &b.complement, p.input(at, k), r)
	}
	if b.job.part {
		if b.chunk == nil {
			b.chunk, b.merged = newMoments(b.plan), newMoments(b.plan)
		}
		set(b.chunk, b.plan, s, p.input(at, k), r)
		if b.job.before == nil {
			return // the moments are all that is asked for
		}
		b.merged.copy(b.job.before[b.from+at])
		b.merged.join(b.plan, b.chunk)
		b.merged.tell(b.plan, s, r)
	}
	b.plan.finish(s, r)
}

// panel is S rows of columns: row s is data[s*stride:][:width].
type panel[T float] struct {
	data                  []T
	passes, width, stride int
}

// row is the values of pass s.
func (p panel[T]) row(s int) []T {
	at := s * p.stride
	return p.data[at : at+p.width : at+p.width]
}

// input is the columns of the input at a place.
func (p *panel[T]) input(at, classes int) panel[T] {
	return panel[T]{p.data[at*classes:], p.passes, classes, p.stride}
}

// newPanel is the panel at hand in the tensor's own values, which those of an NSK
// tensor are laid out anew for, if there is more than one input.
func newPanel[T float](b *Batch, data, turned []T) panel[T] {
	k, s, inputs := b.plan.classes, b.job.Passes, b.to-b.from
	width := inputs * k
	switch {
	case b.turns():
		for i := range inputs {
			from := data[(b.from+i)*s*k:][:s*k]
			for pass := range s {
				copy(turned[pass*width+i*k:], from[pass*k:(pass+1)*k])
			}
		}
		return panel[T]{turned, s, width, width}
	case b.job.Layout == NSK:
		return panel[T]{data[b.from*s*k:], s, k, k}
	}
	return panel[T]{data[b.from*k:], s, width, b.job.stride}
}

// load checks the rows of the panel at hand and computes its columns: those of
// logits from b.panel64, which they are written to as probabilities.
func load[T float](b *Batch, p *panel[T]) {
	faults := b.faults[:b.to-b.from]
	clear(faults)
	if !b.job.checked && b.from == 0 {
		b.job.checked = b.allPlain()
	}
	if !b.job.checked {
		checkPanel(b.plan, b.job.SumRounding, faults, 0, p)
	}
	switch b.plan.kind {
	case Dirichlet:
	case Logits:
		probabilities := panel[float64]{b.probabilities, p.passes, p.width, p.width}
		for s := range p.passes {
			from, to := p.row(s), probabilities.row(s)
			for i, k := 0, b.plan.classes; i < len(faults); i++ {
				if faults[i] == nil {
					softmax(to[i*k:(i+1)*k], from[i*k:(i+1)*k])
				}
			}
		}
		b.panel64 = probabilities
		compute(b, &b.panel64)
	default:
		compute(b, p)
	}
}

// allPlain reports whether the rows of all panels are good at first sight. Rows of a
// panel that lie apart would take a call for each pass. More values than stay in
// the cache are looked at with their panels.
func (b *Batch) allPlain() bool {
	values := b.job.Float32
	return b.plan.kind == Probabilities && 0 < len(values) && len(values) <= mostPanelValues &&
		kernel.Plain(values, b.plan.classes, b.plan.sumTolerance+b.job.SumRounding)
}

// compute computes the columns of the panel at hand, and what goes for it as a whole.
func compute[T float](b *Batch, p *panel[T]) {
	kernel.Moments(b.columns, p.data, p.passes, p.width, p.stride, b.divisor)
	sumPanel(b, &b.pairs, p)
}

// scratch is a result for those who look at something else.
func (b *Batch) scratch() *Result {
	if b.spare == nil {
		b.spare = b.plan.NewResult()
	}
	return b.spare
}

// isConstant reports whether no value of the passes differs from the others,
// unless by less than what underflows.
func isConstant(variance []float64) bool {
	for _, v := range variance {
		if v != 0 {
			return false
		}
	}
	return true
}

// identical reports whether all passes are equal.
func identical[T float](p panel[T]) bool {
	first := p.row(0)
	for s := 1; s < p.passes; s++ {
		for k, v := range p.row(s) {
			if v != first[k] {
				return false
			}
		}
	}
	return true
}
