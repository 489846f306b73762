package follow

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
)

// UnsupportedError is of a policy whose inputs cannot be followed.
type UnsupportedError struct{ Reason string }

func (e *UnsupportedError) Error() string { return e.Reason }

// Plan is what is fixed for all inputs of a policy. It is immutable.
type Plan struct {
	policy    *policy.Policy
	classes   int
	critical  []int
	isCrit    []bool
	moments   []int // classes whose variance is kept
	crit      []int // places of the critical classes among them
	skewness  bool
	safe      []int
	pairs     int       // safe x critical, all safe ones of the first critical class first
	weights   []float64 // of pairs in cbec; nil where all are 1
	entropies bool      // mean entropy of the rows is kept
	logits    bool
	floats    int // numbers of one input

	// What the policy says in words, to be compared quickly.
	primary, fallback       held
	anyCritical             bool // or the deciding class, where skewness is read
	predictedSafe, sampling bool
	ofMean                  bool // a score needs the entropy of the mean
}

// held is a score and what it is held against.
type held struct {
	score     decomp.Score
	reached   bool
	threshold float64
	inverted  float64 // 1/(threshold+e)
}

// e is added to scores and thresholds before they are divided.
const e = 1e-12

func newHeld(r policy.Rule, reached bool) held {
	score, _ := decomp.ParseScore(string(r.Score))
	return held{score, reached, r.Threshold, 1 / (max(r.Threshold, 0) + e)}
}

// NewPlan prepares to follow inputs under a policy with thresholds. The error is an
// *UnsupportedError for Dirichlet rows, which have one pass, for a policy that only
// observes, and for score ova_mi, which takes 2 logarithms a pass and critical class.
func NewPlan(p *policy.Policy) (*Plan, error) {
	unsupported := func(format string, args ...any) (*Plan, error) {
		return nil, &UnsupportedError{fmt.Sprintf(format, args...)}
	}
	switch {
	case p.Kind == policy.Dirichlet:
		return unsupported("kind %s: expected rows that come in passes", p.Kind)
	case p.Observes():
		return unsupported("the policy has no thresholds: expected one that decides")
	}
	f := &Plan{policy: p, classes: len(p.Classes), critical: p.Critical, logits: p.Kind == policy.Logits,
		isCrit: make([]bool, len(p.Classes)), skewness: p.Gate.ReadsSkewness()}
	for _, k := range p.Critical {
		f.isCrit[k] = true
	}
	uses := map[policy.Score]bool{}
	if p.Gate.ReachesPrimary() {
		uses[p.Primary.Score] = true
	}
	if p.Gate.ReachesFallback() {
		uses[p.Fallback.Score] = true
	}
	if uses[policy.OvAMI] {
		return unsupported("score %s cannot be followed pass by pass", policy.OvAMI)
	}
	for k := range f.classes {
		if f.isCrit[k] || uses[policy.EUVar] {
			if f.isCrit[k] {
				f.crit = append(f.crit, len(f.moments))
			}
			f.moments = append(f.moments, k)
		}
	}
	f.entropies = uses[policy.MI]
	f.ofMean = uses[policy.MI] || uses[policy.Entropy]
	f.primary, f.fallback = newHeld(p.Primary, p.Gate.ReachesPrimary()), newHeld(p.Fallback, p.Gate.ReachesFallback())
	f.anyCritical = p.Gate == policy.AnyCritical
	f.predictedSafe, f.sampling = p.Scope == policy.PredictedSafe, p.Variance != policy.Population
	if uses[policy.CBEC] {
		f.safe, f.pairs = p.Safe, len(p.Safe)*len(p.Critical)
		for _, w := range p.PairWeights {
			if f.weights == nil {
				f.weights = slices.Repeat([]float64{1}, f.pairs)
			}
			f.weights[slices.Index(p.Critical, w.Critical)*len(p.Safe)+slices.Index(p.Safe, w.Safe)] = w.Weight
		}
	}
	f.floats = f.classes + len(f.moments) + f.pairs
	if f.skewness {
		f.floats += len(f.moments)
	}
	return f, nil
}

// Bytes is the memory that one followed input holds, for budgets.
func (p *Plan) Bytes() int { return 8*p.floats + 32 }

// Inputs are inputs whose passes are coming in.
type Inputs struct {
	plan   *Plan
	state  []state
	sums   []float64
	before []float64 // scratch: deviations from the means before the pass
	apart  []float64 // scratch: the same of the safe classes, or 1/sqrt(mu+Epsilon)
	row    []float64 // scratch: probabilities
	skew   []float64 // scratch, per class
}

