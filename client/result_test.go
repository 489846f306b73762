package client_test

import (
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestRetained checks that nothing but a decision to retain counts as one.
func TestRetained(t *testing.T) {
	decided := func(a ckdv1.Action) *ckdv1.Decomposition {
		return &ckdv1.Decomposition{Decision: &ckdv1.Decision{Action: a}}
	}
	for _, c := range []struct {
		name   string
		result client.Result
		want   bool
	}{
		{"retain", client.Result{Decomposition: decided(ckdv1.Action_ACTION_RETAIN)}, true},
		{"defer", client.Result{Decomposition: decided(ckdv1.Action_ACTION_DEFER)}, false},
		{"observe", client.Result{Decomposition: decided(ckdv1.Action_ACTION_OBSERVE)}, false},
		{"unspecified", client.Result{Decomposition: decided(ckdv1.Action_ACTION_UNSPECIFIED)}, false},
		{"unknown action", client.Result{Decomposition: decided(99)}, false},
		{"no decision", client.Result{Decomposition: &ckdv1.Decomposition{}}, false},
		{"nothing", client.Result{}, false},
		{"error", client.Result{Err: errors.New("x")}, false},
		{"error and retain", client.Result{Err: errors.New("x"), Decomposition: decided(ckdv1.Action_ACTION_RETAIN)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.result.Retained(); got != c.want {
				t.Errorf("got %v, expected %v", got, c.want)
			}
		})
	}
}

// TestInputErrorOddStatus checks that a result with a status is an error, whatever the status says.
func TestInputErrorOddStatus(t *testing.T) {
	elsewhere, err := status.New(codes.Aborted, "m").WithDetails(&errdetails.ErrorInfo{Reason: "NEGATIVE", Domain: "other"})
	ok(t, err)
	for _, c := range []struct {
		name   string
		status *spb.Status
		code   codes.Code
		want   string
	}{
		{"code OK", &spb.Status{Message: "m"}, codes.Unknown, "error without a code: m (Unknown)"},
		{"no details", &spb.Status{Code: 3, Message: "m"}, codes.InvalidArgument, "m (InvalidArgument)"},
		{"unknown reason", fail(codes.Aborted, 99, "m", nil).Proto(), codes.Aborted, "m (Aborted)"},
		{"another domain", elsewhere.Proto(), codes.Aborted, "m (Aborted)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(2)
			f.deliver = func(send send, r *reply) error {
				for _, r := range r.GetResults() {
					r.Outcome = &ckdv1.Result_Error{Error: c.status}
				}
				return send(r)
			}
			s := f.session(t, client.SessionConfig{})
			g := open(t, s, "a")
			ok(t, g.SendPasses(2, every(low, 2)))
			e := inputError(t, wait(t, g)[0])
			if e.Code != c.code || status.Code(e) != c.code || e.Reason != 0 || e.Error() != c.want {
				t.Errorf("error %q, code %v, expected %q, %v", e, e.Code, c.want, c.code)
			}
			ok(t, s.Close())
		})
	}
}

// TestReasonOfOtherErrors checks that errors of others have no reason of the daemon's.
func TestReasonOfOtherErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.Internal, "x")} {
		if got := client.Reason(err); got != ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
			t.Errorf("%v: reason %v, expected none", err, got)
		}
	}
}
