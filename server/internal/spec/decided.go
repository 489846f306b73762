package spec

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

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
}

// decision is what became of one input, beside its outcome.
type decision struct {
	id      string
	context *ckdv1.InputContext // nil: none was stated
	settled bool
	fair    bool // when it ended does not depend on its passes
}

// decided checks the result of an input whose outcome is known, and counts it.
func (s *Server) decided(p *Policy, t terms, d decision, o *engine.Outcome, got *ckdv1.Decomposition) error {
	if got == nil {
		return fmt.Errorf("no decision, expected %s", o.Decision.Action)
	}
	if err := sameDecision(p, o, d.settled, got); err != nil {
		return err
	}
	if t.detail >= ckdv1.Detail_DETAIL_VECTORS {
		if err := sameVectors(o, got); err != nil {
			return err
		}
	}
	if hasVectors := len(got.GetC()) > 0; hasVectors != (t.detail >= ckdv1.Detail_DETAIL_VECTORS) {
		return fmt.Errorf("vectors: %v, with %v", hasVectors, t.detail)
	}
	if hasPairs := got.GetScores() != nil; hasPairs != (t.detail >= ckdv1.Detail_DETAIL_FULL) {
		return fmt.Errorf("scores: %v, with %v", hasPairs, t.detail)
	}
	if err := s.reviewed(p, t, d, o, got); err != nil {
		return err
	}
	s.countDecided(p, o)
	return nil
}

// countDecided counts a decided input in the series that every input has.
func (s *Server) countDecided(p *Policy, o *engine.Outcome) {
	m := p.Name
	s.count(m, 1, "ckd_decisions_total", "action", o.Decision.Action.String(), "score", string(o.Decision.Score), "reason", o.Decision.Reason.String())
	s.count(m, float64(o.Passes), "ckd_passes_total")
	s.count(m, 1, "ckd_class_predicted_total", "class", p.Classes[o.Predicted])
	for _, name := range []string{"ckd_mutual_information_nats", "ckd_predictive_entropy_nats"} {
		s.count(m, 1, name)
	}
	for k, class := range p.Classes {
		s.count(m, 1, "ckd_class_epistemic_nats", "class", class)
		s.count(m, 1, "ckd_class_skewness_ratio", "class", class)
		if o.Skewness[k] > p.ReliabilityThreshold {
			s.count(m, 1, "ckd_class_unreliable_total", "class", class)
		}
	}
	if o.Dominant >= 0 {
		s.count(m, 1, "ckd_class_dominant_total", "class", p.Classes[o.Dominant])
	}
	if o.Decision.Class >= 0 {
		s.count(m, 1, "ckd_class_deciding_total", "class", p.Classes[o.Decision.Class])
	}
	if o.Decision.Gate == policy.ByFallback {
		s.count(m, 1, "ckd_inputs_fallback_total")
	}
	if o.Degenerate {
		s.count(m, 1, "ckd_inputs_degenerate_total")
	}
	if o.Saturated {
		s.count(m, 1, "ckd_inputs_saturated_total")
	}
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

// word returns a value of an enum of the wire as policies write it.
func word(prefix, value string) string { return strings.ToLower(strings.TrimPrefix(value, prefix)) }

func near(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b))
}

