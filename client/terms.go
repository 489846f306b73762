package client

import (
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// terms holds what a stream's first reply states: the inputs that the daemon takes, and its
// limits. Limits may differ from one stream of a session to the next.
type terms struct {
	info                               *ckdv1.StreamInfo
	messageBytes, maxInputs, maxGroups int
}

// newTerms reads the first reply. Messages have at most messageBytes, however many more the daemon
// takes: small ones are read while others arrive.
func newTerms(info *ckdv1.StreamInfo, messageBytes int) terms {
	limits := info.GetLimits()
	return terms{
		info:         info,
		messageBytes: min(int(limits.GetMessageBytes()), messageBytes),
		maxInputs:    int(limits.GetOpenInputsPerStream()),
		maxGroups:    int(limits.GetOpenGroupsPerStream()),
	}
}

func (t terms) classes() int { return len(t.info.GetClasses()) }

// checkRowFits returns an error if a message is too small for a single row.
func (t terms) checkRowFits() error {
	if valueBytes*t.classes()+rowBytes > t.messageBytes-blockOverhead {
		return fmt.Errorf("the daemon accepts messages of %d bytes, too few for a row of %d classes",
			t.messageBytes, t.classes())
	}
	return nil
}

// checkSame returns an error if a later stream takes other inputs, or finishes them after another
// number of passes, than the session's first. Limits may differ.
func (t terms) checkSame(later terms) error {
	was, is := t.info, later.info
	var what string
	switch {
	case !slices.Equal(was.GetClasses(), is.GetClasses()):
		what = fmt.Sprintf("classes %q, expected %q", is.GetClasses(), was.GetClasses())
	case was.GetKind() != is.GetKind():
		what = fmt.Sprintf("kind %v, expected %v", is.GetKind(), was.GetKind())
	case was.GetExpectedPasses() != is.GetExpectedPasses():
		what = fmt.Sprintf("%d passes, expected %d", is.GetExpectedPasses(), was.GetExpectedPasses())
	default:
		return later.checkRowFits()
	}
	st := status.New(codes.FailedPrecondition, "the policy changed while the stream was broken: "+what)
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Domain: errorDomain, Reason: reasonName(ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED),
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
