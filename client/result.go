package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ErrClosed reports that a session was used after Close.
var ErrClosed = errors.New("the session is closed")

// Result holds the answer for one input: a decomposition, or an error.
type Result struct {
	// ID as the caller gave it.
	ID string
	// Row gives the input's position in its group or batch.
	Row int
	// Decomposition includes the decision. It is nil when Err is set.
	Decomposition *ckdv1.Decomposition
	// Policy names the policy that decided. It is nil for an error that names none.
	Policy *ckdv1.PolicyRef
	// Err is nil or an *InputError. An input with an error has not been cleared.
	Err error
}

// Retained reports whether the policy decided to let the model's answer stand. It returns false
// for deferrals, for policies that only observe, and for every error.
func (r Result) Retained() bool {
	return r.Err == nil && r.Decomposition.GetDecision().GetAction() == ckdv1.Action_ACTION_RETAIN
}

// Settled reports whether the input was decided before its last pass. Decomposition.Passes says
// after how many.
func (r Result) Settled() bool { return r.Decomposition.GetSettled() }

// Review reports whether a person should find out the truth about the input: it was deferred, or
// retained and drawn for an audit. It is set for sessions and batches that ask for receipts.
func (r Result) Review() bool { return r.Decomposition.GetReview() }

// Receipt returns the sealed record of the decision, or nil where none was asked for. Keep it with
// the input, and send it back with the truth once that is known.
func (r Result) Receipt() []byte { return r.Decomposition.GetReceipt() }

// answered reports whether the result has arrived.
func (r Result) answered() bool { return r.Decomposition != nil || r.Err != nil }

// InputError says why an input has no decision.
type InputError struct {
	Code codes.Code
	// Reason stays unspecified if the daemon gave none, or one that this version does not know.
	Reason  ckdv1.ErrorReason
	Message string
	// Fields hold what was wrong, where it applies: row, pass, class, value, expected.
	Fields map[string]string
	// Unanswered says that the session ended before the daemon answered. Sending the input again is
	// safe: a decision changes nothing but counts.
	Unanswered bool

	status *status.Status
}

// Error returns the message, the code and the reason.
func (e *InputError) Error() string {
	text := e.Message
	if e.Unanswered {
		text = "no answer: " + text
	}
	if e.Reason == ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return fmt.Sprintf("%s (%s)", text, e.Code)
	}
	return fmt.Sprintf("%s (%s, %s)", text, e.Code, reasonName(e.Reason))
}

// GRPCStatus returns the status with all its details, for package status.
func (e *InputError) GRPCStatus() *status.Status { return e.status }

// Reason returns the daemon's reason for the error of a call, a session or an input. It returns
// ERROR_REASON_UNSPECIFIED for an error without a reason.
func Reason(err error) ckdv1.ErrorReason {
	st, _ := status.FromError(err)
	return reasonOf(errorInfo(st))
}

const (
	reasonPrefix = "ERROR_REASON_"
	errorDomain  = "ckd.v1"
)

func reasonName(r ckdv1.ErrorReason) string { return strings.TrimPrefix(r.String(), reasonPrefix) }

func reasonOf(info *errdetails.ErrorInfo) ckdv1.ErrorReason {
	return ckdv1.ErrorReason(ckdv1.ErrorReason_value[reasonPrefix+info.GetReason()])
}

// errorInfo returns the detail in which the daemon gives its reason, or nil.
func errorInfo(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info
		}
	}
	return nil
}

func newInputError(st *status.Status) *InputError {
	if st.Code() == codes.OK {
		// An error must not look like success to a caller that looks at the code alone.
		st = status.New(codes.Unknown, "error without a code: "+st.Message())
	}
	info := errorInfo(st)
	return &InputError{
		Code:    st.Code(),
		Reason:  reasonOf(info),
		Message: st.Message(),
		Fields:  info.GetMetadata(),
		status:  st,
	}
}

// unanswered returns the error of an input that the session left without an answer.
func unanswered(err error) *InputError {
	e := newInputError(status.Convert(err))
	e.Unanswered = true
	return e
}

// newResult converts the answer for the input with this id and row. policies come from the same
// reply.
func newResult(id string, row int, r *ckdv1.Result, policies []*ckdv1.PolicyRef) (Result, error) {
	result := Result{ID: id, Row: row}
	known := uint64(r.GetPolicy()) < uint64(len(policies))
	if known {
		result.Policy = policies[r.GetPolicy()]
	}
	if e := r.GetError(); e != nil {
		refused := newInputError(status.FromProto(e))
		if _, named := refused.Fields["row"]; named {
			refused.Fields["row"] = strconv.Itoa(row) // the caller's, not the wire's
		}
		result.Err = refused
		return result, nil
	}
	result.Decomposition = r.GetDecomposition()
	switch {
	case result.Decomposition == nil:
		return Result{}, broken("input %q is answered with neither a decomposition nor an error", id)
	// A decision for another input, or for an unknown one, must not count for this input.
	case r.GetInputId() != id:
		return Result{}, broken("row %d is answered as input %q, expected %q", row, r.GetInputId(), id)
	case !known:
		return Result{}, broken("input %q names policy %d of %d", id, r.GetPolicy(), len(policies))
	}
	return result, nil
}

// broken returns the error of a daemon and a client that do not understand each other: one of them has a
// bug, or their versions do not fit. It ends the session.
func broken(format string, args ...any) error {
	return status.Error(codes.Internal, "the contract is broken: "+fmt.Sprintf(format, args...))
}
