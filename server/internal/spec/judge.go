package spec

import (
	"fmt"
	"math/rand/v2"
	"strings"

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
	return s.answered(p, termsOf(h), decision{id: id, settled: settled}, passes, p.refusal(passes), reason, got)
}

// answered checks the answer to an input that had these passes, and counts it. want is the reason why it
// must be refused, or "", and reason that of the error that answered it.
func (s *Server) answered(p *Policy, t terms, d decision, passes [][]float32, want, reason string, got *ckdv1.Decomposition) error {
	s.countRefused(p, want)
	if reason != want {
		return fmt.Errorf("the error is %q, expected %q", reason, want)
	}
	if want != "" {
		return nil
	}
	o, err := p.decide(passes)
	if err != nil {
		return err
	}
	return s.decided(p, t, d, o, got)
}

// countRefused counts an input that is refused for a reason; none for "".
func (s *Server) countRefused(p *Policy, reason string) {
	if reason != "" {
		s.count(p.Name, 1, "ckd_inputs_rejected_total", "reason", strings.ToLower(reason))
	}
}

// Row returns a random row of a policy, now and then one that is refused.
func (p *Policy) Row(r *rand.Rand) []float32 {
	row := p.row(r)
	if chance(r, 0.01) {
		p.spoil(r, row)
	}
	return row
}
