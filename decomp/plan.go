package decomp

import (
	"fmt"
	"github.com/ckd-project/ckd/internal/kernel"
	"math"
)

// Epsilon is added to mu where the paper divides by it (definition of C_k).
const Epsilon = kernel.Epsilon

// DefaultSumTolerance is how far the sum of a row may be from 1.
const DefaultSumTolerance = 1e-3

// Kind says what rows are.
type Kind uint8

// The kinds of rows.
const (
	// Probabilities: finite, in [0,1], summing to 1 within the tolerance. They
	// are never renormalised.
	Probabilities Kind = iota
	// Logits: finite; the softmax is computed here, in float64.
	Logits
	// Dirichlet: exactly one row of positive concentrations, from a model that
	// predicts the distribution over rows itself.
	Dirichlet
)

// Variance says what sums of squares are divided by.
type Variance uint8

// The divisors.
const (
	// Sample divides by S-1 (app-var, app-cov).
	Sample Variance = iota
	// Population divides by S, as the authors' own code does. C_k and sum_c are
	// then smaller by the factor (S-1)/S, skewness larger by its inverse.
	Population
)

// Spec is what a Plan is made from.
type Spec struct {
	// Classes is K, at least 2.
	Classes int
	// Critical and Safe are disjoint sets of classes; either may be empty, and
	// the scores that need it are then undefined.
	Critical, Safe []int
	// Kind of rows.
	Kind Kind
	// SumTolerance for probabilities; 0 takes DefaultSumTolerance.
	SumTolerance float64
	// Variance divisor. It has no meaning for Dirichlet rows.
	Variance Variance
	// AllPairs computes every pair of classes, not only safe x critical.
	AllPairs bool
	// Lean leaves out what costs more than all the rest and is seldom asked for:
	// Scores[OvAMI] is then undefined, Result.Correlation empty, and PairTerm may be.
	// It changes nothing for Dirichlet rows.
	Lean bool
	// Weights in cbec of safe x critical pairs; 1 where none is given.
	Weights []Weight
}

// Weight is the weight in cbec of one pair.
type Weight struct {
	Safe, Critical int
	Weight         float64 // finite, not negative
}

// Pair is a pair of classes, A < B.
type Pair struct{ A, B int }

// Plan is what is fixed for all inputs of a model. It is immutable.
type Plan struct {
	classes      int
	safe         []int // ascending
	critical     []int // ascending
	kind         Kind
	sumTolerance float64
	variance     Variance
	pairs        []Pair
	cross        []crossPair
	pairing      pairing
	allPairs     bool
	ovaMI        bool // is computed
	lean         bool
}

// crossPair is a safe x critical pair: its place among the plan's pairs, its
// weight, and the place of its critical class among the critical ones.
type crossPair struct {
	pair     int
	weight   float64
	critical int
}

