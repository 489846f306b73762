package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// resolve fills in what was not given, resolves names to classes and applies
// the rules that span several fields. Rules over a field that already has a
// fault are left out: their faults would only repeat it.
func (d *draft) resolve() *Policy {
	if !d.isMapping {
		return d.p
	}
	d.resolveSets()
	d.resolveGate()
	d.resolvePasses()
	d.checkThresholds()
	d.checkNeeds()
	d.resolveWeights()
	d.resolveReferences()
	d.resolveSizes()
	d.checkCalibration()
	d.resolveSettle()
	return d.p
}

// resolveSets resolves the critical and the safe set.
func (d *draft) resolveSets() {
	p := d.p
	index := make(map[string]int, len(d.classes))
	for k, c := range d.classes {
		p.Classes = append(p.Classes, c.text)
		index[c.text] = k
	}
	p.Critical = d.classesOf("critical", d.critical, index)
	if _, given := d.given["safe"]; given {
		p.Safe = d.classesOf("safe", d.safe, index)
		for _, n := range d.safe {
			if k, known := index[n.text]; known && has(p.Critical, k) {
				n.at.Fault("class %s is critical too, expected the sets to be disjoint",
					strictyaml.Quote(n.text))
				d.faulty["safe"] = true
			}
		}
		return
	}
	for k := range p.Classes {
		if !has(p.Critical, k) {
			p.Safe = append(p.Safe, k)
		}
	}
	d.faulty["safe"] = !d.sound("classes", "critical")
}

// classesOf the names, ascending.
func (d *draft) classesOf(path string, set []named, index map[string]int) []int {
	var classes []int
	for _, n := range set {
		if k, ok := d.classOf(n, index); ok {
			classes = append(classes, k)
		} else {
			d.faulty[path] = true
		}
	}
	slices.Sort(classes)
	return classes
}

// classOf the name; without classes every name is unknown, and none at fault.
func (d *draft) classOf(n named, index map[string]int) (int, bool) {
	k, ok := index[n.text]
	if !ok && len(index) > 0 {
		n.at.Fault("%s is none of the classes%s", strictyaml.Quote(n.text), strictyaml.Suggest(n.text, d.p.Classes))
	}
	return k, ok
}

// resolveGate fills in the gate where none is given.
func (d *draft) resolveGate() {
	if _, given := d.given["gate"]; given {
		return
	}
	d.p.Gate = AnyCritical
	if d.p.Kind == Dirichlet {
		d.p.Gate = Always
	}
	d.faulty["gate"] = !d.sound("kind")
}

// resolvePasses fills in the fewest passes and holds them against the gate.
func (d *draft) resolvePasses() {
	p := d.p
	if !d.sound("kind") {
		return
	}
	if p.Kind == Dirichlet {
		for _, n := range []struct {
			path   string
			passes *int
		}{{"passes.fewest", &p.FewestPasses}, {"passes.expected", &p.ExpectedPasses}} {
			if *n.passes > 1 {
				d.fault(n.path, "expected 1 where kind is dirichlet, found %d", *n.passes)
			}
			*n.passes = 1
		}
		return
	}

	least, why := 2, fmt.Sprintf("where kind is %s", p.Kind)
	if !d.sound("gate", "variance", "reliability_threshold") {
		// Only what holds for every gate can be said.
	} else if p.readsSkewness() {
		least = p.leastPasses(p.ReliabilityThreshold)
		why = fmt.Sprintf("for skewness to exceed reliability_threshold %v, which gate %s rests on",
			p.ReliabilityThreshold, p.Gate)
	}
	_, given := d.given["passes.fewest"]
	switch {
	case !d.sound("passes.fewest"):
		return
	case least > MaxPasses:
		d.fault("reliability_threshold", "%v is never exceeded, expected less than %.6g, the largest skewness that "+
			"%d passes can show", p.ReliabilityThreshold, p.skewnessCap(MaxPasses), MaxPasses)
		return
	case !given:
		p.FewestPasses = least
	case p.FewestPasses < 2:
		d.fault("passes.fewest", "expected at least %d %s, found %d", least, why, p.FewestPasses)
		return
	case p.FewestPasses < least:
		d.fault("passes.fewest", "expected at least %d %s, found %d, which cap it at %.4g",
			least, why, p.FewestPasses, p.skewnessCap(p.FewestPasses))
		return
	}
	if !d.sound("passes.expected") || p.ExpectedPasses == 0 || p.ExpectedPasses >= p.FewestPasses {
		return
	}
	if given {
		why = "as passes.fewest says"
	}
	d.fault("passes.expected", "expected at least %d %s, found %d", p.FewestPasses, why, p.ExpectedPasses)
}

