package calibrate

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// oneAttempt is the note that every valid certificate gets.
const oneAttempt = "The certificate is for this one attempt: to calibrate again on the same recording in another way voids it."

// noticeEarlierAttempt voids the certificate if the replaced policy records another attempt on the
// same recording: of several attempts, one may succeed by chance. The new policy records the first
// attempt too, so the next certificate will also be void. Repeating the same calibration finds the
// same policy and does not count as another attempt.
func (c *calibration) noticeEarlierAttempt() {
	r, was := c.report, c.Replaces
	if r.Certificate != nil && c.Source.Passes.SHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt on them cannot be noticed, nor a " +
			"later one")
	}
	if was == nil || was.Calibration == nil {
		return
	}
	before, on := was.Calibration, was.Calibration.Recording
	if on.PassesSHA256 == "" || on.PassesSHA256 != c.Source.Passes.SHA256 || on.LabelsSHA256 != c.Source.Labels.SHA256 {
		return
	}
	earlier := before.EarlierAttempt
	if before.Certificate != nil && (before.Objective != r.Objective || was.Hash != r.PolicyHash) {
		earlier = fmt.Sprintf("%s, scope %s, seed %d", before.Objective, before.Scope, before.Seed)
	}
	if earlier == "" {
		return
	}
	c.draft.Calibration.EarlierAttempt = earlier
	if r.Certificate != nil && r.Certificate.Void == "" {
		c.void("a certificate was sought on the same recording before (" + earlier + ")")
	}
}

// noticeEarlierRule warns if one of the policies, which may be nil, has a rule that was certified
// on the same passes with another share of either kind, confidence or seed. A certificate about misses is then
// void, because it was tested with the new rule in force.
func (c *calibration) noticeEarlierRule(policies ...*policy.Policy) {
	r, now := c.report, c.draft.EarlyStopping
	if now.PassesSHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt to certify a rule on them cannot be " +
			"noticed, nor a later one")
		return
	}
	for _, was := range policies {
		if was == nil || was.EarlyStopping == nil || was.EarlyStopping.PassesSHA256 != now.PassesSHA256 {
			continue
		}
		old := was.EarlyStopping
		if old.PolicyHash == now.PolicyHash && old.Order == now.Order && old.Seed == now.Seed &&
			old.Certificate.Disagreement == now.Certificate.Disagreement && old.Certificate.Released.AtMost == now.Certificate.Released.AtMost &&
			old.Certificate.Confidence == now.Certificate.Confidence {
			continue
		}
		earlier := fmt.Sprintf("settle %v, released %v, at confidence %v, seed %d", old.Certificate.Disagreement,
			old.Certificate.Released.AtMost, old.Certificate.Confidence, old.Seed)
		r.warn("a rule was certified on the same passes before (%s): of several attempts the one that succeeds may do so by chance, so "+
			"that the confidence is less than it says; certify on fresh passes", earlier)
		if r.Certificate != nil && r.Certificate.Void == "" {
			c.draft.Calibration.EarlierAttempt = earlier
			c.void("a certificate was sought on the same passes before (" + earlier + ")")
		}
		return
	}
}

// void takes the certificate out of the policy. Earlier says in words what the first attempt was.
func (c *calibration) void(earlier string) {
	r := c.report
	r.Why = slices.DeleteFunc(r.Why, func(why string) bool { return why == oneAttempt })
	r.Certificate.Void = "Void: " + earlier + ", and this is a second attempt on the same data. The policy is written without a " +
		"certificate; certify on fresh data."
	c.draft.Calibration.Certificate = nil
}