// state is what is kept of an input beside its sums.
type state struct {
	passes    int
	peak      float64 // largest critical mass of a pass
	entropy   float64 // sum of the rows' entropies
	different bool
}

// NewInputs makes room for n inputs.
func (p *Plan) NewInputs(n int) *Inputs {
	k := p.classes
	return &Inputs{plan: p, state: make([]state, n), sums: make([]float64, n*p.floats),
		before: make([]float64, k), apart: make([]float64, k), row: make([]float64, k), skew: make([]float64, k)}
}

// Reset makes input i as new.
func (in *Inputs) Reset(i int) {
	in.state[i] = state{}
	clear(in.sums[i*in.plan.floats:][:in.plan.floats])
}

// Passes of input i so far.
func (in *Inputs) Passes(i int) int { return in.state[i].passes }

// errClasses is what a row of another length gets.
var errClasses = errors.New("a row of another number of classes than the policy's")

// Add takes one pass of input i, K values that decomp has checked. It does not keep
// or write to row. The error is for a row of another length.
func (in *Inputs) Add(i int, row []float32) error {
	p := in.plan
	k := p.classes
	if len(row) != k {
		return errClasses
	}
	values := in.row[:k]
	for j, v := range row {
		values[j] = float64(v)
	}
	if p.logits {
		softmax(values)
	}
	s := &in.state[i]
	s.passes++
	n := float64(s.passes)
	inverse := 1 / n
	sums := in.sums[i*p.floats:][:p.floats]
	mean, before := sums[:k], in.before[:k]
	different := false
	for j, v := range values {
		d := v - mean[j]
		before[j] = d
		different = different || d != 0
		mean[j] += d * inverse
	}
	s.different = s.different || different && s.passes > 1
	second := sums[k:][:len(p.moments)]
	rest := sums[k+len(p.moments):]
	if p.skewness {
		third := rest[:len(p.moments)]
		rest = rest[len(p.moments):]
		for j, c := range p.moments {
			d := before[c]
			step := d * inverse
			term := d * step * (n - 1)
			third[j] += term*step*(n-2) - 3*step*second[j]
			second[j] += term
		}
	} else {
		for j, c := range p.moments {
			second[j] += before[c] * before[c] * ((n - 1) * inverse)
		}
	}
	if p.pairs > 0 {
		apart := in.apart[:len(p.safe)]
		for j, c := range p.safe {
			apart[j] = before[c]
		}
		for at, c := range p.critical {
			w := before[c] * ((n - 1) * inverse)
			row := rest[at*len(apart):][:len(apart)]
			for j, d := range apart {
				row[j] += d * w
			}
		}
	}
	mass := 0.0
	for _, c := range p.critical {
		mass += values[c]
	}
	s.peak = max(s.peak, mass)
	if p.entropies {
		s.entropy += entropy(values)
	}
	return nil
}

// Evidence is what the policy needs to know of input i as if no pass were to come.
// Scores that the policy cannot reach are 0, and after one pass all variances are.
// Its Skewness is good until the next call.
func (in *Inputs) Evidence(i int) policy.Evidence {
	var m measured
	in.measure(i, &m)
	different := in.state[i].different
	return policy.Evidence{Predicted: m.top, Primary: m.primary, Fallback: m.fallback,
		PrimaryClass: m.deciding(in.plan.primary), FallbackClass: m.deciding(in.plan.fallback),
		CCritMaxClass: m.critClass, Skewness: in.skew, Degenerate: !different, Saturated: !different && m.most == 1}
}

// Decide is what the policy says of input i as if no pass were to come, though they
// be fewer than it accepts, and the predicted class.
func (in *Inputs) Decide(i int) (policy.Decision, int) {
	e := in.Evidence(i)
	return in.plan.policy.Decide(e), e.Predicted
}

// Statistics fills what a rule looks at, and reports whether the class predicted so
// far is critical.
func (in *Inputs) Statistics(i int, x *settle.Statistics) (critical bool) {
	var m measured
	in.measure(i, &m)
	in.decisive(i, &m, x)
	in.further(i, &m, x)
	return in.plan.isCrit[m.top]
}

