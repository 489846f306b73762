package policy

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// maxEarlyStopPasses bounds the passes of a policy with an early-stopping rule, which has numbers
// for each of them in memory even if the file gives only a few.
const maxEarlyStopPasses = 1000

// EarlyStopping says when inputs are answered before their last pass, and what is guaranteed of
// that. Where it is in force it is part of the hash.
type EarlyStopping struct {
	// The hash of the policy without this block and without lines. If a threshold, the gate or any other key has changed
	// since, the rule is not in force: all passes decide, and ckd check and the daemon's log say so.
	PolicyHash string `key:"policy_hash,required" form:"sha256"`
	// The order in which passes must come: any, as draws of one posterior may, or as recorded, as the
	// members of an ensemble must.
	Order PassOrder `key:"order" default:"any"`
	// What learned the rule, with its version.
	Software string `key:"software"`
	// The file with the passes that it was learned from and certified on.
	PassesFile string `key:"passes_file"`
	// The SHA-256 of that file.
	PassesSHA256 string `key:"passes_sha256" form:"sha256"`
	// How many inputs it was learned from. Others certified it.
	Inputs int `key:"inputs" range:"1..2147483647"`
	// The seed of the random choices.
	Seed uint64 `key:"seed" range:">=0"`
	// The mean number of passes that the certifying inputs used.
	MeanPasses float64 `key:"mean_passes" range:">=0"`
	// The share of these inputs on which random halves of the passes disagree: this much a decision
	// varies by sampling alone.
	HalvesDiffer *float64 `key:"halves_differ" range:"0..1"`
	// The guarantee, for inputs drawn as those that certified the rule.
	Certificate EarlyStopCertificate `key:"certificate,required"`
	// Rule says when to stop. In force, its passes are those that the policy expects.
	Rule earlystop.Rule `key:",inline"`
}

// EarlyStopCertificate bounds what the rule decides otherwise than all passes do.
type EarlyStopCertificate struct {
	// The largest share of inputs that are decided otherwise than by all passes: with another action, or
	// retained both times but predicted critical only once.
	Disagreement float64 `key:"disagreement,required" range:"(0..1)"`
	// The probability with which each of these shares is not exceeded.
	Confidence float64 `key:"confidence,required" range:"(0..1)"`
	// How many inputs the certificate rests on.
	Inputs int `key:"inputs" range:"1..2147483647"`
	// How many groups of inputs, such as patients, it rests on; none if all inputs were counted as
	// independent.
	Groups int `key:"groups" range:"0..2147483647"`
	// How many of the inputs were decided otherwise.
	Disagreements int `key:"disagreements" range:"0..2147483647"`
	// The share of the inputs deferred by all passes that are retained instead, bounded by a test of
	// its own.
	Released ReleasedShare `key:"released,required"`
	// The same for critical inputs, with the bound that the counts show.
	CriticalReleased *ReleasedShare `key:"critical_released"`
}

// ReleasedShare bounds a share of deferred inputs, and says what the bound rests on.
type ReleasedShare struct {
	// The largest share, above 0; 1 says nothing.
	AtMost float64 `key:"at_most,required" range:"0..1"`
	// How many inputs deferred by all passes it rests on.
	Deferred int `key:"deferred" range:"0..2147483647"`
	// How many of these were retained.
	Released int `key:"released" range:"0..2147483647"`
}

// PassOrder says in which order passes come.
type PassOrder string

// The orders.
const (
	AnyOrder     PassOrder = "any"      // draws of one posterior
	MembersOrder PassOrder = "recorded" // members of an ensemble: the order of the recording
)

// EarlyStop returns the early-stopping rule in force, or nil. A rule that was learned for a policy
// that has changed since is not in force. The call computes a hash: make it once for a policy.
func (p *Policy) EarlyStop() *earlystop.Rule {
	if p.EarlyStopping == nil || p.learnedForAnother() {
		return nil
	}
	return &p.EarlyStopping.Rule
}

// HashWithoutEarlyStop returns the hash that the policy would have without lines and without an
// early-stopping rule.
func (p *Policy) HashWithoutEarlyStop() string { return sum(p.meaning()) }

func (p *Policy) learnedForAnother() bool {
	return p.EarlyStopping.PolicyHash != p.HashWithoutEarlyStop()
}

