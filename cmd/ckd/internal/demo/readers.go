package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// readers play the people who look at the inputs that are to be reviewed. They find what the labels
// say, report it to the daemon's ledger, and read a second time where the ledger asks for it. They
// also count how often the policy is wrong on all inputs, which is unknown in practice.
type readers struct {
	client    *client.Client
	recording *recordings.Recording
	// leave makes them leave one in this many inputs to a user of the triage page; 0 for none.
	leave int
	seen  int // inputs to review, while some are left

	mu sync.Mutex // guards what follows
	// inputs that were decided; those that are critical, and of these the missed ones.
	inputs, critical, missed int
	readings                 []reading
	reviews                  int
	audits                   int // reviews of retained inputs
	secondReads              int
}

// A reading is an outcome that the ledger has taken.
type reading struct {
	decided time.Time
	audit   bool
}

// read answers the reviews among some inputs of the recording, by their results.
func (r *readers) read(ctx context.Context, inputs []int, results []client.Result) error {
	var outcomes []*ckdv1.Outcome
	var audits []bool
	r.mu.Lock()
	for i, result := range results {
		d, label := result.Decomposition, r.recording.Labels[inputs[i]]
		r.inputs++
		if d.GetReview() {
			r.reviews++
		}
		if slices.Contains(r.recording.Critical, label) {
			r.critical++
			if result.Retained() && !slices.Contains(r.recording.Critical, int(d.GetPredicted())) {
				r.missed++
			}
		}
		if receipt := result.Receipt(); receipt != nil && !r.leaves(d.GetReview()) {
			outcomes = append(outcomes, &ckdv1.Outcome{Receipt: receipt, Truth: r.recording.Classes[label], Source: "simulated-1"})
			audits = append(audits, d.GetReview() && result.Retained())
		}
	}
	r.mu.Unlock()
	return r.report(ctx, outcomes, audits)
}

// leaves reports whether an input is left to a user of the triage page.
func (r *readers) leaves(review bool) bool {
	if !review || r.leave == 0 {
		return false
	}
	r.seen++
	return r.seen%r.leave == 0
}

// report sends outcomes, and the second readings that the ledger asks for.
func (r *readers) report(ctx context.Context, outcomes []*ckdv1.Outcome, audits []bool) error {
	answers, err := r.send(ctx, outcomes)
	if err != nil {
		return err
	}
	var second []*ckdv1.Outcome
	r.mu.Lock()
	for i, a := range answers {
		r.readings = append(r.readings, reading{decided: a.GetDecided().AsTime(), audit: audits[i]})
		if audits[i] {
			r.audits++
		}
		if a.GetWanted() == ckdv1.Wanted_WANTED_SECOND_READ {
			second = append(second, &ckdv1.Outcome{Receipt: outcomes[i].GetReceipt(), Truth: outcomes[i].GetTruth(), Source: "simulated-2"})
		}
	}
	r.secondReads += len(second)
	r.mu.Unlock()
	_, err = r.send(ctx, second)
	return err
}

// send sends outcomes until the ledger has taken all of them. It refuses them until the daemon has told
// it the policy, which happens when the daemon starts.
func (r *readers) send(ctx context.Context, outcomes []*ckdv1.Outcome) ([]*ckdv1.OutcomeAnswer, error) {
	for {
		answers, err := r.client.ReportOutcomes(ctx, outcomes, client.Reconnect{})
		if err != nil {
			return nil, err
		}
		early := false
		for _, a := range answers {
			switch {
			case a.GetStatus() == ckdv1.OutcomeStatus_OUTCOME_STATUS_POLICY_UNKNOWN:
				early = true
			case a.GetError() != nil:
				return nil, fmt.Errorf("an outcome was not kept: %s", a.GetError().GetMessage())
			}
		}
		if !early {
			return answers, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// between returns how many outcomes, and audits among them, are of decisions from one time to before
// another.
func (r *readers) between(from, until time.Time) (outcomes, audits int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reading := range r.readings {
		if !reading.decided.Before(from) && reading.decided.Before(until) {
			outcomes++
			if reading.audit {
				audits++
			}
		}
	}
	return outcomes, audits
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
