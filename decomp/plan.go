package decomp

import (
	"fmt"
	"math"

	"github.com/ckd-project/ckd/internal/kernel"
)

// Epsilon is added to mu where the paper divides by it (definition of C_k).
const Epsilon = kernel.Epsilon

// DefaultSumTolerance is how far the sum of a row may be from 1 by default.
const DefaultSumTolerance = 1e-3

// Kind says what rows are.
type Kind uint8

// The kinds of rows.
const (
	// Probabilities are finite, in [0,1], and sum to 1 within the tolerance. They are never
	// renormalised. Values outside of [0,1] by no more than the tolerance are clamped to it.
	Probabilities Kind = iota
	// Logits are finite; their softmax is computed here, in float64. An input whose passes are all
	// probabilities is refused.
	Logits
	// Dirichlet means exactly one row of positive concentrations, from a model that predicts the
	// distribution over rows itself.
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

// Spec describes a Plan.
type Spec struct {
	// Classes is K, at least 2.
	Classes int
	// Critical and Safe are disjoint sets of classes. Either may be empty; the scores that need it
	// are then undefined.
	Critical, Safe []int
	// Kind of rows.
	Kind Kind
	// SumTolerance is how far the sum of a row of probabilities may be from 1, and a value outside of
	// [0,1]; 0 means DefaultSumTolerance.
	SumTolerance float64
	// Variance is the divisor of sums of squares. It has no effect on Dirichlet rows.
	Variance Variance
	// AllPairs computes every pair of classes, not only safe x critical.
	AllPairs bool
	// Lean leaves out what costs more than all the rest and is seldom needed: Scores[OvAMI] is then
	// undefined, Result.Correlation empty, and PairTerm may be. It has no effect on Dirichlet rows.
	Lean bool
	// Weights of safe x critical pairs in cbec; a pair without one has weight 1.
	Weights []Weight
}

// Weight is the weight of one pair in cbec.
type Weight struct {
	Safe, Critical int
	Weight         float64 // finite, not negative
}

// Pair is a pair of classes, A < B.
type Pair struct{ A, B int }

// Plan holds the settings that all inputs of a model share. It is immutable.
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
	ovaMI        bool // ova_mi is computed
	lean         bool
	squashed     struct{ least, largest float64 } // squashedRange
}

// crossPair is a safe x critical pair: its index in pairs, its weight, and the index of its
// critical class in critical.
type crossPair struct {
	pair     int
	weight   float64
	critical int
}

// NewPlan checks a Spec and prepares what all its inputs share. An error names the field of the Spec
// that is wrong, and the value found.
//
// Pairs are in order of their classes: (0,1), (0,2), ..., (1,2), ... With S safe and C critical
// classes there are S*C of them, or K(K-1)/2 with AllPairs.
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
		lean:         spec.Lean && spec.Kind != Dirichlet, // the closed forms of Dirichlet rows cost next to nothing
	}
	p.squashed.least, p.squashed.largest = squashedRange(p.classes)
	sides, err := spec.sides()
	if err != nil {
		return nil, err
	}
	weights, err := spec.weights(sides)
	if err != nil {
		return nil, err
	}
	for k, s := range sides {
		switch s {
		case critical:
			p.critical = append(p.critical, k)
		case safe:
			p.safe = append(p.safe, k)
		}
	}
	p.addPairs(sides, weights)
	p.ovaMI = !p.lean && len(p.critical) > 0
	p.pairing = newPairing(p)
	return p, nil
}

// side says which set of a Spec a class belongs to.
type side uint8

const (
	neither side = iota
	safe
	critical
)

// sides returns the side of every class.
func (spec *Spec) sides() ([]side, error) {
	sides := make([]side, spec.Classes)
	for _, set := range []struct {
		name    string
		classes []int
		side    side
	}{{"safe", spec.Safe, safe}, {"critical", spec.Critical, critical}} {
		for _, k := range set.classes {
			if k < 0 || k >= spec.Classes {
				return nil, fmt.Errorf("%s class %d: must be in [0,%d)", set.name, k, spec.Classes)
			}
			if sides[k] != neither {
				return nil, fmt.Errorf("class %d is named twice in the safe and critical sets", k)
			}
			sides[k] = set.side
		}
	}
	return sides, nil
}

// weights returns the weights by pair.
func (spec *Spec) weights(sides []side) (map[Pair]float64, error) {
	isOn := func(k int, side side) bool { return k >= 0 && k < spec.Classes && sides[k] == side }
	weights := make(map[Pair]float64, len(spec.Weights))
	for _, w := range spec.Weights {
		if !isOn(w.Safe, safe) || !isOn(w.Critical, critical) {
			return nil, fmt.Errorf("weight of pair (%d,%d): must be a safe and a critical class", w.Safe, w.Critical)
		}
		if !(w.Weight >= 0) || math.IsInf(w.Weight, 1) {
			return nil, fmt.Errorf("weight %v of pair (%d,%d): must be finite and not negative", w.Weight, w.Safe, w.Critical)
		}
		weights[Pair{min(w.Safe, w.Critical), max(w.Safe, w.Critical)}] = w.Weight
	}
	return weights, nil
}

// addPairs adds the pairs that are computed: safe x critical ones, or all. A pair without a weight has
// weight 1.
func (p *Plan) addPairs(sides []side, weights map[Pair]float64) {
	index := make(map[int]int, len(p.critical))
	for i, k := range p.critical {
		index[k] = i
	}
	for a := range p.classes {
		for b := a + 1; b < p.classes; b++ {
			crosses := sides[a] != neither && sides[b] != neither && sides[a] != sides[b]
			if !crosses && !p.allPairs {
				continue
			}
			pair := Pair{a, b}
			if crosses {
				weight, given := weights[pair]
				if !given {
					weight = 1
				}
				k := a
				if sides[b] == critical {
					k = b
				}
				p.cross = append(p.cross, crossPair{len(p.pairs), weight, index[k]})
			}
			p.pairs = append(p.pairs, pair)
		}
	}
}

// Classes returns K.
func (p *Plan) Classes() int { return p.classes }

// Pairs returns the pairs of classes in the order of Result.PairTerm and Result.Correlation. The
// caller must not write to it.
func (p *Plan) Pairs() []Pair { return p.pairs }

// Defines reports whether the plan defines a score.
func (p *Plan) Defines(s Score) bool {
	switch s {
	case OvAMI:
		return p.ovaMI
	case VarCrit, EUVarCrit, CCritSum, CCritMax, PCritical:
		return len(p.critical) > 0
	case CBEC:
		return len(p.cross) > 0
	}
	return true
}

// fewestPasses returns the least S that can be computed: 2, or for Dirichlet rows 1, which is also
// the most.
func (p *Plan) fewestPasses() int {
	if p.kind == Dirichlet {
		return 1
	}
	return 2
}

// divisor returns what sums of squares over s passes are divided by.
func (p *Plan) divisor(s int) float64 {
	if p.variance == Population {
		return float64(s)
	}
	return float64(s - 1)
}

// SkewnessCap returns the largest skewness ratio that s passes can have, without unit:
// (s-1)(s-2)/(3s) with the sample variance, (s-2)/3 with the population variance, 0 for s < 2. It
// is reached if one pass is one-hot for the class and all others give it 0. A gate that compares
// skewness with a threshold at or above the cap never opens.
func SkewnessCap(s int, v Variance) float64 {
	if s < 2 {
		return 0
	}
	if v == Population {
		return float64(s-2) / 3
	}
	return float64(s-1) * float64(s-2) / (3 * float64(s))
}
