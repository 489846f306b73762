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

// ErrClosed is returned where a session was used after Close.
var ErrClosed = errors.New("the session is closed")

// Result is the answer for one input: a decomposition, or an error.
type Result struct {
	// ID as the caller gave it.
	ID string
	// Row is the input's position in its group or batch.
	Row int
	// Decomposition with the decision; nil where there is an error.
	Decomposition *ckdv1.Decomposition
	// Policy that the input was under; nil where an error names none.
	Policy *ckdv1.PolicyRef
	// Err is an *InputError. An input with an error has not been cleared.
	Err error
}

// Retained tells whether the policy decided to let the model's answer stand. It
// is false for deferrals, for policies that only observe, and for every error.
func (r Result) Retained() bool {
	return r.Err == nil && r.Decomposition.GetDecision().GetAction() == ckdv1.Action_ACTION_RETAIN
}

// Settled tells that the input was decided before its last pass, because its decision
// was settled. Decomposition.Passes says on how many.
func (r Result) Settled() bool { return r.Decomposition.GetSettled() }

// answered tells a result from a place that still waits for one.
func (r Result) answered() bool { return r.Decomposition != nil || r.Err != nil }

// InputError says why an input has no decision.
type InputError struct {
	Code codes.Code
	// Reason is unspecified where none was given, or one that this version does
	// not know.
	Reason  ckdv1.ErrorReason
	Message string
	// Fields name what was wrong, as far as it applies: pass, class, value, expected.
	Fields map[string]string
	// Unanswered means that the session ended before the daemon answered.
	// Sending the input again is safe: deciding changes nothing but counts.
	Unanswered bool

	status *status.Status
}

// Error is the message, the code and the reason.
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

// GRPCStatus gives the status with all its details, for package status.
func (e *InputError) GRPCStatus() *status.Status { return e.status }

// ProtocolError says that daemon and client do not understand each other: one of
// them has a fault, or they are of different versions. It ends the session.
type ProtocolError struct {
	Message string
}

// Error is the message.
func (e *ProtocolError) Error() string { return "the contract is broken: " + e.Message }

// GRPCStatus gives the inputs that a ProtocolError leaves without an answer
// their code.
func (e *ProtocolError) GRPCStatus() *status.Status { return status.New(codes.Internal, e.Error()) }

// Reason finds the daemon's reason in the error of a call, a session or an input;
// it is unspecified where there is none.
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

// errorInfo finds the detail in which the daemon gives its reason, or nil.
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
		// An error must not look like success to whoever looks at the code alone.
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

// unanswered is the error of an input that the end of a stream left behind.
func unanswered(err error) *InputError {
	e := newInputError(status.Convert(err))
	e.Unanswered = true
	return e
}

// newResult reads the answer for the input of this id and row. The policies are
// those of the reply.
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
	// A decision must not be taken for another input's, or for nobody's.
	case r.GetInputId() != id:
		return Result{}, broken("row %d is answered as input %q, expected %q", row, r.GetInputId(), id)
	case !known:
		return Result{}, broken("input %q names policy %d of %d", id, r.GetPolicy(), len(policies))
	}
	return result, nil
}

func broken(format string, args ...any) *ProtocolError {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}
