package policy

import (
	"fmt"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy/risk"
)

// noClass is the class of a term that has none.
const noClass = -1

// term returns the term of the risk model that is being read or checked.
func (b *builder) term() *risk.Term { return &b.Risk.Model.Terms[b.item] }

// riskRules check the block risk against the sets, and the rules on score risk against the block. A
// model has every feature once, with a class of the right set where it takes one.
type riskRules struct {
	*builder
	p *Policy
}

// check checks the block risk, and that it is there for rules that need it.
func (b riskRules) check() {
	if b.sound("gate") {
		b.checkScores()
	}
	if b.Risk == nil {
		return
	}
	b.checkShare("risk.prevalence", b.Risk.Prevalence)
	if len(b.p.Critical) == 0 && b.sound("classes", "critical") {
		b.fault("critical", "no class is critical, expected at least one for the block risk")
	}
	const path = "risk.terms"
	switch n := len(b.Risk.Model.Terms); {
	case !b.sound(path):
	case n == 0:
		b.fault(path, "empty, expected at least one term")
	case n > mostRiskTerms:
		b.fault(path, "expected at most %d terms, found %d", mostRiskTerms, n)
		return
	}
	first := make(map[risk.Term]string) // paths, by what is weighted
	for i, t := range b.Risk.Model.Terms {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !b.sound(at+".feature", at+".class") {
			continue
		}
		b.checkTerm(at, t)
		t.Weight = 0
		if before, twice := first[t]; twice {
			b.fault(at, "the feature is given twice, first at %s", b.where(before))
			continue
		}
		first[t] = at
	}
}

// checkTerm checks what the feature of a term wants of the other fields.
func (b riskRules) checkTerm(at string, t risk.Term) {
	of, _ := t.Feature.Of()
	set, name := b.p.Critical, "critical"
	if of == risk.SafeClass {
		set, name = b.p.Safe, "safe"
	}
	switch {
	case of == risk.NoClass && t.Class != noClass:
		b.fault(at+".class", "expected none for feature %s", t.Feature)
	case of == risk.NoClass:
	case t.Class == noClass:
		b.fault(at+".class", "missing, expected the %s class of feature %s", name, t.Feature)
	case !has(set, t.Class) && b.sound("classes", "critical", "safe"):
		b.fault(at+".class", "class %s is not %s, expected a %s class", strictyaml.Quote(b.Classes[t.Class]), name, name)
	}
	if t.Feature.Rises() && t.Weight < 0 && b.sound(at+".weight") {
		b.fault(at+".weight", "expected at least 0 for feature %s, found %v: the risk must not fall as critical classes get "+
			"more probable", t.Feature, t.Weight)
	}
}

// checkScores checks the rules that name score risk.
func (b riskRules) checkScores() {
	for _, r := range b.p.reachable() {
		if r.Score != RiskScore {
			continue
		}
		if b.Risk == nil && b.sound(r.field+".score", "risk") {
			b.fault(r.field+".score", "%s needs the block risk, which is missing: ckd calibrate writes both", RiskScore)
		}
		if r.Threshold > 1 && b.sound(r.field+".threshold") {
			b.fault(r.field+".threshold", "expected a probability of at most 1 for score %s, found %v", RiskScore, r.Threshold)
		}
	}
}
