package spec

import (
	"fmt"
	"math/rand/v2"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Judge checks the answer to an input that had these passes and was then finished, be it by its last
// pass or before. reason is that of the error that answered it, or "" for a decision.
func (s *Server) Judge(p *Policy, h *ckdv1.StreamHeader, id string, passes [][]float32, got *ckdv1.Decomposition, reason string) error {
	settled := got.GetSettled()
	if settled {
		n := int(got.GetPasses())
		if p.rule == nil || !h.GetAcceptSettled() || n >= p.ExpectedPasses || n > len(passes) {
			return fmt.Errorf("decided early after %d passes of %d, which should not be", n, len(passes))
		}
		passes = passes[:n]
	}
	want := ""
	for _, row := range passes {
		if want = p.faultOf(row); want != "" {
			break
		}
	}
	if want == "" && len(passes) < p.FewestPasses {
		want = "TOO_FEW_PASSES"
	}
	if want == "" {
		want = p.faultOfAll(passes)
	}
	if reason != want {
		return fmt.Errorf("the error is %q, expected %q", reason, want)
	}
	if want != "" {
		return nil
	}
	o, err := s.decide(p, passes)
	if err != nil {
		return err
	}
	return s.decided(p, termsOf(h), decision{id: id, settled: settled}, o, got)
}

// Row returns a random row of a policy, now and then one that is refused.
func (p *Policy) Row(r *rand.Rand) []float32 {
	row := p.row(r, usual)
	if chance(r, 0.01) {
		p.spoil(r, row)
	}
	return row
}
