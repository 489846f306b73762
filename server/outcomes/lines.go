package outcomes

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// RaiseLine implements the RPC.
func (s *Service) RaiseLine(ctx context.Context, r *ckdv1.RaiseLineRequest) (*ckdv1.RaiseLineResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayClear, "raise lines"); err != nil {
		return nil, err
	}
	if err := auth.Allow(ctx, r.GetModel()); err != nil {
		return nil, err
	}
	w := promise.Watch{Class: r.GetCriticalClass()}
	switch r.GetFigure() {
	case ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE:
		w.Risk = evidence.MissRate
	case ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR:
		w.Risk = evidence.FNR
	default:
		return nil, wrong("figure", "number %d, expected the critical miss rate or the critical FNR", r.GetFigure()).Err()
	}
	who, err := signature(ctx, r.GetBy(), r.GetReason())
	if err != nil {
		return nil, err
	}
	switch err := s.Ledger.RaiseLine(who, r.GetReason(), r.GetModel(), w, r.GetLine()); {
	case errors.Is(err, ledger.ErrNoPromise):
		return nil, fail(codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_PROMISE, "model", err.Error()).Err()
	case errors.Is(err, ledger.ErrLine):
		return nil, fail(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_WRONG_OUTCOME, "line", err.Error()).Err()
	case err != nil:
		return nil, s.failed("raise a line", err)
	}
	s.Log.Warn("a line was raised", zap.String("model", r.GetModel()), zap.Stringer("figure", w), zap.Float64("line", r.GetLine()))
	states, err := s.Ledger.States()
	if err != nil {
		return nil, s.failed("read the states", err)
	}
	response := &ckdv1.RaiseLineResponse{}
	for _, p := range states {
		if p.Model == r.GetModel() {
			response.Promises = append(response.Promises, promiseMessage(p))
		}
	}
	return response, nil
}
