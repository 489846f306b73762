package decomp

// mostKept is how many passes of an input that come one by one are kept as they
// are: twice the usual S, and little beside a model's weights.
const mostKept = 64

// KeptPasses is how many passes an Accumulator should keep of inputs that are to
// have so many, or, for 0, nobody knows how many: all, up to 64.
func (p *Plan) KeptPasses(passes int) int {
	switch {
	case p.kind == Dirichlet:
		return 1
	case passes <= 0:
		return mostKept
	}
	return min(passes, mostKept)
}

// Accumulator takes the passes of some inputs as they come.
//
// It keeps some passes of each input as they are, in a panel like a Batch's, and
// leaves the arithmetic to a Batch: at the end, or whenever there is no room for
// another pass, and what they say is then joined with what earlier ones said.
// Memory is O(N (K + pairs)) whatever S is. As long as all passes are kept the
// results are those of complete passes, bit for bit; beyond, they agree to 1e-12
// relative where the computation is well conditioned, and the bounds for hard
// cases stand at TestHardCases.
type Accumulator[T float] struct {
	plan   *Plan
	rows   int // passes that there is room for
	stride int // from a pass to the next
	values []T
	kept   []int      // passes of each input that are kept
	before []*moments // what earlier ones say; nil where there are none
	faults []error
	spare  []*moments
}

// NewAccumulator makes an empty accumulator for N inputs of the plan that keeps
// so many passes, at least 1: see KeptPasses.
func NewAccumulator[T float](p *Plan, inputs, kept int) *Accumulator[T] {
	a := &Accumulator[T]{plan: p}
	a.Reset(inputs, kept)
	return a
}

// AccumulatorBytes is the memory that an Accumulator of float32 which keeps so
// many passes holds for one input, for budgets; joins says whether there may be
// more passes than that.
func (p *Plan) AccumulatorBytes(kept int, joins bool) int {
	const header = 40 // its places in slices
	bytes := header + 4*kept*p.classes
	if joins {
		bytes += 8 * momentsFloats(p)
	}
	return bytes
}

// Reset makes the accumulator as new, for N inputs of which it keeps so many
// passes, and uses its memory again.
func (a *Accumulator[T]) Reset(inputs, kept int) {
	for _, m := range a.before {
		if m != nil {
			a.spare = append(a.spare, m)
		}
	}
	a.rows = max(kept, 1)
	if a.plan.kind == Dirichlet {
		a.rows = 1
	}
	a.stride = inputs * a.plan.classes
	if a.stride%1024 == 0 {
		a.stride += 16 // multiples of a page would fall into the same lines of the cache
	}
	if n := a.rows * a.stride; cap(a.values) < n {
		a.values = make([]T, n)
	} else {
		a.values = a.values[:n]
	}
	if cap(a.kept) < inputs {
		a.kept, a.before, a.faults = make([]int, inputs), make([]*moments, inputs), make([]error, inputs)
	}
	a.kept, a.before, a.faults = a.kept[:inputs], a.before[:inputs], a.faults[:inputs]
	clear(a.kept)
	clear(a.before)
	clear(a.faults)
}

// Fits reports whether the accumulator's memory is not much more than N inputs of
// which it keeps so many passes need.
func (a *Accumulator[T]) Fits(inputs, kept int) bool {
	const least = 1 << 10 // numbers, that are kept in any case
	return cap(a.values) <= max(4*kept*inputs*a.plan.classes, least) && cap(a.kept) <= max(4*inputs, least/8) &&
		len(a.spare) <= 4*inputs
}

// Passes of an input taken so far.
func (a *Accumulator[T]) Passes(input int) int {
	n := a.kept[input]
	if m := a.before[input]; m != nil {
		n += m.passes
	}
	return n
}

