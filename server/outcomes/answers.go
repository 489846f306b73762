package outcomes

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// statusMessages maps what becomes of outcomes.
var statusMessages = map[ledger.Status]ckdv1.OutcomeStatus{
	ledger.Counted:          ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED,
	ledger.Corrected:        ckdv1.OutcomeStatus_OUTCOME_STATUS_CORRECTED,
	ledger.SecondReadWanted: ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED,
	ledger.Apart:            ckdv1.OutcomeStatus_OUTCOME_STATUS_APART,
	ledger.Duplicate:        ckdv1.OutcomeStatus_OUTCOME_STATUS_DUPLICATE,
	ledger.UnknownKey:       ckdv1.OutcomeStatus_OUTCOME_STATUS_UNKNOWN_KEY,
	ledger.Forged:           ckdv1.OutcomeStatus_OUTCOME_STATUS_FORGED,
	ledger.PolicyUnknown:    ckdv1.OutcomeStatus_OUTCOME_STATUS_POLICY_UNKNOWN,
	ledger.Invalid:          ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID,
}

// wantMessages maps which further readings are wanted.
var wantMessages = map[truth.Want]ckdv1.Wanted{
	truth.WantSecond: ckdv1.Wanted_WANTED_SECOND_READ,
	truth.WantThird:  ckdv1.Wanted_WANTED_THIRD_READ,
}

// kinds maps how truths are found out.
var kinds = map[ckdv1.OutcomeKind]truth.Kind{
	ckdv1.OutcomeKind_OUTCOME_KIND_UNSPECIFIED: truth.ByReading,
	ckdv1.OutcomeKind_OUTCOME_KIND_READING:     truth.ByReading,
	ckdv1.OutcomeKind_OUTCOME_KIND_BIOPSY:      truth.ByBiopsy,
	ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP:   truth.ByFollowUp,
}

// kindMessages maps them back.
var kindMessages = map[truth.Kind]ckdv1.OutcomeKind{
	truth.ByReading:  ckdv1.OutcomeKind_OUTCOME_KIND_READING,
	truth.ByBiopsy:   ckdv1.OutcomeKind_OUTCOME_KIND_BIOPSY,
	truth.ByFollowUp: ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP,
}

// answerMessage returns the answer to outcome i of a request.
func answerMessage(i int, a ledger.Answer) *ckdv1.OutcomeAnswer {
	s := statusMessages[a.Status]
	if !a.Stored() {
		return refused(i, s, fieldOf(a.Field), a.Why)
	}
	return &ckdv1.OutcomeAnswer{
		Status: s, Predicted: a.Predicted, Decided: timeMessage(a.Time), Wanted: wantMessages[a.Want], Note: a.Why,
	}
}

// fieldOf returns the name that a field of the ledger's has in messages.
func fieldOf(name string) string {
	if name == "at" {
		return "time"
	}
	return name
}

// refused returns the answer to outcome i, which is not kept.
func refused(i int, s ckdv1.OutcomeStatus, field, why string) *ckdv1.OutcomeAnswer {
	code, reason := codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_OUTCOME
	switch s {
	case ckdv1.OutcomeStatus_OUTCOME_STATUS_POLICY_UNKNOWN:
		code, reason = codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_PROMISE
	case ckdv1.OutcomeStatus_OUTCOME_STATUS_NOT_ALLOWED:
		code, reason = codes.PermissionDenied, ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED
	}
	return &ckdv1.OutcomeAnswer{Status: s, Error: fail(code, reason, fmt.Sprintf("outcomes[%d].%s", i, field), why).Proto()}
}
