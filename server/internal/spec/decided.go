package spec

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// terms are what the client of an input has asked for.
type terms struct {
	detail    ckdv1.Detail
	posterior string
	receipts  ckdv1.Receipts
	version   string // of the model
}

func termsOf(r interface {
	GetDetail() ckdv1.Detail
	GetPosterior() string
	GetReceipts() ckdv1.Receipts
	GetModelVersion() string
}) terms {
	return terms{r.GetDetail(), r.GetPosterior(), r.GetReceipts(), r.GetModelVersion()}
}

// decision is what became of one input, beside its outcome.
type decision struct {
	id      string
	context *ckdv1.InputContext // nil: none was stated
	settled bool
	planned int // passes that a settled input would have had
}

// decided checks the result of an input whose outcome is known, and counts it.
func (s *Server) decided(p *Policy, t terms, d decision, o *engine.Outcome, got *ckdv1.Decomposition) error {
	if got == nil {
		return fmt.Errorf("no decision, expected %s", o.Decision.Action)
	}
	if err := s.reviewed(p, t, d, o, got); err != nil {
		return err
	}
	heeding := *o
	if s.alarmed(p) {
		heeding.Decision = p.WhileViolated(o.Decision, o.Predicted)
	}
	want := p.outcome(&heeding, t.detail, d.settled)
	want.Review, want.Receipt = got.GetReview(), got.GetReceipt() // reviewed has checked these
	switch {                                                      // an input that goes to a person for review has the receipt that the review needs
	case want.GetReview():
		s.Referred = append(s.Referred, fmt.Sprintf("%s %q %s %x", p.Name, d.id, heeding.Decision.Action, want.GetReceipt()))
	case heeding.Decision.Action == policy.Defer:
		s.Referred = append(s.Referred, fmt.Sprintf("%s %q %s ", p.Name, d.id, heeding.Decision.Action))
	}
	if diff := gocmp.Diff(want, got, rounding, protocmp.Transform()); diff != "" {
		return fmt.Errorf("decomposition (-want +got):\n%s", diff)
	}
	s.count(p.Name, 1, "ckd_decisions_total", "action", heeding.Decision.Action.String(), "score", string(o.Decision.Score), "reason", heeding.Decision.Reason.String())
	s.count(p.Name, float64(o.Passes), "ckd_passes_total")
	s.countMismatch(p, t, cmp.Or(d.planned, o.Passes))
	return nil
}

// alarmed reports whether an alarm of the model is up and the policy's audit heeds it.
func (s *Server) alarmed(p *Policy) bool {
	return s.Alarm == p.Name && p.Audit != nil && p.Audit.OnBreach == policy.DeferOnBreach
}

// countMismatch counts how an input differs from those of the policy's calibration.
func (s *Server) countMismatch(p *Policy, t terms, passes int) {
	c := p.Calibration
	if c == nil {
		return
	}
	if c.Recording.Passes != 0 && c.Recording.Passes != passes {
		s.count(p.Name, 1, "ckd_calibration_mismatches_total", "what", "passes")
	}
	if c.Posterior != "" && t.posterior != "" && c.Posterior != t.posterior {
		s.count(p.Name, 1, "ckd_calibration_mismatches_total", "what", "posterior")
	}
}

// rounding compares messages but for how sums are rounded: inputs that are computed together, or pass by
// pass, may be summed in another order.
var rounding = gocmp.Options{cmpopts.EquateApprox(1e-9, 1e-9), cmpopts.EquateNaNs()}

// outcome returns the message of an outcome at a detail, without what receipts add.
func (p *Policy) outcome(o *engine.Outcome, detail ckdv1.Detail, settled bool) *ckdv1.Decomposition {
	m := &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{
			Action: enum[ckdv1.Action](ckdv1.Action_value, "ACTION_", o.Decision.Action.String()),
			Score:  enum[ckdv1.Score](ckdv1.Score_value, "SCORE_", string(o.Decision.Score)),
			Value:  o.Decision.Value,
			Gate:   enum[ckdv1.GateOutcome](ckdv1.GateOutcome_value, "GATE_OUTCOME_", o.Decision.Gate.String()),
			Reason: enum[ckdv1.DecisionReason](ckdv1.DecisionReason_value, "DECISION_REASON_", o.Decision.Reason.String()),
		},
		Predicted: uint32(o.Predicted), Passes: uint32(o.Passes), Degenerate: o.Degenerate, Saturated: o.Saturated, Settled: settled,
	}
	if o.Decision.HasThreshold {
		m.Decision.Threshold = &o.Decision.Threshold
	}
	if o.Decision.Class >= 0 {
		m.Decision.DecidingClass = proto.Uint32(uint32(o.Decision.Class))
	}
	for k, skewness := range o.Skewness {
		if skewness > p.ReliabilityThreshold {
			m.Unreliable = append(m.Unreliable, uint32(k))
		}
	}
	if p.Risk != nil {
		if m.Priority, m.PriorityPercentile = &o.Priority, &o.Percentile; !math.IsNaN(o.Risk) {
			m.Risk = &o.Risk
		}
	}
	if detail < ckdv1.Detail_DETAIL_VECTORS {
		return m
	}
	m.C, m.Skewness, m.Mean, m.Mi, m.Entropy, m.SumC = o.C, o.Skewness, o.Mean, o.MI, o.Entropy, o.SumC
	if o.Dominant >= 0 {
		m.Dominant = proto.Uint32(uint32(o.Dominant))
	}
	if detail < ckdv1.Detail_DETAIL_FULL {
		return m
	}
	m.Variance, m.ThirdMoment, m.M, m.C3 = o.Variance, o.ThirdMoment, o.M, o.C3(make([]float64, len(o.C)))
	m.ExpectedEntropy, m.SumCTop, m.SumCWeighted = o.ExpectedEntropy, o.SumCTop(p.TopClasses), o.SumCWeighted()
	m.Scores = &ckdv1.Scores{}
	for i, score := range o.Scores {
		if !math.IsNaN(score) {
			scores := m.Scores.ProtoReflect()
			scores.Set(scores.Descriptor().Fields().ByName(protoreflect.Name(decomp.Score(i).String())), protoreflect.ValueOfFloat64(score))
		}
	}
	for i, pair := range p.model.Plan().Pairs() {
		m.Pairs = append(m.Pairs, &ckdv1.PairTerm{ClassA: uint32(pair.A), ClassB: uint32(pair.B), Confusion: o.PairTerm[i], Correlation: o.Correlation[i]})
	}
	return m
}

