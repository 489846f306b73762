package follow

import (
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/kernel"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Settled returns what a rule decides on input i, or Open. It must be called after every pass. It
// returns what Rule.Settled returns for the Statistics, but computes only the statistics that are needed,
// and none until the rule looks at the input again.
func (inputs *Inputs) Settled(i int, r *earlystop.Rule) earlystop.Action {
	s := &inputs.inputs[i]
	if s.passes < s.again {
		return earlystop.Open
	}
	step := r.Step(int(s.passes))
	if step == nil || !s.different && s.passes > 1 {
		return earlystop.Open
	}
	var m measured
	inputs.measure(i, &m)
	inputs.setOwn(i, &m)
	side, action := step.Side(m.own)
	beyond := math.Inf(1)
	if side.AtMost != -earlystop.Never {
		var x earlystop.Statistics
		inputs.fill(i, &m, &x)
		beyond = side.Beyond(&x)
	}
	if beyond <= 0 {
		if inputs.unfamiliar(i, &m) {
			return earlystop.Open
		}
		return action
	}
	s.again = int32(r.Again(int(s.passes), beyond))
	return earlystop.Open
}

// Statistics fills x with what a rule looks at, and reports whether the class predicted so far is
// critical.
func (inputs *Inputs) Statistics(i int, x *earlystop.Statistics) (critical bool) {
	var m measured
	inputs.measure(i, &m)
	inputs.setOwn(i, &m)
	inputs.fill(i, &m, x)
	s := &inputs.inputs[i]
	x.Degenerate, x.Unfamiliar = !s.different && s.passes > 1, inputs.unfamiliar(i, &m)
	return inputs.predictsCritical(i, &m)
}

// Evidence returns what the policy decides input i by if no further pass comes. Scores that the
// policy cannot reach are 0, and after one pass all variances are 0. Skewness is valid until the
// next call.
func (inputs *Inputs) Evidence(i int) policy.Evidence {
	p, different := inputs.plan, inputs.inputs[i].different
	var m measured
	inputs.measure(i, &m)
	e := policy.Evidence{Predicted: top(inputs.meansByClass(i)), PrimaryClass: -1, FallbackClass: -1,
		Skewness: inputs.skew, Degenerate: !different, Saturated: !different && m.most == 1}
	critical := inputs.inputs[i].critical
	if p.skewness {
		for at, c := range p.critical {
			inputs.skew[c] = critical[at].skewness(&m)
		}
	}
	fill := func(h held, score *float64, class *int) {
		if !h.reached {
			return
		}
		*score = inputs.score(i, &m, h.score)
		switch h.score {
		case Risk:
			if p.isCrit[e.Predicted] {
				*score = math.NaN()
			}
		case decomp.CCritMax:
			if at := largestC(critical); at >= 0 {
				*class = p.critical[at]
			}
		case decomp.CBEC:
			*class = inputs.pairClass()
		}
	}
	fill(p.primary, &e.Primary, &e.PrimaryClass)
	fill(p.fallback, &e.Fallback, &e.FallbackClass)
	if p.policy.Guard != nil {
		e.Guard = inputs.score(i, &m, p.guard)
	}
	return e
}

// unfamiliar reports whether the guard would find input i by its passes so far.
func (inputs *Inputs) unfamiliar(i int, m *measured) bool {
	guard := inputs.plan.policy.Guard
	return guard != nil && guard.Finds(inputs.score(i, m, inputs.plan.guard))
}

// Decide returns the decision and the predicted class of input i as if no further pass came, even
// where the passes are fewer than the policy accepts.
func (inputs *Inputs) Decide(i int) (policy.Decision, int) {
	e := inputs.Evidence(i)
	return inputs.plan.policy.Decide(e), e.Predicted
}

// measured holds what the passes of an input say so far.
type measured struct {
	inverse, scale            float64 // 1/passes; scale times a sum of squares is a variance
	most, critMost, otherMost float64 // largest means: of all, of the critical, of the other classes
	cMax                      float64
	fallback                  bool    // the fallback score decides, not the primary
	score                     float64 // the one that decides
	own                       float64 // statistic Own
}

// measure fills m with the measurements of input i that every rule needs.
func (inputs *Inputs) measure(i int, m *measured) {
	p, s := inputs.plan, &inputs.inputs[i]
	step := stepOf(s.passes)
	m.inverse, m.scale = step.inverse, step.unbiased
	if !p.sampling {
		m.scale = step.inverse
	}
	critical := s.critical
	critMost, cMax := largestOf(critical)
	most := uint64(0)
	if p.wide {
		most = inputs.largestOther(s.means, critMost)
	} else {
		for _, mu := range s.means {
			most = max(most, size(mu))
		}
	}
	m.otherMost, m.critMost = sized(most), sized(critMost)
	m.most = sized(max(most, critMost))
	m.cMax = 0.5 * m.scale * sized(cMax)
	m.fallback = !p.primary.reached || p.skewness && inputs.fallsBack(critical, m)
	m.score = m.cMax
	if h := p.decider(m); h.score != decomp.CCritMax {
		m.score = inputs.score(i, m, h.score)
	}
}

// by returns the score that decides, with its threshold.
func (p *Plan) decider(m *measured) *held {
	if m.fallback {
		return &p.fallback
	}
	return &p.primary
}

// setOwn fills statistic Own.
func (inputs *Inputs) setOwn(i int, m *measured) {
	h := inputs.plan.decider(m)
	if m.own = h.ratio(m.score); inputs.plan.predictedSafe || h.score == Risk {
		m.own = inputs.inScope(i, m, m.own)
	}
}

// size maps v to a uint64 that orders like |v|, NaN last, so that max compiles without a branch.
func size(v float64) uint64 { return math.Float64bits(v) << 1 }

// sized undoes size: it returns the absolute value.
func sized(s uint64) float64 { return math.Float64frombits(s >> 1) }

// largestOf returns the size of the largest mean, and the size of the largest ratio of a sum of
// squares to its mean.
func largestOf(x []moments) (most, spread uint64) {
	for at := range x {
		m := &x[at]
		most = max(most, size(m.mean))
		spread = max(spread, size(m.second/(m.mean+decomp.Epsilon)))
	}
	return most, spread
}

// largestOther returns the size of the largest mean of the classes that are not critical. The means
// are those of all classes, and critical is the largest size among the critical ones.
func (inputs *Inputs) largestOther(means []float64, critical uint64) uint64 {
	var a, b, c, d uint64 // four, so that none waits for the one before
	rest := means
	for ; len(rest) >= 4; rest = rest[4:] {
		a = max(a, size(rest[0]))
		b = max(b, size(rest[1]))
		c = max(c, size(rest[2]))
		d = max(d, size(rest[3]))
	}
	for _, v := range rest {
		a = max(a, size(v))
	}
	// The means include critical classes, whose values may be rounded differently.
	const rounding = 1 << 21
	if most := max(max(a, b), max(c, d)); most > critical+rounding {
		return most
	}
	most := uint64(0)
	for _, c := range inputs.plan.others {
		most = max(most, size(means[c]))
	}
	return most
}

// tiny keeps the logarithms of probabilities within earlystop.Bound.
const tiny = 1e-6

// inScope returns statistic Own under scope predicted-safe, or where risk decides.
func (inputs *Inputs) inScope(i int, m *measured, own float64) float64 {
	if own = min(own, -m.margin()); inputs.predictsCritical(i, m) { // at a tie the margin is 0
		own = min(own, 0)
	}
	return own
}

// margin returns statistic Margin where there are critical classes.
func (m *measured) margin() float64 {
	return logarithm((m.critMost + tiny) / (m.otherMost + tiny))
}

// fill computes the statistics of input i from its measured values.
func (inputs *Inputs) fill(i int, m *measured, x *earlystop.Statistics) {
	p := inputs.plan
	x.Values = [earlystop.Count]float64{earlystop.Own: m.own, earlystop.Doubt: logarithm(1 - m.most + tiny)}
	if p.primary.reached && p.fallback.reached {
		other := &p.fallback
		if m.fallback {
			other = &p.primary
		}
		x.Values[earlystop.Other] = other.ratio(inputs.score(i, m, other.score))
	}
	if len(p.critical) > 0 {
		peak := inputs.inputs[i].peak
		if peak > 1 {
			peak = 1
		}
		x.Values[earlystop.Peak] = logarithm((peak + tiny) / (1 - peak + tiny))
		x.Values[earlystop.Margin] = m.margin()
	}
}

// ratio returns the logarithm of a score over its threshold, within earlystop.Bound. It is above 0
// exactly where the score is above the threshold.
func (h *held) ratio(score float64) float64 {
	v := logarithm((score + e) * h.inverted)
	if score > h.threshold {
		return min(max(v, 1e-12), earlystop.Bound)
	}
	switch {
	case v > 0:
		return 0
	case v < -earlystop.Bound:
		return -earlystop.Bound
	}
	return v // may be NaN
}

// fallsBack reports whether the gate chooses the fallback, where it reads skewness.
func (inputs *Inputs) fallsBack(critical []moments, m *measured) bool {
	limit := inputs.plan.policy.ReliabilityThreshold
	if !inputs.plan.anyCritical {
		at := largestC(critical)
		return at >= 0 && !(critical[at].skewness(m) <= limit)
	}
	// Where the spread is 0 the third moment is 0 too, so that no division is needed.
	worst, limit3 := int64(0), 3*limit*m.scale
	for at := range critical {
		x := &critical[at]
		excess := math.Abs(x.third)*m.inverse - limit3*x.mean*x.second
		worst = max(worst, int64(math.Float64bits(excess)))
	}
	return worst > 0
}

// skewness returns the skewness ratio, and 0 where that is 0/0.
func (x *moments) skewness(m *measured) float64 {
	if spread := 3 * x.mean * x.second * m.scale; spread > 0 {
		return math.Abs(x.third) * m.inverse / spread
	}
	return 0
}

// predictsCritical reports whether the predicted class is critical.
func (inputs *Inputs) predictsCritical(i int, m *measured) bool {
	switch {
	case m.critMost > m.otherMost*(1+1e-9):
		return true
	case m.otherMost > m.critMost*(1+1e-9):
		return false
	}
	return inputs.plan.isCrit[top(inputs.meansByClass(i))]
}

// top returns the predicted class: the first of the largest, up to rounding.
func top(mean []float64) int {
	top, beyond := 0, mean[0]*(1+1e-12)
	for c, mu := range mean {
		if mu > beyond {
			top, beyond = c, mu*(1+1e-12)
		}
	}
	return top
}

// largestC returns the place of the critical class with the largest C_k; -1 without critical
// classes.
func largestC(critical []moments) int {
	largest, beyond := -1, math.Inf(-1)
	for at := range critical {
		if c := critical[at].second / (critical[at].mean + decomp.Epsilon); c > beyond {
			largest, beyond = at, c*(1+1e-12)
		}
	}
	return largest
}

// pairClass returns the critical class with the largest share in the cbec that was computed last;
// -1 for none.
func (inputs *Inputs) pairClass() int {
	class, beyond := -1, 0.0
	for at, c := range inputs.plan.critical {
		if share := inputs.shares[at]; share > beyond {
			class, beyond = c, share*(1+1e-12)
		}
	}
	return class
}

// score returns a score of input i.
func (inputs *Inputs) score(i int, m *measured, s decomp.Score) float64 {
	switch s {
	case decomp.CCritMax:
		return m.cMax
	case decomp.CBEC:
		return inputs.cbec(i, m)
	case decomp.MaxProb:
		return 1 - m.most
	case decomp.Entropy:
		return entropy(inputs.meansByClass(i))
	case decomp.MI:
		return max(0, entropy(inputs.meansByClass(i))-inputs.inputs[i].entropy*m.inverse)
	case Risk:
		return inputs.plan.risk.CalledSafe.Probability(inputs.pCritical(i)) // as if it were called safe
	case decomp.PCritical:
		return inputs.pCritical(i)
	}
	value := 0.0
	for _, x := range inputs.inputs[i].critical {
		switch s {
		case decomp.CCritSum:
			value += 0.5 * x.second / (x.mean + decomp.Epsilon)
		case decomp.VarCrit:
			value = max(value, x.second)
		case decomp.EUVarCrit, decomp.EUVar:
			value += x.second
		default:
			value = math.NaN()
		}
	}
	if s == decomp.EUVar {
		value += kernel.Sum(inputs.inputs[i].spreads)
	}
	return value * m.scale
}

// pCritical returns the mean probability of the critical classes of input i together.
func (inputs *Inputs) pCritical(i int) (sum float64) {
	for at := range inputs.inputs[i].critical {
		sum += inputs.inputs[i].critical[at].mean
	}
	return sum
}

// cbec returns cbec from the sums of products, and leaves the share of each critical class in
// shares.
func (inputs *Inputs) cbec(i int, m *measured) float64 {
	p, s, half := inputs.plan, &inputs.inputs[i], 0.5*m.scale
	columns := len(s.means)
	roots, shares := inputs.apart[:columns], inputs.shares[:len(s.critical)]
	if p.wide {
		kernel.InverseRoots(roots, s.means)
		for at, c := range p.critical {
			inputs.scales[at] = half * roots[c]
		}
		kernel.Confusions(shares, inputs.terms, kernel.Matrix{
			Sums: s.products, Roots: roots, Scales: inputs.scales, Weights: p.pairs.weights,
			Inputs: 1, Rows: len(shares), Width: columns, Apart: columns, WeightsApart: p.pairs.apart,
		})
	} else {
		negative(shares, s, roots, &p.pairs)
		for at := range shares {
			shares[at] *= half
		}
	}
	sum := 0.0
	for _, share := range shares {
		sum += share
	}
	return sum
}

// negative fills the share of each critical class: the sum over its pairs of the negative products,
// taken positive, times the weight and 1/sqrt(mu+Epsilon) of both classes.
func negative(shares []float64, s *input, roots []float64, p *pairs) {
	for j, mu := range s.means {
		roots[j] = 1 / math.Sqrt(mu+decomp.Epsilon)
	}
	products, weights := s.products, p.weights
	for row := range shares {
		if len(products) < len(roots) || len(weights) < len(roots) {
			return // cannot happen; it spares bounds checks
		}
		sum := 0.0
		for j, root := range roots {
			// |x| - x is -2 min(x, 0) without a branch.
			x := products[j]
			sum += (math.Abs(x) - x) * root * weights[j]
		}
		shares[row] = 0.5 * sum / math.Sqrt(s.critical[row].mean+decomp.Epsilon)
		products, weights = products[len(roots):], weights[p.apart:]
	}
}