// Add takes one pass of K values of an input. It does not keep or write to row.
// The error is a *RowError, or a *PassesError for a second Dirichlet row; the
// pass is then not counted. Batch b is to compute with: what it was computing is
// lost.
func (a *Accumulator[T]) Add(b *Batch, input int, row []T) error {
	if err := checkRow(a.plan, 0, a.Passes(input), row); err != nil {
		return err
	}
	if err := a.makeRoom(b, input, 1); err != nil {
		return err
	}
	copy(a.values[a.kept[input]*a.stride+input*a.plan.classes:], row)
	a.kept[input]++
	return nil
}

// Source is where values come from.
type Source[T float] interface {
	// Next writes the next len(to) values to it.
	Next(to []T)
}

// Fill takes so many passes of neighbouring inputs, which have had equally many:
// passes*count*K values, one pass after the other. It reports whether no input met
// its first bad row; of those that did, Fault tells it. An input with a bad row has
// taken it, and is not to be finished. The error is a *PassesError where no further
// pass is allowed. Batch b is to compute with, as in Add.
func (a *Accumulator[T]) Fill(b *Batch, input, count, passes int, from Source[T]) (good bool, err error) {
	good = true
	width, first := count*a.plan.classes, input*a.plan.classes
	for passes > 0 {
		if err := a.makeRoom(b, input, count); err != nil {
			return good, err
		}
		n := min(passes, a.rows-a.kept[input])
		at := a.values[a.kept[input]*a.stride+first:]
		if width == a.stride {
			from.Next(at[:n*width])
		} else {
			for s := range n {
				from.Next(at[s*a.stride:][:width])
			}
		}
		taken := panel[T]{at, n, width, a.stride}
		if !checkPanel(a.plan, 0, a.faults[input:input+count], a.Passes(input), &taken) {
			good = false
		}
		for i := range count {
			a.kept[input+i] += n
		}
		passes -= n
	}
	return good, nil
}

// Fault is the *RowError of the first bad row that Fill took of an input; nil if
// there was none.
func (a *Accumulator[T]) Fault(input int) error { return a.faults[input] }

// makeRoom makes room for another pass of neighbouring inputs.
func (a *Accumulator[T]) makeRoom(b *Batch, input, count int) error {
	if a.kept[input] < a.rows {
		return nil
	}
	if a.plan.kind == Dirichlet {
		return &PassesError{Got: a.kept[input] + 1, Least: 1, Most: 1}
	}
	t := a.job(input, count)
	t.part, t.before = true, nil
	b.reset(t)
	for i := range count {
		_ = b.Result(i, b.scratch()) // rows were checked
		m := a.take(b)
		if before := a.before[input+i]; before != nil {
			before.join(a.plan, m)
			a.spare = append(a.spare, m)
		} else {
			a.before[input+i] = m
		}
		a.kept[input+i] = 0
	}
	return nil
}

// take is the moments that the batch has just computed; the batch gets others.
func (a *Accumulator[T]) take(b *Batch) *moments {
	m := b.chunk
	if n := len(a.spare); n > 0 {
		b.chunk, a.spare = a.spare[n-1], a.spare[:n-1]
	} else {
		b.chunk = newMoments(a.plan)
	}
	return m
}

// Finish gives neighbouring inputs, which have had equally many passes, to a
// batch of the same plan: its Result 0 is of the first. The accumulator must not
// change until then. With fewer passes than Plan.FewestPasses the error is a
// *PassesError.
func (a *Accumulator[T]) Finish(b *Batch, input, count int) error {
	if got, least := a.Passes(input), a.plan.FewestPasses(); got < least {
		return &PassesError{Got: got, Least: least}
	}
	b.reset(a.job(input, count))
	return nil
}

// job is to compute the passes of neighbouring inputs that are kept.
func (a *Accumulator[T]) job(input, count int) job {
	t := job{Tensor: Tensor{Passes: a.kept[input], Inputs: count}, stride: a.stride, checked: true}
	switch values := any(a.values[input*a.plan.classes:]).(type) {
	case []float32:
		t.Float32 = values
	case []float64:
		t.Float64 = values
	}
	if a.before[input] != nil {
		t.part, t.before = true, a.before[input:input+count]
	}
	return t
}
