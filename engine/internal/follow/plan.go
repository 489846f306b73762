package follow

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/kernel"
	"github.com/ckd-project/ckd/policy"
)

// Plan holds the settings that all inputs of a policy share. It is immutable.
type Plan struct {
	policy    *policy.Policy
	classes   int
	critical  []int
	isCrit    []bool
	others    []int // classes that are not critical
	listed    []int // classes of the columns: others or, in a wide plan, all
	skewness  bool  // the gate reads skewness
	spreads   bool  // a score reads the variances of all classes
	sometimes bool  // entropies or spreads are kept
	pairs     pairs
	entropies bool         // the entropies of the rows are summed
	risk      *policy.Risk // read by a rule; nil if none reads it
	logits    bool
	wide      bool // there are enough classes, or pairs, for package kernel
	floats    int  // numbers that one input holds beside its moments

	// These fields hold what the policy says in words, in a form that is quick to compare.
	primary, fallback       held
	guard                   decomp.Score // meaningful only if the policy has a guard
	anyCritical             bool         // the gate reads all critical classes, not only the deciding one
	predictedSafe, sampling bool
}

// pairs describes the pairs of a critical class and a column, for cbec.
type pairs struct {
	number int
	// weights has a row for each critical class, with 0 where a column is not safe; or only one row
	// where all are equal, and then apart, the distance between rows, is 0.
	weights []float64
	apart   int
}

// e avoids a division by 0: it is added to scores and thresholds.
const e = 1e-12

// held is a score with the threshold that it is held against.
type held struct {
	score     decomp.Score
	reached   bool
	threshold float64
	inverted  float64 // 1/(threshold+e)
}

const (
	// From this many classes, or pairs, on package kernel is quicker than a loop.
	wideClasses = 48
	widePairs   = 48
)

// Risk stands for policy.RiskScore, which decomp does not compute.
const Risk decomp.Score = math.MaxUint8

// ParseScore returns the score of a rule or a guard, and whether there is one of this name.
func ParseScore(name policy.Score) (decomp.Score, bool) {
	if name == policy.RiskScore {
		return Risk, true
	}
	return decomp.ParseScore(string(name))
}

func newHeld(r policy.Rule, reached bool) held {
	score, _ := ParseScore(r.Score)
	return held{score, reached, r.Threshold, 1 / (max(r.Threshold, 0) + e)}
}

// NewPlan creates the plan of a policy with thresholds. It refuses Dirichlet rows,
// which have one pass, a policy that only observes, and score ova_mi, which takes 2 logarithms for
// each pass and critical class.
func NewPlan(p *policy.Policy) (*Plan, error) {
	switch {
	case p.Kind == policy.Dirichlet:
		return nil, fmt.Errorf("kind %s: expected rows that come in passes", p.Kind)
	case p.Observes():
		return nil, errors.New("the policy has no thresholds: expected one that decides")
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
		return nil, fmt.Errorf("score %s cannot be followed pass by pass", policy.OvAMI)
	}
	n := 0
	if uses[policy.CBEC] {
		n = len(p.Safe) * len(p.Critical)
	}
	f.wide = f.classes >= wideClasses || n >= widePairs
	for k := range f.classes {
		if !f.isCrit[k] {
			f.others = append(f.others, k)
		}
		if f.wide || !f.isCrit[k] {
			f.listed = append(f.listed, k)
		}
	}
	if g := p.Guard; g != nil {
		f.guard, _ = ParseScore(g.Score)
		uses[g.Score] = true
	}
	if uses[policy.RiskScore] {
		f.risk = p.Risk
	}
	f.spreads = uses[policy.EUVar]
	f.entropies = uses[policy.MI]
	f.sometimes = f.entropies || f.spreads
	f.primary, f.fallback = newHeld(p.Primary, p.Gate.ReachesPrimary()), newHeld(p.Fallback, p.Gate.ReachesFallback())
	f.anyCritical = p.Gate == policy.AnyCritical
	f.predictedSafe, f.sampling = p.Scope == policy.PredictedSafe, p.Variance != policy.Population
	if n > 0 {
		f.pairs = newPairs(p, f.listed)
	}
	f.floats = len(f.listed) + f.pairs.number
	if f.spreads {
		f.floats += len(f.others)
	}
	return f, nil
}

func newPairs(p *policy.Policy, columns []int) pairs {
	x := pairs{number: len(columns) * len(p.Critical), weights: make([]float64, len(columns))}
	for _, k := range p.Safe {
		x.weights[slices.Index(columns, k)] = 1
	}
	if len(p.PairWeights) == 0 {
		return x
	}
	x.weights, x.apart = slices.Repeat(x.weights, len(p.Critical)), len(columns)
	for _, w := range p.PairWeights {
		x.weights[slices.Index(p.Critical, w.Critical)*x.apart+slices.Index(columns, w.Safe)] = w.Weight
	}
	return x
}

// SharedBytes returns the memory that Inputs hold beside what each input holds, for budgets.
func (p *Plan) SharedBytes() int {
	floats := 4*p.classes + 2*len(p.critical) + kernel.Padded(len(p.critical))
	if p.wide {
		floats += p.pairs.number
	}
	return 8*floats + int(unsafe.Sizeof(Inputs{}))
}

// Bytes returns the memory that one followed input holds, for budgets.
func (p *Plan) Bytes() int {
	return 8*p.floats + len(p.critical)*int(unsafe.Sizeof(moments{})) + int(unsafe.Sizeof(input{}))
}
