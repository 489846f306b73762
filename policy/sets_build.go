package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// resolveSets makes the critical and the safe set ascending, and checks that they are disjoint.
func (b *builder) resolveSets() {
	p := b.p
	p.Critical = ascending(p.Critical)
	if !b.given("safe") {
		p.Safe = p.notCritical()
		b.faulty["safe"] = !b.sound("classes", "critical")
		return
	}
	for i, k := range p.Safe {
		if has(p.Critical, k) {
			b.fault(fmt.Sprintf("safe[%d]", i), "class %s is critical too, expected the sets to be disjoint", strictyaml.Quote(p.Classes[k]))
			b.faulty["safe"] = true
		}
	}
	p.Safe = ascending(p.Safe)
}

// ascending returns a set of classes in ascending order, without those that have a fault.
func ascending(classes []int) (set []int) {
	for _, k := range classes {
		if k != noClass {
			set = append(set, k)
		}
	}
	slices.Sort(set)
	return set
}

// resolveWeights checks the pairs, and drops weights of 1, which change nothing.
func (b *builder) resolveWeights() {
	p := b.p
	var weights []PairWeight
	first := make(map[[2]int]string) // paths
	for i, w := range p.PairWeights {
		path := fmt.Sprintf("pair_weights[%d]", i)
		isSafe := b.checkSide(path+".safe", w.Safe, p.Safe, "safe")
		isCritical := b.checkSide(path+".critical", w.Critical, p.Critical, "critical")
		if !isSafe || !isCritical {
			continue
		}
		pair := [2]int{w.Safe, w.Critical}
		if at, twice := first[pair]; twice {
			b.fault(path, "the pair is given twice, first at %s", b.where(at))
			continue
		}
		first[pair] = path
		if w.Weight != 1 {
			weights = append(weights, w)
		}
	}
	slices.SortFunc(weights, func(a, b PairWeight) int {
		return cmp.Or(cmp.Compare(a.Safe, b.Safe), cmp.Compare(a.Critical, b.Critical))
	})
	p.PairWeights = weights
}

// checkSide reports whether a class may stand on one side of a pair.
func (b *builder) checkSide(path string, class int, set []int, side string) bool {
	if class != noClass && !has(set, class) && b.sound("classes", "critical", "safe") {
		b.fault(path, "class %s is not %s, expected a %s class", strictyaml.Quote(b.p.Classes[class]), side, side)
		return false
	}
	return class != noClass
}

// resolveSizes bounds what grows with the classes.
func (b *builder) resolveSizes() {
	p := b.p
	if !b.sound("classes") {
		return
	}
	n := len(p.Classes)
	if p.Pairs == AllPairs && n > maxClassesForAllPairs {
		b.fault("pairs", "all is for at most %d classes, expected %s for %d", maxClassesForAllPairs, SafeCriticalPairs, n)
	}
	if len(p.Safe)*len(p.Critical) > MaxPairs && b.sound("critical", "safe") {
		b.fault("critical", "%d safe x %d critical classes, expected at most %d such pairs: name fewer critical "+
			"classes, or the safe ones that matter", len(p.Safe), len(p.Critical), MaxPairs)
	}
	if !b.given("top_classes") {
		p.TopClasses = min(defaultTopClasses, n)
	} else if p.TopClasses > n {
		b.fault("top_classes", "expected at most %d, the number of classes, found %d", n, p.TopClasses)
	}
}