// enum returns the value of an enum that has the name of a word of policies.
func enum[E ~int32](values map[string]int32, prefix, word string) E {
	return E(values[prefix+strings.ToUpper(strings.ReplaceAll(word, "-", "_"))])
}

// reviewed checks who is to look at an input, and its receipt, and counts both.
func (s *Server) reviewed(p *Policy, t terms, d decision, o *engine.Outcome, got *ckdv1.Decomposition) error {
	critical := p.model.CallsCritical(o.Predicted)
	version := cmp.Or(t.version, p.Version)
	if t.receipts == ckdv1.Receipts_RECEIPTS_UNSPECIFIED {
		if got.GetReview() || len(got.GetReceipt()) > 0 {
			return fmt.Errorf("review %v and a receipt of %d bytes, expected neither", got.GetReview(), len(got.GetReceipt()))
		}
		s.countIssued(p, version, audit.Stratum(o.Decision, critical), "decisions", true)
		return nil
	}
	auditor := audit.NewAuditor(p.Policy)
	auditor.Surge(s.alarmed(p))
	drawn := auditor.Draw(s.Keys.DrawKey(), 0, o.Decision, critical, o.Risk, []byte(d.id), o.Passes, o.Mean)
	review := got.GetReview()
	if chance := d.id == "" && drawn.Propensity > 0 && drawn.Propensity < 1; !chance && review != drawn.Review {
		return fmt.Errorf("review %v, expected %v with propensity %v", review, drawn.Review, drawn.Propensity)
	}
	stratum := drawn.Stratum.String()
	s.count(p.Name, 1, "ckd_receipts_eligible_total", "stratum", stratum)
	if review {
		s.count(p.Name, 1, "ckd_reviews_total", "stratum", stratum)
	}
	if !drawn.Free {
		s.count(p.Name, float64(drawn.Propensity), "ckd_audit_propensity_total", "stratum", stratum)
	}
	has := t.receipts == ckdv1.Receipts_RECEIPTS_ALL || review || drawn.Free
	for what, counts := range map[string]bool{"decisions": true, "eligible": true, "receipts": has, "reviews": review} {
		s.countIssued(p, version, drawn.Stratum, what, counts)
	}
	if (len(got.GetReceipt()) > 0) != has {
		return fmt.Errorf("a receipt of %d bytes, expected one: %v", len(got.GetReceipt()), has)
	}
	if !has {
		return nil
	}
	r, _, err := s.Keys.Open(got.GetReceipt())
	if err != nil {
		return fmt.Errorf("the receipt does not open: %w", err)
	}
	hash, err := hex.DecodeString(p.Hash)
	if err != nil {
		return err
	}
	decided := p.outcome(o, t.detail, d.settled).GetDecision()
	want := receipt.Receipt{
		Policy: [32]byte(hash), Version: receipt.VersionHash(version), Time: r.Time, Stratum: drawn.Stratum,
		Action: uint8(decided.GetAction()), Reason: uint8(decided.GetReason()), Gate: uint8(decided.GetGate()),
		Predicted: uint32(o.Predicted), Passes: uint32(o.Passes), Settled: d.settled, Degenerate: o.Degenerate, Review: review,
		Risk: float32(o.Risk), Propensity: drawn.Propensity, Draw: drawn.Hash,
	}
	for score, v := range o.Scores {
		want.Scores[score] = float32(v)
	}
	if t.detail < ckdv1.Detail_DETAIL_FULL { // what no policy uses may be left out where it is not told
		want.Scores[decomp.OvAMI] = r.Scores[decomp.OvAMI]
	}
	if d.context != nil {
		want.Group = s.Keys.DrawKey().Group([]byte(d.context.GetGroup()))
		if p.Audit != nil {
			for at, slice := range p.Audit.Slices {
				if value := d.context.GetSlices()[slice.Name]; slices.Contains(slice.Values, value) {
					want.Slices[at] = policy.SliceHash(slice.Name, value)
				}
			}
		}
	}
	if diff := gocmp.Diff(want, r, rounding); diff != "" {
		return fmt.Errorf("receipt (-want +got):\n%s", diff)
	}
	return nil
}

// countIssued counts what ledgers are told, if the daemon has keys.
func (s *Server) countIssued(p *Policy, version string, stratum receipt.Stratum, what string, counts bool) {
	if counts && s.Keys != nil {
		s.issued[Series(Issued, "policy", p.Hash, "version", version, "stratum", stratum.String(), "what", what)]++
	}
}
