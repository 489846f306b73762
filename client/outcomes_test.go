package client_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ledger is the OutcomeService of a fake.
type ledger struct {
	ckdv1.UnimplementedOutcomeServiceServer
	fake *fake
}

func (l ledger) ReportOutcomes(_ context.Context, r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) {
	return l.fake.report(r)
}

// echoed answers every outcome with its truth, so that answers can be told apart.
func echoed(r *ckdv1.ReportOutcomesRequest) *ckdv1.ReportOutcomesResponse {
	reply := &ckdv1.ReportOutcomesResponse{}
	for _, o := range r.GetOutcomes() {
		reply.Answers = append(reply.Answers, &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED, Predicted: o.GetTruth()})
	}
	return reply
}

// TestReportOutcomes checks that every outcome gets its own answer, and that no call is larger than
// the daemon takes, whatever is lost on the way.
func TestReportOutcomes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		messageBytes := rapid.IntRange(1000, 1<<20).Draw(rt, "message bytes")
		losses := rapid.IntRange(0, 2).Draw(rt, "losses")
		f := newFake(0)
		f.report = func(r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) {
			f.checkSize(r)
			if len(r.GetOutcomes()) == 0 {
				f.fault("a call of no outcomes")
			}
			if losses > 0 {
				losses--
				return nil, status.Error(codes.Unavailable, "the answer is lost")
			}
			return echoed(r), nil
		}
		f.info.Limits.MessageBytes = uint32(messageBytes)
		c := f.dial(rt, client.WithMessageBytes(messageBytes))
		outcomes := make([]*ckdv1.Outcome, rapid.IntRange(0, 3000).Draw(rt, "outcomes"))
		for i := range outcomes {
			outcomes[i] = &ckdv1.Outcome{Receipt: make([]byte, 184), Truth: strconv.Itoa(i), Source: "reader-1"}
		}
		answers, err := c.ReportOutcomes(context.Background(), outcomes, hasty)
		if err != nil || len(answers) != len(outcomes) {
			rt.Fatalf("%d answers, expected %d, error %v", len(answers), len(outcomes), err)
		}
		for i, a := range answers {
			if a.GetPredicted() != strconv.Itoa(i) {
				rt.Fatalf("answer %d is that to %s", i, a.GetPredicted())
			}
		}
	})
}

// TestReportOutcomesFails checks that a call that fails returns the answers of those before it.
func TestReportOutcomesFails(t *testing.T) {
	for name, second := range map[string]func() (*ckdv1.ReportOutcomesResponse, error){
		"refused":     func() (*ckdv1.ReportOutcomesResponse, error) { return nil, status.Error(codes.PermissionDenied, "no") },
		"no answers":  func() (*ckdv1.ReportOutcomesResponse, error) { return &ckdv1.ReportOutcomesResponse{}, nil },
		"unavailable": func() (*ckdv1.ReportOutcomesResponse, error) { return nil, status.Error(codes.Unavailable, "gone") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(0)
			calls := 0
			f.report = func(r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) {
				if calls++; calls > 1 {
					return second()
				}
				return echoed(r), nil
			}
			c := f.dial(t)
			outcomes := make([]*ckdv1.Outcome, 1500)
			for i := range outcomes {
				outcomes[i] = &ckdv1.Outcome{Truth: "normal"}
			}
			answers, err := c.ReportOutcomes(t.Context(), outcomes, client.Reconnect{Disabled: true})
			if err == nil || len(answers) != 1000 {
				t.Errorf("%d answers, error %v, expected 1000 and an error", len(answers), err)
			}
		})
	}
}

// What a reader found goes back with the receipt that came with the decision.
func ExampleClient_ReportOutcomes() {
	ctx := context.Background()
	daemon := newFake(3)
	daemon.report = func(r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) { return echoed(r), nil }
	c, stop := daemon.start() // elsewhere: client.Dial with the address of the ledger
	defer stop()

	receipt := []byte("as it came with the decision")
	answers, err := c.ReportOutcomes(ctx, []*ckdv1.Outcome{
		{Receipt: receipt, Truth: "suspect", Source: "reader-7", Kind: ckdv1.OutcomeKind_OUTCOME_KIND_READING},
	}, client.Reconnect{})
	if err != nil {
		panic(err)
	}
	for _, a := range answers {
		fmt.Println(a.GetStatus())
	}
	// Output: OUTCOME_STATUS_COUNTED
}
