package calibrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ckd-project/ckd/calibrate/internal/learn"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// riskToTest returns what the policy's certificate about misses promises, to be tested with the
// early-stopping rule in force. It returns nil if there is no certificate, or none that can be
// tested; the report then says why.
func (c *stopping) riskToTest(labelled bool) *learn.Risk {
	if c.draft.Calibration == nil || c.draft.Calibration.Certificate == nil {
		return nil
	}
	was := c.draft.Calibration.Certificate
	fate := &RiskCertificate{Kind: was.Kind, Target: was.Target}
	c.report.EarlyStop.Risk = fate
	now, on, before := c.Source.Passes.SHA256, c.draft.Calibration.Recording.PassesSHA256, c.Base.EarlyStopping
	switch {
	case was.Class != "" || len(was.Further) > 0:
		fate.Dropped = "bounds on single classes, or several at once, are not tested with a rule in force"
	case was.Groups > 0 && c.Groups == nil:
		fate.Dropped = "it is of groups, and without --groups the certificate of the rule is of independent inputs"
	case !labelled:
		fate.Dropped = "without labels it cannot be tested with the rule in force"
	case !certifiedAsItIs(c.Base):
		fate.Dropped = "it is not told that the policy is still the one that was certified"
	case on == "" || now == "":
		fate.Dropped = "nothing tells whether the policy was calibrated on this very recording, which could not certify it a second time"
	case on == now, before != nil && before.PassesSHA256 == now:
		fate.Dropped = "this very recording calibrated the policy, or certified it with a rule, and cannot do so a second time"
	}
	if fate.Dropped != "" {
		return nil
	}
	return &learn.Risk{Target: was.Target, Confidence: was.Confidence, OfAll: was.Bounds == policy.CriticalMissRate}
}

// certify certifies a rule, together with the risk where one is to be tested. If the risk fails
// under the most cautious rule, its certificate is dropped and the rule stays.
func (s *EarlyStop) certify(
	ctx context.Context, d *learn.Decisions, sequence []*earlystop.Rule, inputs []int, q *learn.Request,
) (*earlystop.Rule, *learn.Certificate, error) {
	rule, got, err := q.Certify(ctx, d, sequence, inputs)
	if failed := (*learn.RefusedError)(nil); errors.As(err, &failed) && failed.OfRisk {
		s.Risk.Dropped = "with the rule in force it does not hold: " + failed.Error()
		q.Risk = nil
		return q.Certify(ctx, d, sequence, inputs)
	}
	return rule, got, err
}

// renewRiskCertificate puts the certificate that holds with the rule in force into the policy, or
// drops the one that was there and warns of it.
func (c *stopping) renewRiskCertificate(got *learn.Certificate) {
	fate := c.report.EarlyStop.Risk
	if fate == nil {
		return
	}
	in := c.draft.Calibration
	was := in.Certificate
	if fate.Dropped != "" {
		in.Certificate = nil
		if c.report.Certificate == nil { // the policy is kept, with a certificate of its own
			c.report.Certificate = &Certificate{Certificate: *was}
		}
		c.report.Certificate.Void = fmt.Sprintf("Dropped: %s. The policy is written without its certificate.", fate.Dropped)
		c.report.warn("the certificate of the policy, by %s for at most %v, is dropped: %s", was.Kind, was.Target, fate.Dropped)
		return
	}
	fate.Kept = true
	renewed := *was
	renewed.Cases, renewed.Misses, renewed.PValue = got.Missed.Cases, got.Missed.Misses, got.RiskPValue
	bounded := "retained critical inputs are"
	if was.Bounds == policy.CriticalMissRate {
		bounded = "critical inputs are retained and"
	}
	drawn := "for inputs drawn as those of the recording were, " + policy.IfIndependent
	critical := got.Tally(learn.MissedOfAll)
	if renewed.Groups = len(critical.Groups); critical.Grouped() {
		drawn = fmt.Sprintf("for groups drawn as those of the recording were, of at most %d critical inputs each (%d groups with critical inputs "+
			"certified)", critical.Most, renewed.Groups)
	}
	renewed.Statement = fmt.Sprintf("With %s confidence, at most %s of the %s called safe with the rule in force that decides inputs early "+
		"(%d of %d were), %s.", percent(was.Confidence), percent(was.Target), bounded, renewed.Misses, renewed.Cases, drawn)
	in.Certificate, c.report.Certificate = &renewed, &Certificate{Certificate: renewed}
}
