package decomp

// maxKept limits how many passes of an input are kept as they are: twice the usual S, and little
// beside a model's weights.
const maxKept = 64

// KeptPasses returns how many passes an Accumulator should keep of an input that is to have the
// given number of passes: all of them, up to 64. 0 passes means that the number is unknown.
func (p *Plan) KeptPasses(passes int) int {
	switch {
	case p.kind == Dirichlet:
		return 1
	case passes <= 0:
		return maxKept
	}
	return min(passes, maxKept)
}

// Accumulator takes the passes of some inputs as they arrive.
//
// It keeps some passes of each input as they are, in a panel like a Batch's. A Batch computes their
// moments at the end, or when there is no room for another pass; the moments of several such parts
// are then joined. Memory is O(N (K + pairs)) whatever S. As long as all passes are kept, the
// results equal those of complete passes bit for bit. Beyond, they agree to 1e-12 relative where
// the computation is well conditioned; TestHardCases states the bounds for hard cases.
type Accumulator[T float] struct {
	plan   *Plan
	rows   int // room for passes
	stride int // from one pass to the next
	values []T
	kept   []int      // by input: passes in values
	before []*moments // by input: moments of the passes before those kept; nil if there are none
	faults []error    // by input: the first bad row that Fill met
	logits []bool     // by input: a pass showed the rows to be logits; nil for other kinds
	spare  []*moments // to be used again
}

// NewAccumulator returns an empty accumulator for N inputs of the plan. It keeps the given number
// of passes, at least 1, of each: see KeptPasses.
func NewAccumulator[T float](p *Plan, inputs, kept int) *Accumulator[T] {
	a := &Accumulator[T]{plan: p}
	a.Reset(inputs, kept)
	return a
}

// AccumulatorBytes returns the memory in bytes that an Accumulator of float32 holds for one input
// if it keeps the given number of passes. joins says whether there may be more passes than that.
func (p *Plan) AccumulatorBytes(kept int, joins bool) int {
	const header = 40 // its elements of slices
	bytes := header + 4*kept*p.classes
	if joins {
		bytes += 8 * momentsFloats(p)
	}
	return bytes
}

// Reset empties the accumulator for N inputs, and makes it keep the given number of passes of each.
// It reuses the memory.
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
		a.stride += 16 // rows a multiple of a page apart would share cache lines
	}
	if n := a.rows * a.stride; cap(a.values) < n {
		a.values = make([]T, n)
	} else {
		a.values = a.values[:n]
	}
	if cap(a.kept) < inputs {
		a.kept, a.before, a.faults = make([]int, inputs), make([]*moments, inputs), make([]error, inputs)
		if a.plan.kind == Logits {
			a.logits = make([]bool, inputs)
		}
	}
	if a.logits != nil {
		a.logits = a.logits[:inputs]
		clear(a.logits)
	}
	a.kept, a.before, a.faults = a.kept[:inputs], a.before[:inputs], a.faults[:inputs]
	clear(a.kept)
	clear(a.before)
	clear(a.faults)
}

// Fits reports whether the accumulator holds not much more memory than N inputs need if it keeps
// the given number of passes of each.
func (a *Accumulator[T]) Fits(inputs, kept int) bool {
	const least = 1 << 10 // numbers that any accumulator may hold
	return cap(a.values) <= max(4*kept*inputs*a.plan.classes, least) && cap(a.kept) <= max(4*inputs, least/8) &&
		len(a.spare) <= 4*inputs
}

// Passes returns how many passes of an input were added.
func (a *Accumulator[T]) Passes(input int) int {
	n := a.kept[input]
	if m := a.before[input]; m != nil {
		n += m.passes
	}
	return n
}

// Add adds one pass of K values to an input. It copies row, clamps the copy where that is due, and
// does not change row. The error is a *RowError, or a *PassesError for a second Dirichlet row; the
// pass is then not added. Add may use b for computation, which overwrites the tensor of b.
func (a *Accumulator[T]) Add(b *Batch, input int, row []T) error {
	clamps, err := checkRow(a.plan, 0, a.Passes(input), row)
	if err != nil {
		return err
	}
	if err := a.makeRoom(b, input, 1); err != nil {
		return err
	}
	a.kept[input]++
	added := a.Latest(input)
	copy(added, row)
	if clamps {
		clamp(added)
	}
	if a.logits != nil {
		a.lookForLogits(input, 1, &panel[T]{added, 1, len(added), len(added)})
	}
	return nil
}

