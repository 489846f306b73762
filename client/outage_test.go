package client

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// refusal returns an error of the daemon, with the delay that it asks for, if any.
func refusal(code codes.Code, reason ckdv1.ErrorReason, asked *durationpb.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: errorDomain, Reason: reasonName(reason)}}
	if asked != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: asked})
	}
	st, err := status.New(code, "refused").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// TestDelays checks that the wait before an attempt doubles within its bounds, is at least what the
// daemon asks for, and at most what the limit leaves.
func TestDelays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		millis := func(name string, least int) time.Duration {
			return time.Duration(rapid.IntRange(least, 10_000).Draw(rt, name)) * time.Millisecond
		}
		how := Reconnect{Limit: time.Hour, MaxDelay: millis("max", 1)}
		full := rapid.Bool().Draw(rt, "full")
		code, reason := codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING
		if full {
			code, reason = codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OVERLOADED
		}
		asked := time.Duration(0)
		var info *durationpb.Duration
		if rapid.Bool().Draw(rt, "asks") {
			asked = millis("asked", 0)
			info = durationpb.New(asked)
		}
		out := outage{Reconnect: how}
		most := baseDelay
		for attempt := range 20 {
			own := min(most, how.MaxDelay)
			if attempt == 0 && !full {
				own = 0
			} else {
				most = min(2*most, how.MaxDelay)
			}
			low, high := max(own/2, asked), max(own, asked+asked/4)
			if got := out.delay(refusal(code, reason, info)); got < low || got > high {
				rt.Fatalf("attempt %d waits %v, expected %v to %v", attempt, got, low, high)
			}
		}
		out.since = time.Now().Add(time.Second - how.Limit)
		if got := out.delay(refusal(code, reason, nil)); got > time.Second {
			rt.Fatalf("waits %v where a second is left", got)
		}
		left := func() time.Duration { return how.Limit - time.Since(out.since) }
		before := left()
		got, after := out.exhausted(refusal(code, reason, info)), left()
		if asked > before && !got || asked <= after && got {
			rt.Fatalf("exhausted: %v where it asks for %v and %v to %v are left", got, asked, after, before)
		}
	})
}
