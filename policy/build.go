package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Build returns the policy of a draft: checked, with every default filled in, and hashed. The error
// is a Faults that lists everything wrong with the draft, each fault with the path of its field.
// The policy shares no memory with the draft.
func Build(d Draft) (*Policy, error) {
	b := newBuilder(d.clone())
	for _, r := range []*Rule{&b.Primary, &b.Fallback} {
		r.HasThreshold = r.HasThreshold || r.Threshold != 0
	}
	b.addSteps()
	b.checkFields("", modelFields)
	p := b.build()
	if err := b.found.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// builder makes one policy of one draft. A draft of a file differs from that of a program in two
// ways: its fields are checked while they are read, and its faults have places.
type builder struct {
	Draft
	origin
	p *Policy

	// item is the entry of a list that is being read or checked.
	item  int
	index map[string]int // index of each class; see classIndex
	steps []step         // steps of the early-stopping rule
}

// step is an entry of settle.steps.
type step struct {
	path   string
	passes int
	is     earlystop.Step
}

func newBuilder(d Draft) *builder {
	return &builder{Draft: d, origin: origin{model: d.Name, faulty: make(map[string]bool)}}
}

// build fills in what was not given, resolves names to classes, applies the rules that span several
// fields, and hashes.
func (b *builder) build() *Policy {
	b.fillDefaults(modelFields)
	b.p = &Policy{
		Name: b.Name, Version: b.Version, Classes: b.Classes,
		Kind: b.Kind, FewestPasses: b.FewestPasses, ExpectedPasses: b.ExpectedPasses,
		SumTolerance: b.SumTolerance, Tensor: b.Tensor, Variance: b.Variance, TopClasses: b.TopClasses,
		ReliabilityThreshold: b.ReliabilityThreshold, Gate: b.Gate, Scope: b.Scope,
		Primary: b.Primary, Fallback: b.Fallback, Pairs: b.Pairs,
		Degenerate: b.Degenerate, Saturated: b.Saturated, Risk: b.Risk, Guard: b.Guard,
		Calibration: b.Calibration, EarlyStopping: b.EarlyStopping,
	}
	b.resolveSets()
	b.resolveGate()
	b.resolvePasses()
	b.resolveThresholds()
	b.checkNeeds()
	b.resolveWeights()
	b.resolveSizes()
	b.resolveRisk()
	b.checkCalibration()
	b.resolveEarlyStopping()
	if b.faults == 0 {
		b.p.Hash = b.p.hash()
	}
	return b.p
}

// checkFields checks the fields of a mapping one by one, for the draft of a program.
func (b *builder) checkFields(prefix string, fields []field) {
	for _, f := range fields {
		f.is.check(b, prefix+f.name, f.required)
	}
}

// fillDefaults fills in the defaults that the table of fields states.
func (b *builder) fillDefaults(fields []field) {
	for _, f := range fields {
		if f.standard != nil {
			f.is.(defaulted).fill(b, f.standard)
		}
		if m, ok := f.is.(mapping); ok && m.isGiven(b) {
			b.fillDefaults(m.fields)
		}
	}
}

// classIndex returns the position of each class by its name.
func (b *builder) classIndex() map[string]int {
	if b.index == nil {
		b.index = make(map[string]int, len(b.Classes))
		for k, name := range b.Classes {
			if name != "" { // has a fault
				b.index[name] = k
			}
		}
	}
	return b.index
}

// classOf returns the class with a name. An unknown name is a fault, unless there are no classes to
// know it by.
func (b *builder) classOf(path, name string) (int, bool) {
	if name == "" {
		return 0, false // has a fault already
	}
	k, ok := b.classIndex()[name]
	if !ok && len(b.classIndex()) > 0 {
		b.fault(path, "%s is none of the classes%s", strictyaml.Quote(name), strictyaml.Suggest(name, b.Classes))
	}
	return k, ok
}

// resolveSets resolves the critical and the safe set.
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

// resolveGate fills in the gate where none is given.
func (b *builder) resolveGate() {
	if b.given("gate", b.Gate == "") {
		return
	}
	b.p.Gate = AnyCritical
	if b.Kind == Dirichlet {
		b.p.Gate = Always
	}
	b.faulty["gate"] = !b.sound("kind")
}

// resolvePasses fills in the fewest passes and checks them against the gate.
func (b *builder) resolvePasses() {
	p := b.p
	if !b.sound("kind") {
		return
	}
	if p.Kind == Dirichlet {
		for _, n := range []struct {
			path   string
			passes *int
		}{{"passes.fewest", &p.FewestPasses}, {"passes.expected", &p.ExpectedPasses}} {
			if *n.passes > 1 {
				b.fault(n.path, "expected 1 where kind is dirichlet, found %d", *n.passes)
			}
			*n.passes = 1
		}
		return
	}

	least, why := 2, fmt.Sprintf("where kind is %s", p.Kind)
	if !b.sound("gate", "variance", "reliability_threshold") {
		// Only the rules that hold for every gate apply.
	} else if p.readsSkewness() {
		least = p.leastPasses(p.ReliabilityThreshold)
		why = fmt.Sprintf("for skewness to exceed reliability_threshold %v, which gate %s rests on",
			p.ReliabilityThreshold, p.Gate)
	}
	given := b.given("passes.fewest", b.FewestPasses == 0)
	switch {
	case !b.sound("passes.fewest"):
		return
	case least > MaxPasses:
		b.fault("reliability_threshold", "%v is never exceeded, expected less than %.6g, the largest skewness that "+
			"%d passes can show", p.ReliabilityThreshold, p.skewnessCap(MaxPasses), MaxPasses)
		return
	case !given:
		p.FewestPasses = least
	case p.FewestPasses < 2:
		b.fault("passes.fewest", "expected at least %d %s, found %d", least, why, p.FewestPasses)
		return
	case p.FewestPasses < least:
		b.fault("passes.fewest", "expected at least %d %s, found %d, which cap it at %.4g",
			least, why, p.FewestPasses, p.skewnessCap(p.FewestPasses))
		return
	}
	if !b.sound("passes.expected") || p.ExpectedPasses == 0 || p.ExpectedPasses >= p.FewestPasses {
		return
	}
	if given {
		why = "as passes.fewest says"
	}
	b.fault("passes.expected", "expected at least %d %s, found %d", p.FewestPasses, why, p.ExpectedPasses)
}

// resolveThresholds checks that the policy has no threshold, or one for each score that the gate
// can reach.
func (b *builder) resolveThresholds() {
	p := b.p
	if p.Observes() || !b.sound("gate", "primary.threshold", "fallback.threshold") {
		return
	}
	for _, r := range p.reachable() {
		if !r.HasThreshold {
			b.fault(r.field+".threshold", "missing, expected a threshold for each score that gate %s can reach, "+
				"or none at all to observe", p.Gate)
		}
	}
}

// checkNeeds checks that the policy has the sets that its scores, gate and scope need.
func (b *builder) checkNeeds() {
	p := b.p
	var critical, safe []string
	if b.sound("gate") {
		for _, r := range p.reachable() {
			if !b.sound(r.field + ".score") {
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
	if b.sound("scope") && p.Scope == PredictedSafe {
		critical = append(critical, fmt.Sprintf("scope %s", p.Scope))
	}
	if len(p.Critical) == 0 && len(critical) > 0 && b.sound("classes", "critical") {
		b.fault("critical", "no class is critical, expected at least one for %s", strings.Join(critical, ", "))
	}
	if len(p.Safe) == 0 && len(safe) > 0 && b.sound("classes", "critical", "safe") {
		b.fault("safe", "no class is safe, expected at least one for %s", strings.Join(safe, ", "))
	}
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
	if p.Pairs == AllPairs && n > MaxClassesForAllPairs {
		b.fault("pairs", "all is for at most %d classes, expected %s for %d", MaxClassesForAllPairs, SafeCriticalPairs, n)
	}
	if len(p.Safe)*len(p.Critical) > MaxPairs && b.sound("critical", "safe") {
		b.fault("critical", "%d safe x %d critical classes, expected at most %d such pairs: name fewer critical "+
			"classes, or the safe ones that matter", len(p.Safe), len(p.Critical), MaxPairs)
	}
	if !b.given("top_classes", b.TopClasses == 0) {
		p.TopClasses = min(defaultTopClasses, n)
	} else if p.TopClasses > n {
		b.fault("top_classes", "expected at most %d, the number of classes, found %d", n, p.TopClasses)
	}
}

// reachable lists the rules that the gate can let decide, with their fields.
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

// comparesRisk reports whether a rule that can decide names score risk.
func (p *Policy) comparesRisk() bool {
	return slices.ContainsFunc(p.reachable(), func(r reachableRule) bool { return r.Score == RiskScore })
}

type reachableRule struct {
	Rule
	field string
}

// readsSkewness reports whether the policy's gate rests on the skewness ratio of a sample of passes.
func (p *Policy) readsSkewness() bool { return p.Gate.ReadsSkewness() && p.Kind != Dirichlet }

// skewnessCap returns the largest skewness ratio that a number of passes can show. One pass that is
// one-hot where all others are 0 has it.
func (p *Policy) skewnessCap(passes int) float64 {
	s := float64(passes)
	if p.Variance == Population {
		return (s - 2) / 3
	}
	return (s - 1) * (s - 2) / (3 * s)
}

// leastPasses returns the smallest number of passes whose cap is above the threshold, or a number
// above MaxPasses if there is none.
func (p *Policy) leastPasses(threshold float64) int {
	return 2 + sort.Search(MaxPasses-1, func(i int) bool { return p.skewnessCap(2+i) > threshold })
}

// has reports whether an ascending set has the class.
func has(set []int, class int) bool {
	_, ok := slices.BinarySearch(set, class)
	return ok
}