// NewPlan checks a Spec and prepares what all its inputs share.
//
// The pairs are ordered by class, (0,1), (0,2), ..., (1,2), ...; with S = safe
// and C = critical classes there are |S||C| of them, or K(K-1)/2 with AllPairs.
// A fault in the Spec is an error that names the field.
func NewPlan(spec Spec) (*Plan, error) {
	if spec.Classes < 2 {
		return nil, fmt.Errorf("%d classes: at least 2 are needed", spec.Classes)
	}
	tolerance := spec.SumTolerance
	switch {
	case tolerance == 0:
		tolerance = DefaultSumTolerance
	case !(tolerance > 0) || math.IsInf(tolerance, 1):
		return nil, fmt.Errorf("sum tolerance %v: must be finite and positive", tolerance)
	}
	p := &Plan{
		classes:      spec.Classes,
		kind:         spec.Kind,
		sumTolerance: tolerance,
		variance:     spec.Variance,
		allPairs:     spec.AllPairs,
		lean:         spec.Lean && spec.Kind != Dirichlet, // whose closed forms cost next to nothing
	}

	const neither, safe, critical = 0, 1, 2
	side := make([]uint8, spec.Classes)
	mark := func(set []int, name string, as uint8) error {
		for _, k := range set {
			if k < 0 || k >= spec.Classes {
				return fmt.Errorf("%s class %d: must be in [0,%d)", name, k, spec.Classes)
			}
			if side[k] != neither {
				return fmt.Errorf("class %d is named twice in the safe and critical sets", k)
			}
			side[k] = as
		}
		return nil
	}
	if err := mark(spec.Safe, "safe", safe); err != nil {
		return nil, err
	}
	if err := mark(spec.Critical, "critical", critical); err != nil {
		return nil, err
	}
	place := make([]int, spec.Classes) // of a critical class among the critical ones
	for k, s := range side {
		if s == critical {
			place[k] = len(p.critical)
			p.critical = append(p.critical, k)
		}
		if s == safe {
			p.safe = append(p.safe, k)
		}
	}

	weights := make(map[Pair]float64, len(spec.Weights))
	for _, w := range spec.Weights {
		if w.Safe < 0 || w.Safe >= spec.Classes || w.Critical < 0 || w.Critical >= spec.Classes ||
			side[w.Safe] != safe || side[w.Critical] != critical {
			return nil, fmt.Errorf("weight of pair (%d,%d): must be a safe and a critical class", w.Safe, w.Critical)
		}
		if !(w.Weight >= 0) || math.IsInf(w.Weight, 1) {
			return nil, fmt.Errorf("weight %v of pair (%d,%d): must be finite and not negative", w.Weight, w.Safe, w.Critical)
		}
		weights[Pair{min(w.Safe, w.Critical), max(w.Safe, w.Critical)}] = w.Weight
	}

	for a := range spec.Classes {
		for b := a + 1; b < spec.Classes; b++ {
			isCross := side[a] != neither && side[b] != neither && side[a] != side[b]
			if !isCross && !spec.AllPairs {
				continue
			}
			pair := Pair{a, b}
			if isCross {
				weight, given := weights[pair]
				if !given {
					weight = 1
				}
				k := a
				if side[b] == critical {
					k = b
				}
				p.cross = append(p.cross, crossPair{len(p.pairs), weight, place[k]})
			}
			p.pairs = append(p.pairs, pair)
		}
	}
	p.ovaMI = !p.lean && len(p.critical) > 0
	p.pairing = newPairing(p)
	return p, nil
}

// Classes is K.
func (p *Plan) Classes() int { return p.classes }

// Pairs are the pairs of classes in the order of Result.PairTerm and
// Result.Correlation. Not to be written to.
func (p *Plan) Pairs() []Pair { return p.pairs }

// Defines reports whether the plan's sets define a score.
func (p *Plan) Defines(s Score) bool {
	switch s {
	case OvAMI:
		return p.ovaMI
	case VarCrit, EUVarCrit, CCritSum, CCritMax:
		return len(p.critical) > 0
	case CBEC:
		return len(p.cross) > 0
	}
	return true
}

// FewestPasses is the least S that can be computed: 2, or 1 (which is also the
// most) for Dirichlet rows.
func (p *Plan) FewestPasses() int {
	if p.kind == Dirichlet {
		return 1
	}
	return 2
}

// divisor of sums of squares over s passes.
func (p *Plan) divisor(s int) float64 {
	if p.variance == Population {
		return float64(s)
	}
	return float64(s - 1)
}

// SkewnessCap is the largest skewness ratio that s passes can show:
// (s-1)(s-2)/(3s) with the sample variance, (s-2)/3 with the population
// variance. It is reached when one pass is one-hot for the class and all others
// give it 0. A gate that compares skewness with a threshold at or above the cap
// never opens.
func SkewnessCap(s int, v Variance) float64 {
	if s < 2 {
		return 0
	}
	if v == Population {
		return float64(s-2) / 3
	}
	return float64(s-1) * float64(s-2) / (3 * float64(s))
}
