package decomp

// Accumulator takes the passes of one input one at a time.
//
// It keeps means, central co-moments and divergences and updates them by the
// stable recurrences of Welford and Pebay, in O(K + pairs) memory whatever S
// is. Where the two-pass computation of Batch is well conditioned the two agree
// to 1e-12 relative; bounds for hard cases stand at TestHardCases.
type Accumulator struct {
	plan   *Plan
	passes int
	// identical: every pass so far equals the first.
	identical bool

	// Per class. x = p - first is what moments are computed from.
	first, sum   []float64 // first pass; sum of p
	shift        []float64 // mean of x
	m2, m3       []float64 // sums of (x-shift)^2, (x-shift)^3
	div          []float64 // sum of divergence(p, mean)
	delta        []float64 // scratch: x - shift before the newest pass
	restSum      []float64 // per critical class: sum of 1-p
	restDiv      []float64 // per critical class: sum of divergence(1-p, its mean)
	co           []float64 // per pair: sum of (x_a-shift_a)(x_b-shift_b)
	entropy      float64   // sum over the passes of their entropies
	row          []float64 // scratch: the newest pass as float64
	dirichletRow dirichletScratch
}

// NewAccumulator makes an empty accumulator for inputs of the plan.
func (p *Plan) NewAccumulator() *Accumulator {
	k, c := p.classes, len(p.critical)
	block := make([]float64, p.accumulatorFloats())
	take := func(n int) []float64 {
		var s []float64
		s, block = block[:n:n], block[n:]
		return s
	}
	a := &Accumulator{plan: p, row: take(k)}
	if p.kind == Dirichlet {
		a.dirichletRow = dirichletScratch{take(k), take(k)}
		return a
	}
	a.first, a.sum, a.shift, a.m2, a.m3, a.div, a.delta = take(k), take(k), take(k), take(k), take(k), take(k), take(k)
	a.restSum, a.restDiv, a.co = take(c), take(c), take(len(p.pairs))
	return a
}

// AccumulatorBytes is the memory that one accumulator holds, for budgets.
func (p *Plan) AccumulatorBytes() int {
	const header = 512 // the struct itself, rounded up
	return header + 8*p.accumulatorFloats()
}

func (p *Plan) accumulatorFloats() int {
	if p.kind == Dirichlet {
		return 3 * p.classes
	}
	return 8*p.classes + 2*len(p.critical) + len(p.pairs)
}

// Passes taken so far.
func (a *Accumulator) Passes() int { return a.passes }

// Reset makes the accumulator as new.
func (a *Accumulator) Reset() {
	a.passes = 0 // the first Add overwrites everything else
}

// Add takes one pass of K values. It does not keep or write to row. The error
// is a *RowError, or a *PassesError for a second Dirichlet row; the accumulator
// is then as it was.
func (a *Accumulator) Add(row []float64) error { return add(a, row) }

// AddFloat32 is Add for float32 values.
func (a *Accumulator) AddFloat32(row []float32) error { return add(a, row) }

func add[T float](a *Accumulator, row []T) error {
	if err := checkRow(a.plan, a.passes, row); err != nil {
		return err
	}
	switch a.plan.kind {
	case Logits:
		softmax(a.row, row)
	case Dirichlet:
		if a.passes > 0 {
			return &PassesError{Got: a.passes + 1, Least: 1, Most: 1}
		}
		fallthrough
	default:
		for k, v := range row {
			a.row[k] = float64(v)
		}
	}
	if a.plan.kind == Dirichlet {
		a.passes = 1
		return nil
	}
	if a.passes == 0 {
		a.begin()
	} else {
		a.update()
	}
	return nil
}

// begin starts an input with a.row as its first pass.
func (a *Accumulator) begin() {
	a.passes, a.identical = 1, true
	copy(a.first, a.row)
	copy(a.sum, a.row)
	for _, s := range [...][]float64{a.shift, a.m2, a.m3, a.div, a.restDiv, a.co} {
		clear(s)
	}
	for i, k := range a.plan.critical {
		a.restSum[i] = 1 - a.row[k]
	}
	a.entropy = rowEntropy(a.row)
}

// update takes a.row as the next pass.
func (a *Accumulator) update() {
	a.passes++
	n := float64(a.passes)
	a.entropy += rowEntropy(a.row)

	for i, k := range a.plan.critical {
		// The divergence of the complement, from the same difference with its
		// sign changed; see the loop below, which it must precede.
		d := (a.row[k] - a.first[k]) - a.shift[k]
		rest := 1 - a.row[k]
		before := a.restSum[i] / (n - 1)
		a.restSum[i] += rest
		mean := a.restSum[i] / n
		a.restDiv[i] += (n-1)*divergence(before, mean, d/n) + divergence(rest, mean, -d*(n-1)/n)
	}

	for k, p := range a.row {
		x := p - a.first[k]
		if x != 0 {
			a.identical = false
		}
		d := x - a.shift[k]
		a.delta[k] = d
		dn := d / n
		d2 := d * dn * (n - 1)
		a.shift[k] += dn
		a.m3[k] += d2*dn*(n-2) - 3*dn*a.m2[k]
		a.m2[k] += d2

		// With mu the mean before and mu' the one after this pass, the sum of
		// divergences to mu' is that to mu, plus (n-1) times that of mu, plus
		// that of p: all terms are >= 0.
		before := a.sum[k] / (n - 1)
		a.sum[k] += p
		mean := a.sum[k] / n
		a.div[k] += (n-1)*divergence(before, mean, -dn) + divergence(p, mean, d-dn)
	}

	w := (n - 1) / n
	for i, pair := range a.plan.pairs {
		a.co[i] += a.delta[pair.A] * a.delta[pair.B] * w
	}
}

// Finish writes what the passes say to r, which must come from the same plan;
// Result has formula, range, unit and equation of every field.
// The accumulator is not changed: more passes may follow. With fewer passes
// than Plan.FewestPasses the error is a *PassesError, and r is not written to.
func (a *Accumulator) Finish(r *Result) error {
	if least := a.plan.FewestPasses(); a.passes < least {
		return &PassesError{Got: a.passes, Least: least}
	}
	if a.plan.kind == Dirichlet {
		a.plan.finishDirichlet(a.row, &a.dirichletRow, r)
		return nil
	}
	n := float64(a.passes)
	for k, sum := range a.sum {
		r.Mean[k] = sum / n
		if a.m2[k] == 0 && a.shift[k] == 0 {
			r.Mean[k] = a.first[k] // no rounding where the passes are constant
		}
	}
	a.plan.finish(&sums{
		passes: a.passes, m2: a.m2, m3: a.m3, div: a.div, restDiv: a.restDiv, co: a.co,
		entropy: a.entropy, identical: a.identical,
	}, r)
	return nil
}
