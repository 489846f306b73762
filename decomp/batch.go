package decomp

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
}

// Batch computes complete passes by going over them twice: means first, then
// the moments about them.
//
// It works on panels of neighbouring inputs. A panel is S rows of columns, one
// column for each input and class, and what is kept per column stays in the
// processor's cache; see panel.go for the arithmetic.
type Batch struct {
	plan   *Plan
	tensor Tensor

	panelInputs   int // inputs of a full panel
	from, to      int // inputs of the panel at hand
	columns       columns
	faults        []error   // per input of the panel
	probabilities []float64 // the panel's softmax, where the tensor has logits
	cross         cross     // of one input
	dirichletRow  dirichletScratch
}

const (
	// panelColumns is about how many columns a panel has.
	panelColumns = 1024
	// panelValues is about how many values of logits are turned into
	// probabilities at a time.
	panelValues = 1 << 16
)

// NewBatch makes a Batch for inputs of the plan.
func (p *Plan) NewBatch() *Batch {
	inputs := max(1, panelColumns/p.classes)
	b := &Batch{
		plan:    p,
		columns: newColumns(inputs * p.classes),
		faults:  make([]error, inputs),
		cross:   newCross(p),
	}
	if p.kind == Dirichlet {
		b.dirichletRow = dirichletScratch{make([]float64, p.classes), make([]float64, p.classes)}
	}
	return b
}

// Reset takes a tensor to compute. Its values are read, never written to, until
// the next call of Reset. The error is a *ShapeError if the number of values is
// not Passes*Inputs*K, or a *PassesError if there are too few passes (2 at
// least; for Dirichlet rows exactly 1).
func (b *Batch) Reset(t Tensor) error {
	b.from, b.to, b.tensor = 0, 0, Tensor{}
	got := len(t.Float32) + len(t.Float64) // a tensor with both is refused for its size
	if t.Passes < 0 || t.Inputs < 0 || !isProduct(got, t.Passes, t.Inputs, b.plan.classes) {
		return &ShapeError{t.Passes, t.Inputs, b.plan.classes, got}
	}
	if least := b.plan.FewestPasses(); t.Passes < least {
		return &PassesError{Got: t.Passes, Least: least}
	}
	if b.plan.kind == Dirichlet && t.Passes > 1 {
		return &PassesError{Got: t.Passes, Least: 1, Most: 1}
	}
	b.tensor = t
	b.panelInputs = len(b.faults)
	if t.Layout == NSK {
		b.panelInputs = 1
	}
	if b.plan.kind == Logits {
		b.panelInputs = max(1, min(b.panelInputs, panelValues/b.plan.classes/t.Passes))
		if n := t.Passes * b.panelInputs * b.plan.classes; len(b.probabilities) < n {
			b.probabilities = make([]float64, n)
		}
	}
	return nil
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
// unit and equation of every field. If one of its rows is refused the error is
// a *RowError, and r is not to be used. Inputs are best asked for in order: a
// panel is computed anew when an input outside it is asked for.
func (b *Batch) Result(i int, r *Result) error {
	if b.tensor.Float32 != nil {
		return result(b, b.tensor.Float32, i, r)
	}
	return result(b, b.tensor.Float64, i, r)
}

func result[T float](b *Batch, data []T, i int, r *Result) error {
	t, k := &b.tensor, b.plan.classes
	if i < b.from || i >= b.to {
		b.from, b.to = i, min(i+b.panelInputs, t.Inputs)
		loadPanel(b, data)
	}
	at := i - b.from
	if err := b.faults[at]; err != nil {
		return err
	}
	if b.plan.kind == Dirichlet {
		b.plan.finishDirichlet(b.columns.mean[at*k:(at+1)*k], &b.dirichletRow, r)
		return nil
	}
	s := b.columns.input(at*k, (at+1)*k, t.Passes, r)
	shift := b.columns.shift[at*k : (at+1)*k]
	if b.plan.kind == Logits {
		crossMoments(b, b.logitsPanel().columns(at*k, (at+1)*k), shift, &s)
	} else {
		crossMoments(b, dataPanel(b, data).columns(at*k, (at+1)*k), shift, &s)
	}
	b.plan.finish(&s, r)
	return nil
}

// loadPanel checks the rows of the panel at hand and computes its columns.
func loadPanel[T float](b *Batch, data []T) {
	k, inputs := b.plan.classes, b.to-b.from
	source := dataPanel(b, data)
	for i := range inputs {
		b.faults[i] = nil
	}
	for s := range source.passes {
		row := source.row(s)
		for i := range inputs {
			if b.faults[i] == nil {
				b.faults[i] = checkRow(b.plan, s, row[i*k:(i+1)*k])
			}
		}
	}
	switch b.plan.kind {
	case Dirichlet:
		for c, v := range source.row(0) {
			b.columns.mean[c] = float64(v)
		}
	case Logits:
		p := b.logitsPanel()
		for s := range source.passes {
			from, to := source.row(s), p.row(s)
			for i := range inputs {
				softmax(to[i*k:(i+1)*k], from[i*k:(i+1)*k])
			}
		}
		twoPass(&b.columns, p)
	default:
		twoPass(&b.columns, source)
	}
}

// dataPanel is the panel at hand in the tensor's own values.
func dataPanel[T float](b *Batch, data []T) panel[T] {
	k, t := b.plan.classes, &b.tensor
	p := panel[T]{passes: t.Passes, width: (b.to - b.from) * k, stride: t.Inputs * k}
	if t.Layout == NSK {
		p.stride = k
		p.data = data[b.from*t.Passes*k:]
	} else {
		p.data = data[b.from*k:]
	}
	return p
}

// logitsPanel is the panel at hand as probabilities.
func (b *Batch) logitsPanel() panel[float64] {
	width := (b.to - b.from) * b.plan.classes
	return panel[float64]{b.probabilities, b.tensor.Passes, width, width}
}