// Settled says what input i is settled to by a rule: what Rule.Settled does with its
// Statistics, without those that are not needed.
func (in *Inputs) Settled(i int, r *settle.Rule) settle.Action {
	t := in.state[i].passes
	if t < r.Fewest || t >= r.Passes {
		return settle.Open
	}
	if s := &r.Steps[t-r.Fewest]; s.Retain == -settle.Never && s.Defer == settle.Never {
		return settle.Open
	}
	var m measured
	var x settle.Statistics
	in.measure(i, &m)
	in.decisive(i, &m, &x)
	if x.Values[settle.Own] <= 0 {
		if x.Degenerate {
			return settle.Open
		}
		in.further(i, &m, &x)
	}
	return r.Settled(t, &x)
}

// decisive fills Own, Degenerate, and what goes with them.
func (in *Inputs) decisive(i int, m *measured, x *settle.Statistics) {
	p, s := in.plan, &in.state[i]
	x.Degenerate = !s.different && s.passes > 1
	own, other, by, against := m.primary, m.fallback, &p.primary, &p.fallback
	if !by.reached || against.reached && in.fallsBack(m) {
		own, other, by, against = other, own, against, by
	}
	x.Values[settle.Own] = by.ratio(own)
	x.Values[settle.Other] = 0
	if against.reached {
		x.Values[settle.Other] = against.ratio(other)
	}
	x.Values[settle.Margin] = 0
	if len(p.critical) > 0 {
		x.Values[settle.Margin] = bounded(logarithm((m.critMost + 1e-9) / (m.otherMost + 1e-9)))
	}
	if p.predictedSafe {
		x.Values[settle.Own] = min(x.Values[settle.Own], -x.Values[settle.Margin])
		if p.isCrit[m.top] { // ties too
			x.Values[settle.Own] = min(x.Values[settle.Own], 0)
		}
	}
}

// further fills what remains.
func (in *Inputs) further(i int, m *measured, x *settle.Statistics) {
	x.Values[settle.Doubt] = bounded(logarithm(1 - m.most + 2e-9))
	x.Values[settle.Peak] = 0
	if len(in.plan.critical) > 0 {
		peak := min(in.state[i].peak, 1)
		x.Values[settle.Peak] = bounded(logarithm((peak + 1e-6) / (1 - peak + 1e-6)))
	}
}

// ratio is the logarithm of a score over the threshold, above 0 exactly where the
// score is above it.
func (h *held) ratio(score float64) float64 {
	v := bounded(logarithm((score + e) * h.inverted))
	if score > h.threshold {
		return max(v, 1e-12)
	}
	return min(v, 0)
}

// fallsBack is the policy's gate.
func (in *Inputs) fallsBack(m *measured) bool {
	limit := in.plan.policy.ReliabilityThreshold
	if !in.plan.anyCritical {
		return m.critClass >= 0 && !(in.skew[m.critClass] <= limit)
	}
	for _, c := range in.plan.critical {
		if !(in.skew[c] <= limit) {
			return true
		}
	}
	return false
}

// measured is what the passes of an input say so far.
type measured struct {
	top                        int     // class of the largest mean
	most, critMost, otherMost  float64 // largest means: of all, of critical, of other classes
	varMax, varSum, cMax, cSum float64
	varAll, entropy, mi, cbec  float64
	critClass, pairClass       int
	primary, fallback          float64
}

// measure input i.
func (in *Inputs) measure(i int, m *measured) {
	p, s := in.plan, &in.state[i]
	k := p.classes
	sums := in.sums[i*p.floats:][:p.floats]
	mean, second, rest := sums[:k], sums[k:][:len(p.moments)], sums[k+len(p.moments):]
	n := float64(s.passes)
	scale := 1.0
	if !p.sampling {
		scale = 1 / n
	} else if s.passes > 1 {
		scale = 1 / (n - 1)
	}
	m.critClass, m.pairClass = -1, -1
	top, most, beyond := 0, mean[0], mean[0]*(1+1e-12)
	for c, mu := range mean {
		if mu > beyond {
			top, most, beyond = c, mu, mu*(1+1e-12)
		}
	}
	m.top, m.most, m.otherMost = top, most, most
	if p.isCrit[top] {
		m.otherMost = 0
		for c, mu := range mean {
			if mu > m.otherMost && !p.isCrit[c] {
				m.otherMost = mu
			}
		}
	}
	if len(p.crit) > 0 {
		m.critClass = p.critical[0]
	}
	for at, j := range p.crit {
		mu, v := mean[p.critical[at]], second[j]*scale
		c := 0.5 * v / (mu + decomp.Epsilon)
		m.varSum += v
		m.cSum += c
		if mu > m.critMost {
			m.critMost = mu
		}
		if v > m.varMax {
			m.varMax = v
		}
		if c > m.cMax*(1+1e-12) {
			m.critClass = p.critical[at]
		}
		if c > m.cMax {
			m.cMax = c
		}
	}
	if p.skewness {
		third := rest[:len(p.moments)]
		rest = rest[len(p.moments):]
		for at, j := range p.crit {
			c := p.critical[at]
			in.skew[c] = 0
			if spread := 3 * mean[c] * second[j] * scale; spread > 0 {
				in.skew[c] = math.Abs(third[j]/n) / spread
			}
		}
	}
	if len(second) > len(p.crit) {
		for _, v := range second {
			m.varAll += v * scale
		}
	}
	if p.pairs > 0 {
		in.pairs(m, mean, rest, 0.5*scale)
	}
	if p.ofMean {
		m.entropy = entropy(mean)
		m.mi = max(0, m.entropy-s.entropy/max(n, 1))
	}
	if p.primary.reached {
		m.primary = m.score(p.primary.score)
	}
	if p.fallback.reached {
		m.fallback = m.score(p.fallback.score)
	}
}