func sameDecision(p *Policy, o *engine.Outcome, settled bool, got *ckdv1.Decomposition) error {
	d, g := o.Decision, got.GetDecision()
	want := fmt.Sprintf("%s %s %s gate %q class %d predicted %d passes %d degenerate %v saturated %v settled %v threshold %v",
		d.Action, d.Score, d.Reason, d.Gate, d.Class, o.Predicted, o.Passes, o.Degenerate, o.Saturated, settled, threshold(d.Threshold, d.HasThreshold))
	class := -1
	if g.DecidingClass != nil {
		class = int(g.GetDecidingClass())
	}
	gate := word("GATE_OUTCOME_", g.GetGate().String())
	if g.GetGate() == ckdv1.GateOutcome_GATE_OUTCOME_UNSPECIFIED {
		gate = ""
	}
	have := fmt.Sprintf("%s %s %s gate %q class %d predicted %d passes %d degenerate %v saturated %v settled %v threshold %v",
		word("ACTION_", g.GetAction().String()), word("SCORE_", g.GetScore().String()), word("DECISION_REASON_", g.GetReason().String()), gate, class,
		got.GetPredicted(), got.GetPasses(), got.GetDegenerate(), got.GetSaturated(), got.GetSettled(), threshold(g.GetThreshold(), g.Threshold != nil))
	if have != want {
		return fmt.Errorf("decided\n  %s, expected\n  %s", have, want)
	}
	if !near(g.GetValue(), d.Value) {
		return fmt.Errorf("the score is %v, expected %v", g.GetValue(), d.Value)
	}
	var unreliable []uint32
	for k, skewness := range o.Skewness {
		if skewness > p.ReliabilityThreshold {
			unreliable = append(unreliable, uint32(k))
		}
	}
	if !slices.Equal(unreliable, got.GetUnreliable()) {
		return fmt.Errorf("unreliable classes %v, expected %v", got.GetUnreliable(), unreliable)
	}
	return nil
}

func threshold(v float64, has bool) string {
	if !has {
		return "none"
	}
	return fmt.Sprint(v)
}

func sameVectors(o *engine.Outcome, got *ckdv1.Decomposition) error {
	for _, v := range []struct {
		name      string
		got, want []float64
	}{
		{"c", got.GetC(), o.C}, {"skewness", got.GetSkewness(), o.Skewness}, {"mean", got.GetMean(), o.Mean},
		{"sums", []float64{got.GetMi(), got.GetEntropy(), got.GetSumC()}, []float64{o.MI, o.Entropy, o.SumC}},
	} {
		if !slices.EqualFunc(v.got, v.want, near) {
			return fmt.Errorf("%s %v, expected %v", v.name, v.got, v.want)
		}
	}
	return nil
}

// reviewed checks who is to look at an input, and its receipt, and counts both.
func (s *Server) reviewed(p *Policy, t terms, d decision, o *engine.Outcome, got *ckdv1.Decomposition) error {
	if t.receipts == ckdv1.Receipts_RECEIPTS_UNSPECIFIED {
		if got.GetReview() || len(got.GetReceipt()) > 0 {
			return fmt.Errorf("review %v and a receipt of %d bytes, expected neither", got.GetReview(), len(got.GetReceipt()))
		}
		return nil
	}
	critical := p.critical[o.Predicted]
	drawn := audit.NewAuditor(p.Policy).Draw(s.Keys.DrawKey(), 0, o.Decision, critical, o.Risk, []byte(d.id), o.Passes, o.Mean)
	review := got.GetReview()
	if chance := d.id == "" && drawn.Propensity > 0 && drawn.Propensity < 1; !chance && review != drawn.Review {
		return fmt.Errorf("review %v, expected %v with propensity %v", review, drawn.Review, drawn.Propensity)
	}
	stratum := drawn.Stratum.String()
	s.count(p.Name, 1, "ckd_receipts_eligible_total", "stratum", stratum)
	if review {
		s.count(p.Name, 1, "ckd_reviews_total", "stratum", stratum)
	}
	has := t.receipts == ckdv1.Receipts_RECEIPTS_ALL || review || drawn.Free
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
	want := receipt.Receipt{
		Stratum: drawn.Stratum, Review: review, Predicted: uint32(o.Predicted), Passes: uint32(o.Passes), Settled: d.settled,
		Degenerate: o.Degenerate, Propensity: drawn.Propensity, Draw: drawn.Hash,
	}
	if d.context != nil {
		want.Group = s.Keys.DrawKey().Group([]byte(d.context.GetGroup()))
	}
	have := receipt.Receipt{
		Stratum: r.Stratum, Review: r.Review, Predicted: r.Predicted, Passes: r.Passes, Settled: r.Settled,
		Degenerate: r.Degenerate, Propensity: r.Propensity, Draw: r.Draw, Group: r.Group,
	}
	if have != want || !slices.Equal(r.Policy[:], hash) {
		return fmt.Errorf("the receipt says %+v under %x, expected %+v under %x", have, r.Policy, want, hash)
	}
	return nil
}