// WhyNoEarlyStop returns why the policy can have no early-stopping rule, or nothing if it can.
func (p *Policy) WhyNoEarlyStop() string {
	switch {
	case p.Kind == Dirichlet:
		return fmt.Sprintf("kind is %s, whose inputs are one row", Dirichlet)
	case p.Observes():
		return "the policy has no thresholds, so that there is no decision to make early"
	case p.ExpectedPasses == 0:
		return "passes.expected is not given, so that there is no full decision"
	case p.ExpectedPasses > maxEarlyStopPasses:
		return fmt.Sprintf("passes.expected is %d, above %d, the most that early stopping takes", p.ExpectedPasses, maxEarlyStopPasses)
	case p.ExpectedPasses <= p.FewestPasses:
		return fmt.Sprintf("passes.expected is %d, as passes.fewest is: there is no pass less to decide on", p.ExpectedPasses)
	}
	for _, r := range p.reachable() {
		if r.Score == OvAMI {
			return fmt.Sprintf("%s.score is %s, which cannot be followed pass by pass", r.field, OvAMI)
		}
	}
	return ""
}

// IsEnsemble reports whether a posterior is an ensemble by its name, such as deep-ensemble or
// ensemble-5. Its passes are a fixed list of members.
func IsEnsemble(posterior string) bool {
	return strings.Contains(strings.ToLower(posterior), "ensemble")
}

// resolve makes the rule of the form, and checks the block: that it is complete, and that it fits the
// policy if it was learned for the policy as it is now. A block that was learned for another policy
// may stay, since thresholds may be changed at any time.
func (s *EarlyStopping) resolve(b *builder, p *Policy) {
	if s == nil {
		return
	}
	s.Certificate.validate(b)
	const path = "calibrated.early_stopping"
	form := s.Rule.Form
	if b.faultyWithin(path) {
		return
	}
	if form == nil {
		b.fault(path+".boundaries", "missing, expected at least one boundary")
		return
	}
	if err := form.Check(); err != nil {
		b.fault(path+".boundaries", "%v", err)
		return
	}
	first, last := form.Boundaries[0].Passes, form.Boundaries[len(form.Boundaries)-1].Passes
	passes := last + 1
	if !p.learnedForAnother() {
		if why := s.whyUnfit(p, first, last); why != "" {
			b.fault(path, "%s", why)
			return
		}
		passes = p.ExpectedPasses
	}
	s.Rule = form.Rule(passes, s.Rule.Patience)
}

// whyUnfit returns why a rule that decides from the first to the last number of passes cannot be in
// force for the policy, or nothing if it can.
func (s *EarlyStopping) whyUnfit(p *Policy, first, last int) string {
	why := p.WhyNoEarlyStop()
	switch most := p.ExpectedPasses; {
	case why != "":
		return "expected none: " + why
	case s.MeanPasses > float64(most):
		return fmt.Sprintf("expected mean_passes of at most %d, the passes of the full decision, found %v", most, s.MeanPasses)
	case first < p.FewestPasses:
		return fmt.Sprintf("expected boundaries from %d passes on, the fewest that the policy accepts, found one at %d", p.FewestPasses, first)
	case last >= most:
		return fmt.Sprintf("expected boundaries at fewer than %d passes, those of the full decision, found one at %d", most, last)
	}
	return ""
}

// validate wants counts that do not exceed what they are counted among.
func (c *EarlyStopCertificate) validate(b *builder) {
	const path = "calibrated.early_stopping.certificate"
	if c.Disagreements > c.Inputs {
		b.fault(path+".disagreements", "expected at most %d, the number of inputs, found %d", c.Inputs, c.Disagreements)
	}
	c.Released.validate(b, path+".released")
	c.CriticalReleased.validate(b, path+".critical_released")
}

func (r *ReleasedShare) validate(b *builder, path string) {
	switch {
	case r == nil || !b.sound(path+".at_most"):
	case r.AtMost == 0:
		b.fault(path+".at_most", "expected a share above 0, found 0")
	case r.Released > r.Deferred:
		b.fault(path+".released", "expected at most %d, those deferred, found %d", r.Deferred, r.Released)
	}
}
