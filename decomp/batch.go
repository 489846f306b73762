package decomp

import (
	"errors"

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

	// stride is how far the passes of an SNK tensor are apart, where it is part
	// of a larger one; 0 where it is not.
	stride int
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
	plan   *Plan
	tensor Tensor

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
	t.stride = t.Inputs * b.plan.classes
	b.reset(t)
	return nil
}

// Clear lets go of the tensor, and of what was needed for an uncommonly large one.
func (b *Batch) Clear() {
	b.from, b.to, b.tensor = 0, 0, Tensor{}
	b.panel32, b.panel64 = panel[float32]{}, panel[float64]{}
	b.sums = sums{}
	if len(b.probabilities)+len(b.turned32)+len(b.turned64)+len(b.complement.values) > keptScratch {
		b.probabilities, b.turned32, b.turned64, b.complement.values = nil, nil, nil, nil
	}
}

// reset takes a tensor whose shape is right.
func (b *Batch) reset(t Tensor) {
	b.from, b.to, b.tensor = 0, 0, t
	b.divisor = b.plan.divisor(t.Passes)
	if t.part {
		b.divisor = 1
	}
	k, s := b.plan.classes, max(t.Passes, 1)
	inputs := max(panelValues/s, min(fewestColumns, mostPanelValues/s)) / k
	if t.Layout == NSK && k >= turnedClasses {
		inputs = 1
	}
	b.panelInputs = min(max(inputs, 1), len(b.faults), t.Inputs)
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
func (b *Batch) single() bool { return len(b.tensor.Float64) == 0 }

// turns reports whether the panels of the tensor have to be laid out anew.
func (b *Batch) turns() bool {
	return b.tensor.Layout == NSK && b.panelInputs > 1 && b.plan.kind != Logits
}

// isProduct reports whether n = a*b*c for non-negative numbers and c > 0. It
// does not multiply, which a stated shape could make overflow.
func isProduct(n, a, b, c int) bool {
	if a == 0 || b == 0 {
		return n == 0
	}
	return n%c == 0 && n/c%b == 0 && n/c/b == a
}

// Result writes what the passes of input i of the tensor, 0 <= i < Inputs, say
// to r, which must come from the same plan; the type Result has formula, range,
// unit and equation of every field. Its vectors are the Batch's own: they are
// good until the next call. If one of the rows is refused the error is a
// *RowError, and r is not to be used. Inputs are best asked for in order: a
// panel is computed anew when an input outside it is asked for.
func (b *Batch) Result(i int, r *Result) error {
	if i < b.from || i >= b.to {
		b.from, b.to = i, min(i+b.panelInputs, b.tensor.Inputs)
		if b.single() {
			b.panel32 = loadPanel(b, b.tensor.Float32, b.turned32)
		} else {
			if p := loadPanel(b, b.tensor.Float64, b.turned64); b.plan.kind != Logits {
				b.panel64 = p
			}
		}
	}
	at := i - b.from
	if err := b.faults[at]; err != nil {
		return err
	}
	r.view(b.columns, at*b.plan.classes)
	switch {
	case b.plan.kind == Dirichlet:
		b.concentrations(i)
		b.plan.finishDirichlet(&b.dirichlet, r)
	case b.single() && b.plan.kind != Logits:
		finish(b, &b.panel32, at, r)
	default:
		finish(b, &b.panel64, at, r)
	}
	return nil
}

// concentrations takes those of input i.
func (b *Batch) concentrations(i int) {
	if b.single() {
		for k, v := range row(b, b.tensor.Float32, i, 0) {
			b.dirichlet.alpha[k] = float64(v)
		}
		return
	}
	copy(b.dirichlet.alpha, row(b, b.tensor.Float64, i, 0))
}

// finish completes the result of the input at a place in the panel at hand.
func finish[T float](b *Batch, p *panel[T], at int, r *Result) {
	s, k := &b.sums, b.plan.classes
	s.passes, s.divisor = p.passes, b.divisor
	s.identical = isConstant(r.Variance) && identical(p.input(at, k))
	if len(b.plan.pairs) > 0 {
		sumPairs(b, &b.pairs, p, at, &s.co)
		s.roots = b.pairs.roots[at*k : (at+1)*k]
	}
	if b.plan.ovaMI {
		s.rest = ofComplement(b, &b.complement, p.input(at, k), r)
	}
	if b.tensor.part {
		if b.chunk == nil {
			b.chunk, b.merged = newMoments(b.plan), newMoments(b.plan)
		}
		set(b.chunk, b.plan, s, p.input(at, k), r)
		if b.tensor.before == nil {
			return // the moments are all that is asked for
		}
		b.merged.copy(b.tensor.before[b.from+at])
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

// loadPanel checks the rows of the panel at hand and computes its columns. It
// returns the panel; that of logits is b.panel64.
func loadPanel[T float](b *Batch, data, turned []T) panel[T] {
	inputs := b.to - b.from
	clear(b.faults[:inputs])
	if b.turns() {
		turn(b, data, turned)
	}
	source := dataPanel(b, data, turned)
	if !b.tensor.checked {
		checkPanel(b, data, source)
	}
	switch b.plan.kind {
	case Dirichlet:
	case Logits:
		b.panel64 = b.logitsPanel()
		p := &b.panel64
		for s := range p.passes {
			to := p.row(s)
			for i := range inputs {
				if b.faults[i] == nil {
					softmax(to[i*b.plan.classes:(i+1)*b.plan.classes], row(b, data, b.from+i, s))
				}
			}
		}
		kernel.Moments(b.columns, p.data, p.passes, p.width, p.stride, b.divisor)
		sumPanel(b, &b.pairs, p)
	default:
		kernel.Moments(b.columns, source.data, source.passes, source.width, source.stride, b.divisor)
		sumPanel(b, &b.pairs, &source)
	}
	return source
}

// checkPanel refuses the inputs of the panel at hand that have a bad row. Rows
// are looked at one by one only where they are not all good at first sight.
func checkPanel[T float](b *Batch, data []T, p panel[T]) {
	values, quick := any(p.data).([]float32)
	quick = quick && b.plan.kind == Probabilities
	if quick && p.stride == p.width && kernel.Plain(values[:p.passes*p.width], b.plan.classes, b.plan.sumTolerance) {
		return
	}
	for s := range b.tensor.Passes {
		if quick && kernel.Plain(values[s*p.stride:][:p.width], b.plan.classes, b.plan.sumTolerance) {
			continue
		}
		for i := range b.to - b.from {
			if b.faults[i] == nil {
				b.faults[i] = checkRow(b.plan, s, row(b, data, b.from+i, s))
			}
		}
	}
}

// row is pass s of input i of the tensor.
func row[T float](b *Batch, data []T, i, s int) []T {
	k, at := b.plan.classes, 0
	if b.tensor.Layout == NSK {
		at = (i*b.tensor.Passes + s) * k
	} else {
		at = s*b.tensor.stride + i*k
	}
	return data[at : at+k : at+k]
}

// turn lays the panel at hand of an NSK tensor out as SNK.
func turn[T float](b *Batch, data, turned []T) {
	k, width := b.plan.classes, (b.to-b.from)*b.plan.classes
	for i := range b.to - b.from {
		from := data[(b.from+i)*b.tensor.Passes*k:][:b.tensor.Passes*k]
		for s := range b.tensor.Passes {
			copy(turned[s*width+i*k:], from[s*k:(s+1)*k])
		}
	}
}

// dataPanel is the panel at hand in the tensor's own values.
func dataPanel[T float](b *Batch, data, turned []T) panel[T] {
	k, t := b.plan.classes, &b.tensor
	p := panel[T]{passes: t.Passes, width: (b.to - b.from) * k, stride: t.stride}
	switch {
	case b.turns():
		p.data, p.stride = turned, p.width
	case t.Layout == NSK:
		p.data, p.stride = data[b.from*t.Passes*k:], k
	default:
		p.data = data[b.from*k:]
	}
	return p
}

// logitsPanel is the panel at hand as probabilities.
func (b *Batch) logitsPanel() panel[float64] {
	width := (b.to - b.from) * b.plan.classes
	return panel[float64]{b.probabilities, b.tensor.Passes, width, width}
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
