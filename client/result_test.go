package client

import (
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestRetained checks that nothing but a decision to retain counts as one.
func TestRetained(t *testing.T) {
	decided := func(a ckdv1.Action) *ckdv1.Decomposition {
		return &ckdv1.Decomposition{Decision: &ckdv1.Decision{Action: a}}
	}
	for name, c := range map[string]struct {
		result Result
		want   bool
	}{
		"retain":           {Result{Decomposition: decided(ckdv1.Action_ACTION_RETAIN)}, true},
		"defer":            {Result{Decomposition: decided(ckdv1.Action_ACTION_DEFER)}, false},
		"observe":          {Result{Decomposition: decided(ckdv1.Action_ACTION_OBSERVE)}, false},
		"unspecified":      {Result{Decomposition: decided(ckdv1.Action_ACTION_UNSPECIFIED)}, false},
		"unknown action":   {Result{Decomposition: decided(99)}, false},
		"no decision":      {Result{Decomposition: &ckdv1.Decomposition{}}, false},
		"nothing":          {Result{}, false},
		"error":            {Result{Err: errors.New("x")}, false},
		"error and retain": {Result{Err: errors.New("x"), Decomposition: decided(ckdv1.Action_ACTION_RETAIN)}, false},
	} {
		if got := c.result.Retained(); got != c.want {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

// TestInputErrorOddStatus checks that a status is an error, whatever it says, and that errors of others
// have no reason of the daemon's.
func TestInputErrorOddStatus(t *testing.T) {
	elsewhere, err := status.New(codes.Aborted, "m").WithDetails(&errdetails.ErrorInfo{Reason: "NEGATIVE", Domain: "other"})
	must(t, err)
	for name, c := range map[string]struct {
		status *spb.Status
		code   codes.Code
		want   string
	}{
		"code OK":        {&spb.Status{Message: "m"}, codes.Unknown, "error without a code: m (Unknown)"},
		"no details":     {&spb.Status{Code: 3, Message: "m"}, codes.InvalidArgument, "m (InvalidArgument)"},
		"unknown reason": {status.Convert(refusal(codes.Aborted, 99, nil)).Proto(), codes.Aborted, "refused (Aborted)"},
		"another domain": {elsewhere.Proto(), codes.Aborted, "m (Aborted)"},
	} {
		e := newInputError(status.FromProto(c.status))
		if e.Code != c.code || status.Code(e) != c.code || e.Reason != 0 || Reason(e) != 0 || e.Error() != c.want {
			t.Errorf("%s: error %q, code %v, expected %q, %v", name, e, e.Code, c.want, c.code)
		}
	}
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.Internal, "x")} {
		if got := Reason(err); got != ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			t.Errorf("%v: reason %v, expected none", err, got)
		}
	}
}
