package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// resolveSets resolves the critical and the safe set, which are ascending and disjoint.
func (b *builder) resolveSets() {
	p := b.p
	p.Critical = b.classesOf("critical", b.Critical)
	if b.Safe != nil {
		p.Safe = b.classesOf("safe", b.Safe)
		for i, name := range b.Safe {
			if k, known := b.classIndex()[name]; known && has(p.Critical, k) {
				b.fault(fmt.Sprintf("safe[%d]", i), "class %s is critical too, expected the sets to be disjoint",
					strictyaml.Quote(name))
				b.faulty["safe"] = true
			}
		}
		return
	}
	p.Safe = p.notCritical()
	b.faulty["safe"] = !b.sound("classes", "critical")
}

// classesOf returns the classes with these names, ascending.
func (b *builder) classesOf(path string, names []string) []int {
	var classes []int
	for i, name := range names {
		if k, ok := b.classOf(fmt.Sprintf("%s[%d]", path, i), name); ok {
			classes = append(classes, k)
		} else {
			b.faulty[path] = true
		}
	}
	slices.Sort(classes)
	return classes
}

// resolveWeights resolves the pairs, and drops weights of 1, which change nothing.
func (b *builder) resolveWeights() {
	p := b.p
	first := make(map[[2]int]string) // paths
	for i, w := range b.PairWeights {
		path := fmt.Sprintf("pair_weights[%d]", i)
		s, knownSafe := b.classOfPair(path+".safe", w.Safe, p.Safe, "safe")
		c, knownCritical := b.classOfPair(path+".critical", w.Critical, p.Critical, "critical")
		if !knownSafe || !knownCritical {
			continue
		}
		pair := [2]int{s, c}
		if at, twice := first[pair]; twice {
			b.fault(path, "the pair is given twice, first at %s", b.where(at))
			continue
		}
		first[pair] = path
		if w.Weight != 1 {
			p.PairWeights = append(p.PairWeights, PairWeight{s, c, w.Weight})
		}
	}
	slices.SortFunc(p.PairWeights, func(a, b PairWeight) int {
		return cmp.Or(cmp.Compare(a.Safe, b.Safe), cmp.Compare(a.Critical, b.Critical))
	})
}

// classOfPair returns the class of one side of a pair.
func (b *builder) classOfPair(path, name string, set []int, side string) (int, bool) {
	k, ok := b.classOf(path, name)
	if !ok {
		return 0, false
	}
	if !has(set, k) && b.sound("classes", "critical", "safe") {
		b.fault(path, "class %s is not %s, expected a %s class", strictyaml.Quote(name), side, side)
		return 0, false
	}
	return k, true
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
