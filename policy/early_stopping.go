package policy

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// MaxEarlyStopPasses bounds the passes of a policy with an early-stopping rule, which has numbers
// for each of them in memory even if the file gives only a few.
const MaxEarlyStopPasses = 1000

// EarlyStopping says when inputs are answered before their last pass, and what is guaranteed of
// that.
type EarlyStopping struct {
	// PolicyHash is the hash of the policy without this block, for which the rule was learned.
	PolicyHash string
	// Order says in which order the passes must come.
	Order PassOrder
	// Rule says when to stop. In force, its passes are those that the policy expects.
	Rule earlystop.Rule
	// Certificate holds for inputs drawn as those that certified the rule were.
	Certificate EarlyStopCertificate
	// MeanPasses is the mean number of passes that the certifying inputs used.
	MeanPasses float64
	// HalvesDiffer is the share of these inputs whose decision by one half of the passes differs
	// from that by the other half; nil if unknown. It tells what "the same decision" is worth.
	HalvesDiffer *float64

	// These name the software that learned the rule, with its version, the file it learned from, and
	// the seed. Zero values are unknown.
	Software                 string
	PassesFile, PassesSHA256 string
	Inputs                   int // learned from
	Seed                     uint64
}

// EarlyStopCertificate bounds what the rule decides otherwise than all passes do.
type EarlyStopCertificate struct {
	// Disagreement, in (0,1), bounds the share of inputs with another action, or retained both
	// times with only one predicted class critical. Confidence, in (0,1), is how sure that is. Each
	// released share has this confidence of its own.
	Disagreement, Confidence float64
	// Inputs counts those that it rests on, Disagreements those among them that disagreed.
	Inputs, Disagreements int
	// Groups counts the groups of inputs, such as patients, that it rests on. It is 0 if every input was
	// counted as independent.
	Groups int
	// Released is the share of the inputs deferred by all passes that the rule retains; the bound was
	// tested as Disagreement was. CriticalReleased is the same for critical inputs, with the bound
	// that the counts show; nil if nothing is known of them.
	Released         ReleasedShare
	CriticalReleased *ReleasedShare
}

// ReleasedShare bounds a share of deferred inputs, and says what the bound rests on.
type ReleasedShare struct {
	AtMost             float64 // in (0,1]; 1 says nothing
	Deferred, Released int
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

// HashWithoutEarlyStop returns the hash that the policy would have without an early-stopping rule.
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
	case p.ExpectedPasses > MaxEarlyStopPasses:
		return fmt.Sprintf("passes.expected is %d, above %d, the most that early stopping takes", p.ExpectedPasses, MaxEarlyStopPasses)
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
