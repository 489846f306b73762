package policy

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// resolveGate fills in the gate where none is given.
func (b *builder) resolveGate() {
	if b.given("gate") {
		return
	}
	b.p.Gate = AnyCritical
	if b.p.Kind == Dirichlet {
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
	given := b.given("passes.fewest")
	switch {
	case !b.sound("passes.fewest"):
		return
	case least > maxPasses:
		b.fault("reliability_threshold", "%v is never exceeded, expected less than %.6g, the largest skewness that "+
			"%d passes can show", p.ReliabilityThreshold, p.skewnessCap(maxPasses), maxPasses)
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

// checkThresholds checks that the policy has no threshold, or one for each score that the gate
// can reach.
func (b *builder) checkThresholds() {
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
			if r.Score.needsCritical() {
				critical = append(critical, fmt.Sprintf("%s.score %s", r.field, r.Score))
			}
			if r.Score.needsSafe() {
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
// above maxPasses if there is none.
func (p *Policy) leastPasses(threshold float64) int {
	return 2 + sort.Search(maxPasses-1, func(i int) bool { return p.skewnessCap(2+i) > threshold })
}