// Latest returns the pass that was added to an input last, as it is kept: K values, clamped where
// that was due. It is valid until the accumulator changes.
func (a *Accumulator[T]) Latest(input int) []T {
	at := (a.kept[input]-1)*a.stride + input*a.plan.classes
	return a.values[at : at+a.plan.classes : at+a.plan.classes]
}

// lookForLogits notes which of neighbouring inputs the added passes show to be of logits. It looks
// no further at an input that earlier passes have shown to be.
func (a *Accumulator[T]) lookForLogits(input, count int, added *panel[T]) {
	for i, shown := range a.logits[input : input+count] {
		if !shown {
			a.logits[input+i] = hasLogits(a.plan, 0, added.input(i, a.plan.classes))
		}
	}
}

// filledAtOnce is how many values Fill asks for at once, unless one pass has more: it checks them while
// they are in the cache, and lets the source do other things between.
const filledAtOnce = 1 << 16

// Source supplies the values for Fill.
type Source[T float] interface {
	// Next writes the next len(to) values to to.
	Next(to []T)
}

// Fill adds passes to neighbouring inputs that have had equally many: passes*count*K values, one
// pass after the other. It reports whether all their rows were good; Fault returns the first bad
// row of an input. An input with a bad row has the pass added and must not be finished.
//
// The error is a *PassesError if no further pass is allowed. As with Add, the tensor of b is lost.
func (a *Accumulator[T]) Fill(b *Batch, input, count, passes int, from Source[T]) (good bool, err error) {
	good = true
	width, first := count*a.plan.classes, input*a.plan.classes
	for passes > 0 {
		if err := a.makeRoom(b, input, count); err != nil {
			return good, err
		}
		n := min(passes, a.rows-a.kept[input], max(1, filledAtOnce/width))
		rows := a.values[a.kept[input]*a.stride+first:]
		if width == a.stride {
			from.Next(rows[:n*width])
		} else {
			for s := range n {
				from.Next(rows[s*a.stride:][:width])
			}
		}
		added := panel[T]{rows, n, width, a.stride}
		fine, clamps := checkPanel(a.plan, 0, a.faults[input:input+count], a.Passes(input), &added)
		good = good && fine
		if clamps {
			added.clamped(true, nil)
		}
		if a.logits != nil {
			a.lookForLogits(input, count, &added)
		}
		for i := range count {
			a.kept[input+i] += n
		}
		passes -= n
	}
	return good, nil
}

// Fault returns the *RowError of the first bad row that Fill added to an input; nil if there was
// none.
func (a *Accumulator[T]) Fault(input int) error { return a.faults[input] }

// makeRoom makes room for another pass of neighbouring inputs. If there is none, it joins the kept
// passes to the moments of those before.
func (a *Accumulator[T]) makeRoom(b *Batch, input, count int) error {
	if a.kept[input] < a.rows {
		return nil
	}
	if a.plan.kind == Dirichlet {
		return &PassesError{Got: a.kept[input] + 1, Least: 1, Most: 1}
	}
	t := a.job(input, count)
	t.part, t.before, t.logits = true, nil, nil
	b.reset(t)
	for i := range count {
		_ = b.Result(i, b.scratch()) // rows were checked
		m := a.detach(b)
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

// detach returns the moments that the batch has just computed, and gives it others to use.
func (a *Accumulator[T]) detach(b *Batch) *moments {
	m := b.joining.chunk
	if n := len(a.spare); n > 0 {
		b.joining.chunk, a.spare = a.spare[n-1], a.spare[:n-1]
	} else {
		b.joining.chunk = newMoments(a.plan)
	}
	return m
}

// Finish hands neighbouring inputs that have had equally many passes to a batch of the same plan,
// whose Result(0) then is of the first. The accumulator must not change until the results are read.
// The error is a *PassesError if there are fewer passes than Plan.FewestPasses. Result returns a
// *RowError for an input whose passes so far are all probabilities, where logits were declared.
func (a *Accumulator[T]) Finish(b *Batch, input, count int) error {
	if got, least := a.Passes(input), a.plan.fewestPasses(); got < least {
		return &PassesError{Got: got, Least: least}
	}
	b.reset(a.job(input, count))
	return nil
}

// job returns the job of computing the kept passes of neighbouring inputs.
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
	if a.logits != nil {
		t.logits = a.logits[input : input+count]
	}
	return t
}
