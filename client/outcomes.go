package client

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// outcomesPerCall bounds the outcomes of one call. The ledger writes each call to its disk before it
// answers, so larger ones are faster, and their answers later.
const outcomesPerCall = 1000

// ReportOutcomes sends outcomes to a daemon that keeps a ledger, and returns one answer for each, in
// order. What is answered as counted is durable. Many outcomes are sent in several calls, and a call
// that finds no daemon, loses it, or finds it overloaded is made again as r allows: the ledger counts
// an outcome once, however often it is sent.
//
// An outcome that the ledger does not count has an answer that says why: see
// [ckdv1.OutcomeAnswer.Error]. An error of ReportOutcomes means that a call failed; the answers of the
// calls before it are returned with it.
func (c *Client) ReportOutcomes(ctx context.Context, outcomes []*ckdv1.Outcome, r Reconnect) ([]*ckdv1.OutcomeAnswer, error) {
	reconnect, err := r.withDefaults()
	if err != nil {
		return nil, err
	}
	service := c.Outcomes()
	answers := make([]*ckdv1.OutcomeAnswer, 0, len(outcomes))
	for from := 0; from < len(outcomes); from = len(answers) {
		request := outcomesFrom(outcomes[from:], c.messageBytes)
		var reply *ckdv1.ReportOutcomesResponse
		err := retry(ctx, reconnect, retryable, func() (err error) {
			reply, err = service.ReportOutcomes(ctx, request)
			return err
		})
		if got, want := len(reply.GetAnswers()), len(request.Outcomes); err == nil && got != want {
			err = broken("%d answers, expected %d", got, want)
		}
		if err != nil {
			return answers, fmt.Errorf("report outcomes %d to %d of %d: %w", from, from+len(request.Outcomes)-1, len(outcomes), err)
		}
		answers = append(answers, reply.GetAnswers()...)
	}
	return answers, nil
}

// outcomesFrom returns the request for as many of the outcomes as one message takes, at least one.
func outcomesFrom(outcomes []*ckdv1.Outcome, messageBytes int) *ckdv1.ReportOutcomesRequest {
	size, to := 0, 0
	for to < len(outcomes) && to < outcomesPerCall {
		size += proto.Size(outcomes[to]) + idOverhead
		if to > 0 && size > messageBytes-blockOverhead {
			break
		}
		to++
	}
	return &ckdv1.ReportOutcomesRequest{Outcomes: outcomes[:to]}
}

// Outcomes returns the generated client of the ledger, over the same connection: for figures, exports,
// and clearing alarms.
func (c *Client) Outcomes() ckdv1.OutcomeServiceClient { return ckdv1.NewOutcomeServiceClient(c.conn) }
