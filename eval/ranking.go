package eval

import (
	"cmp"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// ranking orders inputs for deferral. A coverage c retains the Kept(c, N) inputs with the lowest
// keys. Where it cuts through a tie, each of the tied inputs is retained with the same chance.
type ranking struct {
	Name  string
	Scope policy.Scope
	// Key of each input. Inputs with higher keys are deferred earlier.
	Key []float64
	// score has the keys before the scope moved any. It may be a column of the table.
	score []float64
	// order has the inputs from the first to be retained to the last, ties the parts of it that share a
	// key.
	order []int32
	ties  []span
}

// newRanking orders inputs by their keys. In scope predicted-safe the inputs predicted critical
// come first whatever their keys, as one tie, since they are never deferred.
func newRanking(t *Table, name string, scope policy.Scope, key []float64) *ranking {
	r := &ranking{Name: name, Scope: scope, Key: key, score: key}
	if scope == policy.PredictedSafe {
		critical := setOf(t.K, t.Spec.Critical)
		r.Key = slices.Clone(key)
		for i, k := range t.Predicted {
			if critical[k] {
				r.Key[i] = math.Inf(-1)
			}
		}
	}
	r.order = ascending(r.Key)
	for from := 0; from < len(r.order); {
		end := r.tieFrom(from)
		if end > from+1 {
			r.ties = append(r.ties, span{int32(from), int32(end)})
		}
		from = end
	}
	return r
}

// tieFrom returns the end of the tie that starts at a place of the order.
func (r *ranking) tieFrom(from int) int {
	end := from + 1
	for end < len(r.order) && r.Key[r.order[end]] == r.Key[r.order[from]] {
		end++
	}
	return end
}

// retention says what is retained: all of some inputs, and of a tie, in a random order, the first.
type retention struct {
	whole, tied []int32
	first       int // of tied
}

// retain returns the retention of the first n inputs.
func (r *ranking) retain(n int) retention {
	from, end := n, n // of the tie that n cuts
	for from > 0 && end < len(r.order) && r.Key[r.order[from-1]] == r.Key[r.order[n]] {
		from--
	}
	if from < n {
		end = r.tieFrom(from)
	}
	return retention{r.order[:from], r.order[from:end], n - from}
}

// size returns the number of inputs that are retained.
func (r retention) size() int { return len(r.whole) + r.first }

// expected returns an expected count, from that of the whole part and that of the tie.
func (r retention) expected(whole, tied int) float64 {
	if tied == 0 {
		return float64(whole)
	}
	return float64(whole) + float64(tied)*float64(r.first)/float64(len(r.tied))
}

// shares returns, for each of n inputs, the chance that it is retained and satisfies a condition.
func (r retention) shares(n int, counts func(i int32) bool) []float64 {
	all := make([]float64, n)
	for _, i := range r.whole {
		all[i] = float64(index(counts(i)))
	}
	for _, i := range r.tied {
		all[i] = r.expected(0, index(counts(i)))
	}
	return all
}

// gated returns a key for a gate that chooses between two scores: the mid-rank quantile, in (0,1),
// of the input's score among the inputs for which the gate chooses the same score. Quantiles put
// the two scores on one scale: at coverage c each of the two groups retains its share c.
//
// In scope predicted-safe, quantiles are among the inputs predicted safe, which alone can be
// deferred. falls, primary and fallback have an entry for each input.
func gated(t *Table, scope policy.Scope, falls []bool, primary, fallback []float64) []float64 {
	critical := setOf(t.K, t.Spec.Critical)
	var groups [2][]int32
	for i := range falls {
		if scope == policy.PredictedSafe && critical[t.Predicted[i]] {
			continue
		}
		groups[index(falls[i])] = append(groups[index(falls[i])], int32(i))
	}
	key := make([]float64, t.Inputs)
	for g, score := range [][]float64{primary, fallback} {
		quantiles(key, groups[g], score)
	}
	return key
}

// quantiles writes to key, for each of some inputs, the mid-rank quantile of its score among them.
func quantiles(key []float64, inputs []int32, score []float64) {
	sortByKey(inputs, score)
	for from := 0; from < len(inputs); {
		end := from + 1
		for end < len(inputs) && score[inputs[end]] == score[inputs[from]] {
			end++
		}
		for _, i := range inputs[from:end] {
			key[i] = float64(from+end) / 2 / float64(len(inputs))
		}
		from = end
	}
}

// fallsBack reports, for each input, whether a gate hands it to the fallback score: where the
// skewness that the gate reads is above the reliability threshold.
func fallsBack(t *Table, gate policy.Gate, threshold float64) []bool {
	falls := make([]bool, t.Inputs)
	for i := range falls {
		switch gate {
		case policy.Always:
			falls[i] = true
		case policy.AnyCritical:
			falls[i] = !(t.CriticalSkewness[i] <= threshold)
		}
	}
	return falls
}

// byPolicy returns a key for the decisions of a policy: the ratio value/threshold, so that the
// policy retains the inputs with keys up to 1. Other coverages multiply both thresholds by one
// factor. Inputs with identical passes are ranked as the policy handles them, even where its scope
// retains them first. A policy that observes has no thresholds, and its key is that of gated.
func byPolicy(p *policy.Policy, t *Table, scope policy.Scope, decisions []policy.Decision) []float64 {
	key := make([]float64, len(decisions))
	if p.Observes() {
		falls := make([]bool, len(decisions))
		value := make([]float64, len(decisions))
		for i, d := range decisions {
			falls[i], value[i] = d.Gate == policy.ByFallback, valueOf(d)
		}
		return gated(t, scope, falls, value, value)
	}
	for i, d := range decisions {
		handling := policy.HandleByScore
		switch {
		case t.Saturated[i]:
			handling = p.Saturated
		case t.Degenerate[i]:
			handling = p.Degenerate
		}
		switch {
		case handling == policy.HandleDefer:
			key[i] = math.Inf(1)
		case handling == policy.HandleByScore && valueOf(d) != 0: // no rounding takes a quotient across 1
			key[i] = valueOf(d) / d.Threshold
		}
	}
	return key
}

// valueOf returns the value that decided, and 0 for an input called critical under a policy on risk: it
// has no risk, and is never deferred by one.
func valueOf(d policy.Decision) float64 {
	if math.IsNaN(d.Value) {
		return 0
	}
	return d.Value
}

// candidates returns functions that make the rankings of a table: the defined scores, the gate of
// the paper and the given policy, in both scopes. Without a critical set there is neither gate nor
// scope predicted-safe.
func candidates(t *Table, o Options) []func() *ranking {
	var all []func() *ranking
	add := func(name string, scope policy.Scope, key func() []float64) {
		all = append(all, func() *ranking { return newRanking(t, name, scope, key()) })
	}
	for _, scope := range scopes(t) {
		for s, score := range t.Scores {
			if score != nil {
				add(decomp.Score(s).String(), scope, func() []float64 { return score })
			}
		}
		primary, fallback := t.Scores[decomp.CCritMax], t.Scores[decomp.CBEC]
		if primary != nil && fallback != nil {
			add(string(policy.AnyCritical), scope, func() []float64 {
				return gated(t, scope, fallsBack(t, policy.AnyCritical, o.Reliability), primary, fallback)
			})
		}
		if o.Policy != nil {
			add("policy", scope, func() []float64 { return byPolicy(o.Policy, t, scope, o.Decisions) })
		}
	}
	return all
}

// beyondPaper reports whether a ranking is by a score that the paper lacks. The paper's tables are
// over the others.
func beyondPaper(name string) bool {
	score, ok := decomp.ParseScore(name)
	return ok && !score.InPaper()
}

func scopes(t *Table) []policy.Scope {
	if len(t.Spec.Critical) == 0 {
		return []policy.Scope{policy.AllInputs}
	}
	return []policy.Scope{policy.AllInputs, policy.PredictedSafe}
}

// ascending returns the inputs in the order of their keys, ties by input order.
func ascending(key []float64) []int32 {
	order := inputsOf(len(key))
	sortByKey(order, key)
	return order
}

// sortByKey sorts inputs by their keys, ties by input order.
func sortByKey(inputs []int32, key []float64) {
	slices.SortFunc(inputs, func(a, b int32) int {
		if c := cmp.Compare(key[a], key[b]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
}

// setOf marks the classes of a set among k classes.
func setOf(k int, classes []int) []bool {
	set := make([]bool, k)
	for _, c := range classes {
		set[c] = true
	}
	return set
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