// checkThresholds wants none of them, or those that the gate can reach.
func (d *draft) checkThresholds() {
	p := d.p
	if p.Observes() || !d.sound("gate", "primary.threshold", "fallback.threshold") {
		return
	}
	for _, r := range p.reachable() {
		if !r.HasThreshold {
			d.fault(r.field+".threshold", "missing, expected a threshold for each score that gate %s can reach, "+
				"or none at all to observe", p.Gate)
		}
	}
}

// checkNeeds wants the sets that scores, gate and scope in use cannot do without.
func (d *draft) checkNeeds() {
	p := d.p
	var critical, safe []string
	if d.sound("gate") {
		for _, r := range p.reachable() {
			if !d.sound(r.field + ".score") {
				continue
			}
			if r.Score.NeedsCritical() {
				critical = append(critical, fmt.Sprintf("%s.score %s", r.field, r.Score))
			}
			if r.Score.NeedsSafe() {
				safe = append(safe, fmt.Sprintf("%s.score %s", r.field, r.Score))
			}
		}
		if p.Gate.ReadsSkewness() {
			critical = append(critical, fmt.Sprintf("gate %s", p.Gate))
		}
	}
	if d.sound("scope") && p.Scope == PredictedSafe {
		critical = append(critical, fmt.Sprintf("scope %s", p.Scope))
	}
	if len(p.Critical) == 0 && len(critical) > 0 && d.sound("classes", "critical") {
		d.fault("critical", "no class is critical, expected at least one for %s", strings.Join(critical, ", "))
	}
	if len(p.Safe) == 0 && len(safe) > 0 && d.sound("classes", "critical", "safe") {
		d.fault("safe", "no class is safe, expected at least one for %s", strings.Join(safe, ", "))
	}
}

// resolveWeights resolves the pairs and drops weights of 1, which say nothing.
func (d *draft) resolveWeights() {
	p := d.p
	index := make(map[string]int, len(p.Classes))
	for k, c := range p.Classes {
		index[c] = k
	}
	first := make(map[[2]int]strictyaml.Value)
	for _, w := range d.weights {
		s, knownSafe := d.classOfPair(w.safe, index, p.Safe, "safe")
		c, knownCritical := d.classOfPair(w.critical, index, p.Critical, "critical")
		if !knownSafe || !knownCritical {
			continue
		}
		pair := [2]int{s, c}
		if at, twice := first[pair]; twice {
			w.at.Fault("the pair is given twice, first at %d:%d", at.Line(), at.Col())
			continue
		}
		first[pair] = w.at
		if w.weight != 1 {
			p.PairWeights = append(p.PairWeights, PairWeight{s, c, w.weight})
		}
	}
	slices.SortFunc(p.PairWeights, func(a, b PairWeight) int {
		return cmp.Or(cmp.Compare(a.Safe, b.Safe), cmp.Compare(a.Critical, b.Critical))
	})
}

