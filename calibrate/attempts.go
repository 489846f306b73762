package calibrate

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// oneAttempt is the note that every valid certificate gets.
const oneAttempt = "The certificate is for this one attempt: to calibrate again on the same recording in another way voids it."

// noticeEarlierAttempt puts the hash of the policy into its draft, and voids the certificate if the
// policy that is completed, or the one that is replaced, says that a certificate was sought on the
// same recording before: of several attempts, one may succeed by chance. The new policy records the
// first attempt too, so that the next certificate will also be void. Repeating the same calibration
// finds the same policy, which is no second attempt.
func (o *Options) noticeEarlierAttempt(r *Report, d *policy.Policy) error {
	p, err := build(*d)
	if err != nil {
		return err
	}
	d.Calibration.PolicyHash = p.HashWithoutLines()
	if r.Certificate != nil && o.Source.Passes.SHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt on them cannot be noticed, nor a " +
			"later one")
	}
	for _, was := range []*policy.Policy{o.Replaces, o.Base} {
		if earlier := o.earlierBy(was, d); earlier != "" {
			d.Calibration.EarlierAttempt = earlier
			if r.Certificate != nil {
				r.void(d, "a certificate was sought on the same recording before ("+earlier+")")
			}
			break
		}
	}
	return nil
}

// earlierBy returns the attempt on this recording that a policy, which may be nil, records, in
// words; empty for none. Lines that were stated since are no attempt.
func (o *Options) earlierBy(was, now *policy.Policy) string {
	if was == nil || was.Calibration == nil {
		return ""
	}
	before, on := was.Calibration, was.Calibration.Recording
	if on.PassesSHA256 == "" || on.PassesSHA256 != o.Source.Passes.SHA256 || on.LabelsSHA256 != o.Source.Labels.SHA256 {
		return ""
	}
	if before.Certificate != nil && (before.Objective != now.Calibration.Objective || was.HashWithoutLines() != now.Calibration.PolicyHash) {
		return fmt.Sprintf("%s, scope %s, seed %d", before.Objective, before.Scope, before.Seed)
	}
	return before.EarlierAttempt
}

// noticeEarlierRule warns if the policy that is completed, or the one that is replaced, has a rule
// that was certified on the same passes with another share of either kind, confidence or seed. A
// certificate about misses is then void, because it was tested with the new rule in force.
func (c *stopping) noticeEarlierRule() {
	r, now := c.report, c.draft.EarlyStopping
	if now.PassesSHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt to certify a rule on them cannot be " +
			"noticed, nor a later one")
		return
	}
	for _, was := range []*policy.Policy{c.Replaces, c.Base} {
		if was == nil || was.EarlyStopping == nil || was.EarlyStopping.PassesSHA256 != now.PassesSHA256 {
			continue
		}
		old := was.EarlyStopping
		if old.PolicyHash == now.PolicyHash && old.Order == now.Order && old.Seed == now.Seed &&
			old.Certificate.Disagreement == now.Certificate.Disagreement && old.Certificate.Released.AtMost == now.Certificate.Released.AtMost &&
			old.Certificate.Confidence == now.Certificate.Confidence {
			continue
		}
		earlier := fmt.Sprintf("at most %v decided otherwise and %v released, at confidence %v, seed %d", old.Certificate.Disagreement,
			old.Certificate.Released.AtMost, old.Certificate.Confidence, old.Seed)
		r.warn("a rule was certified on the same passes before (%s): of several attempts the one that succeeds may do so by chance, so "+
			"that the confidence is less than it says; certify on fresh passes", earlier)
		if r.Certificate != nil && r.Certificate.Void == "" {
			c.draft.Calibration.EarlierAttempt = earlier
			r.void(c.draft, "a certificate was sought on the same passes before ("+earlier+")")
		}
		return
	}
}

// void takes the certificate out of a policy. Earlier says in words what the first attempt was.
func (r *Report) void(d *policy.Policy, earlier string) {
	r.Why = slices.DeleteFunc(r.Why, func(why string) bool { return why == oneAttempt })
	r.Certificate.Void = "Void: " + earlier + ", and this is a second attempt on the same data. The policy is written without a " +
		"certificate; certify on fresh data."
	d.Calibration.Certificate = nil
}
