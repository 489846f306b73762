package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Decompose checks the answer to a unary call, or the error that refused it.
func (s *Server) Decompose(r *ckdv1.DecomposeRequest, got *ckdv1.DecomposeResponse, err error) error {
	refused := ""
	if err != nil {
		refused = ReasonOf(status.Convert(err).Proto())
	}
	p, name, want := s.policies[r.GetModel()], "", "UNKNOWN_MODEL"
	v, wrong := values(&ckdv1.Block{Values: r.GetValues(), ValuesLe: r.GetValuesLe()})
	if p != nil {
		name, want = p.Name, s.refusedCall(p, r, v, wrong, refused)
	}
	if want != "" {
		s.count(name, float64(min(max(int(r.GetInputs()), 1), s.Limits.InputsPerRequest)), "ckd_inputs_rejected_total", "reason", strings.ToLower(want))
	}
	if refused != want {
		return errors.Join(fmt.Errorf("the call is refused with %q, expected %q", refused, want), err)
	}
	if want != "" {
		return nil
	}
	n, each, width := int(r.GetInputs()), int(r.GetPasses()), len(p.Classes)
	if len(got.GetResults()) != n || got.GetPolicy().GetHash() != p.Hash {
		return fmt.Errorf("%d results under %v, expected %d under %s", len(got.GetResults()), got.GetPolicy(), n, p.Hash)
	}
	t := termsOf(r)
	for i, result := range got.GetResults() {
		d, taken := decision{}, false
		if len(r.GetInputIds()) > 0 {
			d.id = r.GetInputIds()[i]
			taken = slices.Contains(r.GetInputIds()[:i], d.id)
		}
		if len(r.GetContexts()) > 0 && t.receipts != 0 {
			d.context = r.GetContexts()[i]
		}
		if int(result.GetRow()) != i || result.GetInputId() != shown(d.id) {
			return fmt.Errorf("input %d is answered as row %d, id %q", i, result.GetRow(), result.GetInputId())
		}
		var passes [][]float32
		for pass := range each {
			at := (pass*n + i) * width
			if r.GetLayout() == ckdv1.Layout_LAYOUT_NSK {
				at = (i*each + pass) * width
			}
			passes = append(passes, v[at:at+width])
		}
		why := s.refusedID(d.id, taken, d.context)
		if why == "" {
			why = p.refusal(passes)
		}
		if err := s.answered(p, t, d, passes, why, ReasonOf(result.GetError()), result.GetDecomposition()); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
	}
	return nil
}

// refusedCall returns why a whole call is refused, or "". The daemon says where that cannot be known.
func (s *Server) refusedCall(p *Policy, r *ckdv1.DecomposeRequest, v []float32, wrong, said string) string {
	n, passes := int(r.GetInputs()), int(r.GetPasses())
	switch {
	case r.GetReceipts() != ckdv1.Receipts_RECEIPTS_UNSPECIFIED && s.Keys == nil:
		return "RECEIPTS_UNAVAILABLE"
	case p.refusedTerms(r) != "":
		return p.refusedTerms(r)
	case r.GetLayout() == ckdv1.Layout_LAYOUT_UNSPECIFIED:
		return "WRONG_LAYOUT"
	case n > s.Limits.InputsPerRequest:
		return "TOO_MANY_INPUTS"
	case passes > s.Limits.Passes:
		return "TOO_MANY_PASSES"
	case len(r.GetInputIds()) > 0 && len(r.GetInputIds()) != n:
		return "WRONG_ID_COUNT"
	case len(r.GetContexts()) > 0 && len(r.GetContexts()) != n:
		return "WRONG_CONTEXT"
	case said == "REPLY_TOO_LARGE": // by an estimate of the daemon's own
		return said
	case wrong != "":
		return wrong
	case s.Room == None || s.Room == Tight && said == "OUT_OF_MEMORY_BUDGET":
		return "OUT_OF_MEMORY_BUDGET"
	case len(v) != n*passes*len(p.Classes):
		return "WRONG_LENGTH"
	case passes < p.FewestPasses:
		return "TOO_FEW_PASSES"
	case p.Kind == policy.Dirichlet && passes > 1:
		return "TOO_MANY_PASSES"
	}
	return ""
}
