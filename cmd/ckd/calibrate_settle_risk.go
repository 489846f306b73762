package main

import (
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/learn"
)

// riskToTest is what the policy's certificate promises; nil where it has none, or none
// that can be tested with the rule in force: then its fate is told.
func (c *calibrateCmd) riskToTest(rec *labelledRecording, base *policy.Policy, found *calibration) *learn.Risk {
	p := found.Policy
	if p.Calibration == nil || p.Calibration.Certificate == nil {
		return nil
	}
	was := p.Calibration.Certificate
	fate := &riskFate{Kind: was.Kind, Target: was.Target}
	found.Settle.Risk = fate
	drop := func(why string) *learn.Risk {
		fate.Dropped = why
		return nil
	}
	on := p.Calibration.Recording.PassesSHA256
	switch {
	case was.Kind != policy.LearnThenTest:
		return drop("conformal risk control bounds a mean over thresholds, and says nothing of a rule that ends inputs early")
	case rec.labels == nil:
		return drop("without labels it cannot be tested with the rule in force")
	case c.seeks():
	case !ofItself(base):
		return drop("it is not told that the policy is still the one that was certified")
	case on == "" || found.PassesFile.SHA256 == "":
		return drop("nothing tells whether the policy was calibrated on this very recording, which could not certify it a second time")
	case on == found.PassesFile.SHA256, base.Settle != nil && base.Settle.PassesSHA256 == found.PassesFile.SHA256:
		return drop("this very recording calibrated the policy, or certified it with a rule, and cannot do so a second time")
	}
	return &learn.Risk{Target: was.Target, Confidence: was.Confidence}
}

// certify a rule, together with the risk where one is to be tested. Where that fails
// under the most cautious rule, the certificate is dropped, not the rule.
func (s *settling) certify(d *learn.Decisions, path *learn.Path, inputs []int, risk *learn.Risk, seed uint64) (
	*settle.Rule, *learn.Certificate, error,
) {
	q := learn.Request{Epsilon: s.Epsilon, Confidence: s.Confidence, Risk: risk, Seed: seed}
	rule, got, err := q.Certify(d, path, inputs)
	if failed := (*learn.RiskError)(nil); errors.As(err, &failed) {
		s.Risk.Dropped = "with the rule in force it does not hold: " + failed.Error()
		q.Risk = nil
		return q.Certify(d, path, inputs)
	}
	return rule, got, err
}

// settleRisk puts the certificate that holds with the rule in force into the policy, or
// drops the one that was there, loudly.
func (c *calibrateCmd) settleRisk(ctx *cmdContext, found *calibration, got *learn.Certificate) {
	fate := found.Settle.Risk
	if fate == nil {
		return
	}
	calibration := found.Policy.Calibration
	was := calibration.Certificate
	if fate.Dropped == "" {
		misses, cases := got.RiskTest.Misses, got.RiskTest.Cases
		fate.Kept = true
		found.Certificate = &calibrate.Certificate{
			Kind: was.Kind, Target: was.Target, Confidence: was.Confidence, Cases: cases, Misses: misses,
			PValue: got.RiskTest.PValue,
			Statement: fmt.Sprintf("With confidence %v, at most %v of the critical inputs that are retained are called safe with the rule "+
				"in force that settles inputs early, for inputs drawn as those of the recording were; %d of %d were.",
				was.Confidence, was.Target, misses, cases),
		}
		if c.seeks() {
			found.Notes = append(found.Notes, fmt.Sprintf("on the part that calibrated, %d of %d were called safe without a rule, which certified the "+
				"same of all passes; the certificate is of the rule in force, on the other part", was.Misses, was.Cases))
		}
		r := found.Certificate
		calibration.Certificate = &policy.Certificate{
			Kind: r.Kind, Target: r.Target, Confidence: r.Confidence, Cases: r.Cases, Misses: r.Misses, PValue: r.PValue,
			Statement: r.Statement,
		}
		return
	}
	calibration.Certificate = nil
	if found.Certificate == nil { // of a policy that is kept
		found.Certificate = &calibrate.Certificate{
			Kind: was.Kind, Target: was.Target, Confidence: was.Confidence, Cases: was.Cases, Misses: was.Misses,
			PValue: was.PValue, Statement: was.Statement,
		}
	}
	found.Certificate.Void = fmt.Sprintf("Dropped: %s. The policy is written without its certificate.", fate.Dropped)
	found.warn(ctx, "the certificate of the policy, by %s for at most %v, is dropped: %s", was.Kind, was.Target, fate.Dropped)
}

// warn loudly: at once, and in the notes.
func (found *calibration) warn(ctx *cmdContext, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(ctx.Stderr, "ckd: warning: %s\n", text)
	found.Notes = append(found.Notes, text)
}

// heedRule of an earlier attempt on the same passes, of which a policy tells: the one
// that is replaced, or the one that is kept. Of several rules the one that certified may
// have done so by chance. To seek the same again finds the same, and is no further
// attempt.
func (found *calibration) heedRule(ctx *cmdContext, policies ...*policy.Policy) {
	now := found.Policy.Settle
	if now.PassesSHA256 == "" {
		found.Notes = append(found.Notes, "the passes came by a pipe, and nothing tells them from others: an earlier attempt to certify a rule "+
			"on them cannot be noticed, nor a later one")
	}
	for _, was := range policies {
		if was == nil || was.Settle == nil || now.PassesSHA256 == "" || was.Settle.PassesSHA256 != now.PassesSHA256 {
			continue
		}
		old := was.Settle
		if old.PolicyHash == now.PolicyHash && old.Order == now.Order && old.Seed == now.Seed &&
			old.Certificate.Disagreement == now.Certificate.Disagreement && old.Certificate.Confidence == now.Certificate.Confidence {
			continue
		}
		earlier := fmt.Sprintf("settle %v at confidence %v, seed %d", old.Certificate.Disagreement, old.Certificate.Confidence, old.Seed)
		found.warn(ctx, "a rule was certified on the same passes before (%s): of several attempts the one that succeeds may do so by chance, so "+
			"that the confidence is less than it says; certify on fresh passes", earlier)
		if found.Certificate != nil && found.Certificate.Void == "" {
			found.Policy.Calibration.EarlierAttempt = earlier
			found.Void("a certificate was sought on the same passes before (" + earlier + ")")
		}
		return
	}
}

// noteOnSettling says what a reader has to know of the rule.
func (c *calibrateCmd) noteOnSettling(found *calibration, base *policy.Policy) {
	s := found.Settle
	note := func(format string, args ...any) { found.Notes = append(found.Notes, fmt.Sprintf(format, args...)) }
	if c.seeks() {
		note("the recording was parted at random: %d inputs calibrated and learned when inputs are settled, and the other %d certified that; "+
			"all figures but those of the rule are of the first part, so that intervals are wider and certificates harder to get than "+
			"from all %d", s.LearnedFrom, s.CertifiedOn, s.LearnedFrom+s.CertifiedOn)
	} else {
		note("the recording was parted at random: from %d inputs it was learned when inputs are settled, and the other %d certified that",
			s.LearnedFrom, s.CertifiedOn)
		if base.Calibration != nil && base.Calibration.Recording.PassesSHA256 != "" &&
			base.Calibration.Recording.PassesSHA256 == found.PassesFile.SHA256 {
			note("the thresholds of the policy were calibrated on this recording, the inputs that certify the rule included, which is not " +
				"quite independent; an objective beside --settle keeps the two apart")
		}
	}
	if !c.Ordered && s.Passes <= 10 {
		note("%d passes are few for draws of one posterior: for the members of an ensemble say --ordered", s.Passes)
	}
}
