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
	p := s.policies[r.GetModel()]
	if p == nil {
		s.count("", float64(max(int(r.GetInputs()), 1)), "ckd_inputs_rejected_total", "reason", "unknown_model")
		return sameRefusal(err, "UNKNOWN_MODEL")
	}
	v, reason := values(&ckdv1.Block{Values: r.GetValues(), ValuesLe: r.GetValuesLe()})
	if why := s.refusedCall(p, r, v, reason, err); why != "" {
		s.count(p.Name, float64(min(max(int(r.GetInputs()), 1), s.Limits.InputsPerRequest)), "ckd_inputs_rejected_total", "reason", strings.ToLower(why))
		return sameRefusal(err, why)
	}
	if err != nil {
		return fmt.Errorf("refused with %w, expected an answer", err)
	}
	n, each, width := int(r.GetInputs()), int(r.GetPasses()), len(p.Classes)
	if len(got.GetResults()) != n || got.GetPolicy().GetHash() != p.Hash {
		return fmt.Errorf("%d results under %v, expected %d under %s", len(got.GetResults()), got.GetPolicy(), n, p.Hash)
	}
	t := termsOf(r)
	for i, result := range got.GetResults() {
		id := ""
		if len(r.GetInputIds()) > 0 {
			id = r.GetInputIds()[i]
		}
		var passes [][]float32
		why := ""
		if len(id) > s.Limits.IDBytes {
			why = "ID_TOO_LONG"
		} else if id != "" && slices.Contains(r.GetInputIds()[:i], id) {
			why = "DUPLICATE_ID"
		}
		d := decision{id: id}
		if len(r.GetContexts()) > 0 && t.receipts != 0 {
			d.context = r.GetContexts()[i]
		}
		if why == "" && s.wrongContext(d.context) {
			why = "WRONG_CONTEXT"
		}
		for pass := range each {
			at := (pass*n + i) * width
			if r.GetLayout() == ckdv1.Layout_LAYOUT_NSK {
				at = (i*each + pass) * width
			}
			row := v[at : at+width]
			if why == "" {
				why = p.faultOf(row)
			}
			passes = append(passes, row)
		}
		if why == "" {
			why = p.faultOfAll(passes)
		}
		if int(result.GetRow()) != i || result.GetInputId() != shown(id) {
			return fmt.Errorf("input %d is answered as row %d, id %q", i, result.GetRow(), result.GetInputId())
		}
		if why != "" {
			s.count(p.Name, 1, "ckd_inputs_rejected_total", "reason", strings.ToLower(why))
			if got := ReasonOf(result.GetError()); got != why {
				return fmt.Errorf("input %d: %q, expected %s", i, got, why)
			}
			continue
		}
		o, err := s.decide(p, passes)
		if err != nil {
			return err
		}
		if err := s.decided(p, t, d, o, result.GetDecomposition()); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		s.countMismatch(p, t, each)
	}
	return nil
}

// refusedCall returns why a whole call is refused, or "".
func (s *Server) refusedCall(p *Policy, r *ckdv1.DecomposeRequest, v []float32, reason string, err error) string {
	n, passes := int(r.GetInputs()), int(r.GetPasses())
	switch {
	case r.GetReceipts() != ckdv1.Receipts_RECEIPTS_UNSPECIFIED && s.Keys == nil:
		return "RECEIPTS_UNAVAILABLE"
	case len(r.GetClasses()) > 0 && !slices.Equal(r.GetClasses(), p.Classes):
		return "WRONG_CLASSES"
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
	case s.tooLarge(p, termsOf(r), n, refusal(err) == "REPLY_TOO_LARGE"):
		return "REPLY_TOO_LARGE"
	case reason != "":
		return reason
	case s.Room == None || s.Room == Tight && refusal(err) == "OUT_OF_MEMORY_BUDGET":
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

// refusal returns the reason in an error, or "".
func refusal(err error) string {
	if err == nil {
		return ""
	}
	return ReasonOf(status.Convert(err).Proto())
}

func sameRefusal(err error, want string) error {
	if got := refusal(err); got != want {
		return errors.Join(fmt.Errorf("%q, expected the call to be refused with %s", got, want), err)
	}
	return nil
}