// score by its name.
func (m *measured) score(s decomp.Score) float64 {
	switch s {
	case decomp.CCritMax:
		return m.cMax
	case decomp.CBEC:
		return m.cbec
	case decomp.CCritSum:
		return m.cSum
	case decomp.VarCrit:
		return m.varMax
	case decomp.EUVarCrit:
		return m.varSum
	case decomp.EUVar:
		return m.varAll
	case decomp.MaxProb:
		return 1 - m.most
	case decomp.Entropy:
		return m.entropy
	case decomp.MI:
		return m.mi
	}
	return math.NaN()
}

// deciding is the class that sets a score, -1 for none.
func (m *measured) deciding(h held) int {
	switch {
	case !h.reached:
	case h.score == decomp.CCritMax:
		return m.critClass
	case h.score == decomp.CBEC:
		return m.pairClass
	}
	return -1
}

// bounded, with a NaN as it is.
func bounded(v float64) float64 {
	if v > settle.Bound {
		return settle.Bound
	}
	if v < -settle.Bound {
		return -settle.Bound
	}
	return v
}

// logarithm to 3e-6, continuous and exact at powers of 2: a statistic may be any such
// function, as long as it is the same where rules are learned and where they are used.
// It costs a fifth of math.Log.
func logarithm(v float64) float64 {
	const least, most = 1e-300, 1e300
	if !(v >= least && v <= most) {
		return math.Log(v)
	}
	// v = 2^n (1+x) with 0 <= x < 1; log2(1+x) by a polynomial that is 0 at 0 and 1 at 1.
	bits := math.Float64bits(v)
	n := int(bits>>52) - 1023
	x := math.Float64frombits(bits&(1<<52-1)|1023<<52) - 1
	x2 := x * x
	low := 1.4425449424414123 - 0.7181452413425473*x + (0.4575491290511508-0.2779052132869194*x)*x2
	high := 0.12179779491382899 - 0.02584141177692545*x
	return (float64(n) + x*(low+high*x2*x2)) * math.Ln2
}

// pairs fills cbec and its class from the sums of products.
func (in *Inputs) pairs(m *measured, mean, products []float64, half float64) {
	p := in.plan
	roots := in.apart[:len(p.safe)]
	for j, c := range p.safe {
		roots[j] = 1 / math.Sqrt(mean[c]+decomp.Epsilon)
	}
	best := 0.0
	for at, c := range p.critical {
		// |x| - x is -2 min(x, 0), without a branch that nobody could foresee.
		row, share := products[at*len(roots):][:len(roots)], 0.0
		if p.weights == nil {
			for j, root := range roots {
				share += (math.Abs(row[j]) - row[j]) * root
			}
		} else {
			for j, w := range p.weights[at*len(roots):][:len(roots)] {
				share += (math.Abs(row[j]) - row[j]) * roots[j] * w
			}
		}
		if share == 0 {
			continue
		}
		share *= 0.5 * half / math.Sqrt(mean[c]+decomp.Epsilon)
		m.cbec += share
		if share > best*(1+1e-12) {
			best, m.pairClass = share, c
		}
	}
}

// entropy is -sum_k p_k log p_k, nats.
func entropy(p []float64) float64 {
	h := 0.0
	for _, v := range p {
		if v > 0 {
			h -= v * math.Log(v)
		}
	}
	return h
}

// softmax in place, shifted by the largest so that nothing overflows.
func softmax(z []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range z {
		top = max(top, v)
	}
	for k, v := range z {
		z[k] = math.Exp(v - top)
		sum += z[k]
	}
	for k := range z {
		z[k] /= sum
	}
}