// resolveReferences resolves the classes of what the calibration saw.
func (d *draft) resolveReferences() {
	p := d.p
	if p.Calibration == nil || p.Calibration.Reference == nil {
		return
	}
	index := make(map[string]int, len(p.Classes))
	for k, c := range p.Classes {
		index[c] = k
	}
	const path = "calibration.reference.classes"
	if len(d.references) == 0 && d.has(path) && d.sound(path) {
		d.fault(path, "expected at least one class")
	}
	first, sum := make(map[int]strictyaml.Value), 0.0
	for _, r := range d.references {
		if r.class.text == "" {
			continue // has a fault of its own
		}
		k, ok := d.classOf(r.class, index)
		if !ok {
			continue
		}
		if at, twice := first[k]; twice {
			r.at.Fault("the class is given twice, first at %d:%d", at.Line(), at.Col())
			continue
		}
		first[k], r.is.Class = r.at, k
		sum += r.is.Predicted
		p.Calibration.Reference.Classes = append(p.Calibration.Reference.Classes, r.is)
	}
	const rounding = 1e-3
	if sum > 1+rounding {
		d.fault(path, "expected shares predicted of at most 1 together, found %.4g", sum)
	}
}

// classOfPair is the class of one side of a pair.
func (d *draft) classOfPair(n named, index map[string]int, set []int, side string) (int, bool) {
	if n.text == "" {
		return 0, false // has a fault of its own
	}
	k, ok := d.classOf(n, index)
	if !ok {
		return 0, false
	}
	if !has(set, k) && d.sound("classes", "critical", "safe") {
		n.at.Fault("class %s is not %s, expected a %s class", strictyaml.Quote(n.text), side, side)
		return 0, false
	}
	return k, true
}

// resolveSizes bounds what grows with the classes.
func (d *draft) resolveSizes() {
	p := d.p
	if !d.sound("classes") {
		return
	}
	n := len(p.Classes)
	if p.Pairs == AllPairs && n > MaxClassesForAllPairs {
		d.fault("pairs", "all is for at most %d classes, expected %s for %d", MaxClassesForAllPairs, SafeCriticalPairs, n)
	}
	if len(p.Safe)*len(p.Critical) > MaxPairs && d.sound("critical", "safe") {
		d.fault("critical", "%d safe x %d critical classes, expected at most %d such pairs: name fewer critical "+
			"classes, or the safe ones that matter", len(p.Safe), len(p.Critical), MaxPairs)
	}
	if _, given := d.given["top_classes"]; !given {
		p.TopClasses = min(defaultTopClasses, n)
	} else if p.TopClasses > n {
		d.fault("top_classes", "expected at most %d, the number of classes, found %d", n, p.TopClasses)
	}
}

// reachable is the rules that the gate can let decide, with their fields.
func (p *Policy) reachable() []reachableRule {
	var rules []reachableRule
	if p.Gate.ReachesPrimary() {
		rules = append(rules, reachableRule{p.Primary, "primary"})
	}
	if p.Gate.ReachesFallback() {
		rules = append(rules, reachableRule{p.Fallback, "fallback"})
	}
	return rules
}

type reachableRule struct {
	Rule
	field string
}

// readsSkewness reports whether the policy's gate rests on the skewness ratio
// of a sample of passes.
func (p *Policy) readsSkewness() bool { return p.Gate.ReadsSkewness() && p.Kind != Dirichlet }

// skewnessCap is the largest skewness ratio that so many passes can show: that
// of one pass which is one-hot where all others are 0.
func (p *Policy) skewnessCap(passes int) float64 {
	s := float64(passes)
	if p.Variance == Population {
		return (s - 2) / 3
	}
	return (s - 1) * (s - 2) / (3 * s)
}

// leastPasses whose cap is above the threshold; above MaxPasses if none is.
func (p *Policy) leastPasses(threshold float64) int {
	return 2 + sort.Search(MaxPasses-1, func(i int) bool { return p.skewnessCap(2+i) > threshold })
}

// has reports whether an ascending set has the class.
func has(set []int, class int) bool {
	_, ok := slices.BinarySearch(set, class)
	return ok
}
