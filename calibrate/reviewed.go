package calibrate

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Reviewed holds decisions of a policy that people looked at, from cohorts whose outcomes are all
// due: what a policy can be calibrated on anew without any stored passes.
type Reviewed struct {
	// Name says where the outcomes come from and since when, for the policy and the report. Two
	// calibrations of the same policy and name are attempts on the same data.
	Name string
	// Outcomes in the order of their decisions.
	Outcomes []Outcome
	// Overdue counts the inputs called safe whose review was asked for and never came. They are taken
	// as retained and missed, whatever the new policy is.
	Overdue []Overdue
	// LeastPropensity, in (0,1], is the least that an input called safe may have had under all
	// settings of audits in force. It must not depend on what the reviews found.
	LeastPropensity float64
}

// Outcome is a decision and what a person found.
type Outcome struct {
	// Scores are those of the decision, Risk is the policy's; NaN where undefined.
	Scores [decomp.NumScores]float32
	Risk   float32
	// Predicted and Truth are classes. Disputed says that readers disagree whether the truth is
	// critical: it is taken as whichever is worse.
	Predicted, Truth int
	Disputed         bool
	// Deferred says what was decided, Fixed that no threshold did, but the guard or identical passes:
	// a new threshold decides the same.
	Deferred, Fixed bool
	// Propensity, in (0,1], is the probability with which the input was reviewed.
	Propensity float64
	// Group is the same number for inputs that are not independent; 0 for an input by itself.
	Group uint64
}

// Overdue counts reviews that never came, each of which stands for Weight inputs.
type Overdue struct {
	Number int
	Weight float64
}

// FromOutcomes calibrates the policy o.Base anew on what happened to its own decisions.
//
// One half of the outcomes, by group and at random, chooses a score and the thresholds that are to be
// tested. The other half certifies: from the strictest threshold on, each is tested by betting, and
// the last one before the first that fails is taken (fixed-sequence testing). With the weight W =
// 1/propensity, R whether the new policy retains an input, C whether it is truly critical and M
// whether it is so and called safe, the hypothesis "the figure is a or more" loses the bet
//
//	K = mean over k of prod (1 - lambda_k Z),  lambda_k = 0.98 q/(1-a) 2^-k,  k = 0..11,
//	Z = W R (M - a C) for the critical FNR,  Z = W (R M - a C) for the critical miss rate,
//
// where q is Reviewed.LeastPropensity, and the p-value is 1/K, at most 1 (Waudby-Smith & Ramdas 2024;
// Angelopoulos et al. 2021). Inputs of a group bet together, with Z summed over the group and divided
// by the size of the largest.
//
// The objective must be bounds on misses. Gates are not sought, for a receipt does not hold what they
// read; the policy keeps its guard and loses its early-stopping rule, which was certified for other
// thresholds. If nothing certifies, there is no error but a Refusal in the report, and no policy.
// Nothing certifies either where the half that certifies has no reviewed input of a critical class,
// or none in some tenth of what the new policy retains: weights would then speak for inputs that
// nobody saw.
//
// Of the options Base, Objective, Scope, Seed, Force, Replaces and Source.Software count.
func FromOutcomes(r Reviewed, o Options) (*Report, error) {
	if err := cmp.Or(o.check(), r.check(o.Base)); err != nil {
		return nil, err
	}
	if len(o.Objective.Limits) == 0 {
		return nil, errors.New("calibration from outcomes needs bounds on misses with a confidence: a critical miss rate, a critical FNR")
	}
	o.Source.Passes = eval.File{Name: r.Name, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(o.Base.Hash+"\n"+r.Name)))}
	t := newOutcomeTest(&r, &o)
	t.report.setSource(&o.Source, false)
	if err := t.choose(); err != nil || t.draft == nil {
		return t.report, err
	}
	if err := o.noticeEarlierAttempt(t.report, t.draft); err != nil {
		return nil, err
	}
	t.report.keepLines(o.Base, t.draft)
	return t.report, t.report.put(t.draft)
}

// check returns an error that names the first outcome that cannot be.
func (r *Reviewed) check(p *policy.Policy) error {
	if len(r.Outcomes) == 0 {
		return errors.New("no outcomes: expected reviewed decisions of this policy from mature cohorts")
	}
	if !(r.LeastPropensity > 0 && r.LeastPropensity <= 1) {
		return fmt.Errorf("least propensity %v: expected above 0 and at most 1: nothing that is retained and called safe is reviewed", r.LeastPropensity)
	}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		switch {
		case min(o.Predicted, o.Truth) < 0 || max(o.Predicted, o.Truth) >= len(p.Classes):
			return fmt.Errorf("outcome %d: classes %d and %d, expected 0 to %d", i, o.Predicted, o.Truth, len(p.Classes)-1)
		case !(o.Propensity > 0 && o.Propensity <= 1):
			return fmt.Errorf("outcome %d: propensity %v, expected above 0 and at most 1", i, o.Propensity)
		case !slices.Contains(p.Critical, o.Predicted) && o.Propensity < r.LeastPropensity:
			return fmt.Errorf("outcome %d: propensity %v, expected no less than the least, %v", i, o.Propensity, r.LeastPropensity)
		}
	}
	for i, d := range r.Overdue {
		if d.Number < 0 || !(d.Weight >= 1 && d.Weight <= 1/r.LeastPropensity*(1+1e-9)) {
			return fmt.Errorf("overdue %d: %d inputs of weight %v, expected weights from 1 to %v", i, d.Number, d.Weight, 1/r.LeastPropensity)
		}
	}
	return nil
}
