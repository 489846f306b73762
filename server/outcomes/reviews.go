package outcomes

import (
	"context"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// reviewMessages maps what is known of a review.
var reviewMessages = map[ledger.ReviewStatus]ckdv1.ReviewStatus{
	ledger.ReviewNone:          ckdv1.ReviewStatus_REVIEW_STATUS_NONE,
	ledger.ReviewOpen:          ckdv1.ReviewStatus_REVIEW_STATUS_OPEN,
	ledger.ReviewOverdue:       ckdv1.ReviewStatus_REVIEW_STATUS_OVERDUE,
	ledger.ReviewAnswered:      ckdv1.ReviewStatus_REVIEW_STATUS_ANSWERED,
	ledger.ReviewDuplicate:     ckdv1.ReviewStatus_REVIEW_STATUS_DUPLICATE,
	ledger.ReviewUnknownKey:    ckdv1.ReviewStatus_REVIEW_STATUS_UNKNOWN_KEY,
	ledger.ReviewForged:        ckdv1.ReviewStatus_REVIEW_STATUS_FORGED,
	ledger.ReviewPolicyUnknown: ckdv1.ReviewStatus_REVIEW_STATUS_POLICY_UNKNOWN,
}

// FindReviews implements the RPC.
func (s *Service) FindReviews(ctx context.Context, r *ckdv1.FindReviewsRequest) (*ckdv1.FindReviewsResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayReportOutcomes, "find reviews"); err != nil {
		return nil, err
	}
	if n := len(r.GetReceipts()); n > mostOutcomes {
		return nil, wrong("receipts", "%d receipts, expected at most %d in one call", n, mostOutcomes).Err()
	}
	found, err := s.Ledger.Reviews(r.GetReceipts())
	if err != nil {
		return nil, s.failed("find reviews", err)
	}
	who := auth.FromContext(ctx)
	response := &ckdv1.FindReviewsResponse{}
	for _, v := range found {
		state := &ckdv1.ReviewState{Status: reviewMessages[v.Status], Due: timeMessage(v.Due), Wanted: wantMessages[v.Want], Sources: v.Sources}
		if model, _, known := s.Ledger.Policy(v.Policy); known && !who.MayUse(model) {
			state = &ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_NOT_ALLOWED}
		}
		response.States = append(response.States, state)
	}
	return response, nil
}

// ImportOutcomes implements the RPC.
func (s *Service) ImportOutcomes(ctx context.Context, r *ckdv1.ImportOutcomesRequest) (*ckdv1.ImportOutcomesResponse, error) {
	// It says of other people what they reported, and when: evidence takes what was reported in time.
	right := func(i *auth.Identity) bool { return i.MayClear() && i.MayUseAll() }
	if err := auth.Require(ctx, right, "import outcomes"); err != nil {
		return nil, err
	}
	if n := len(r.GetOutcomes()); n > mostOutcomes {
		return nil, wrong("outcomes", "%d outcomes, expected at most %d in one call", n, mostOutcomes).Err()
	}
	who, err := signature(ctx, r.GetBy(), r.GetReason())
	if err != nil {
		return nil, err
	}
	answers := make([]*ckdv1.OutcomeAnswer, len(r.GetOutcomes()))
	var batch []ledger.Outcome
	var places []int // places of the batch in the request
	for i, in := range r.GetOutcomes() {
		outcome, fault := s.outcomeOf(nil, i, in.GetOutcome())
		if fault == nil && in.GetReported().CheckValid() != nil {
			fault = refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "reported", "no valid time, expected when the outcome was first reported")
		}
		if fault != nil {
			answers[i] = fault
			continue
		}
		outcome.By, outcome.Reported = in.GetBy(), in.GetReported().AsTime()
		batch = append(batch, outcome)
		places = append(places, i)
	}
	found, err := s.Ledger.Import(who, r.GetReason(), batch)
	if err != nil {
		return nil, s.failed("import outcomes", err)
	}
	for n, a := range found {
		answers[places[n]] = answerMessage(places[n], a)
	}
	return &ckdv1.ImportOutcomesResponse{Answers: answers}, nil
}
