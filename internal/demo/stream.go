package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/recordings"
)

const (
	batchInputs = 32 // inputs of one group: the model server's batch
	workers     = 8  // batches in flight
)

// streamInputs sends the passes of some inputs of the recording, batch by batch
// and pass by pass, many batches in flight, and returns their results in order.
func streamInputs(
	ctx context.Context, c *client.Client, r *recordings.Recording, inputs []int, progress func(answered, inputs int),
) ([]client.Result, error) {
	session, err := openSession(ctx, c, r)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	results := make([]client.Result, len(inputs))
	var answered atomic.Int64
	batches, batchCtx := errgroup.WithContext(ctx)
	batches.SetLimit(workers)
	for from := 0; from < len(inputs); from += batchInputs {
		to := min(from+batchInputs, len(inputs))
		batches.Go(func() error {
			got, err := streamBatch(batchCtx, session, r, inputs[from:to])
			copy(results[from:to], got)
			if n := answered.Add(int64(to - from)); progress != nil && err == nil {
				progress(int(n), len(inputs))
			}
			return err
		})
	}
	return results, batches.Wait()
}

func openSession(ctx context.Context, c *client.Client, r *recordings.Recording) (*client.Session, error) {
	return c.Session(ctx, client.SessionConfig{
		Model: modelName, Classes: r.Classes, Passes: r.Passes.S, Detail: client.Full, InFlight: batchInputs * workers,
	})
}

// streamBatch is what a model server does with a batch: it opens a group, runs
// pass after pass over it, sends each, and waits for the answers.
func streamBatch(ctx context.Context, session *client.Session, r *recordings.Recording, inputs []int) ([]client.Result, error) {
	ids := make([]string, len(inputs))
	for i, input := range inputs {
		ids[i] = "ctg-" + strconv.Itoa(input)
	}
	group, err := session.Open(ctx, ids)
	if err != nil {
		return nil, err
	}
	k := r.Passes.K
	values := make([]float32, len(inputs)*k)
	for s := range r.Passes.S {
		for i, input := range inputs {
			at := r.Passes.Offset(s, input)
			copy(values[i*k:(i+1)*k], r.Passes.Float32[at:at+k])
		}
		if err := group.Send(values); err != nil {
			return nil, err
		}
	}
	results, err := group.Wait(ctx)
	if err != nil {
		return nil, err
	}
	for _, result := range results {
		if result.Err != nil {
			return nil, fmt.Errorf("input %s: %w", result.ID, result.Err)
		}
	}
	return results, nil
}

// keep streams the whole recording over and over, slowly and in no order, until ctx
// ends, so that dashboards have something to show.
func keep(ctx context.Context, c *client.Client, r *recordings.Recording) error {
	inputs := rand.New(rand.NewPCG(seed2, seed1)).Perm(r.Passes.N)
	session, err := openSession(ctx, c, r)
	if err != nil {
		return err
	}
	defer session.Close()
	const few = keepRate / 8
	pace := rate.NewLimiter(keepRate, few)
	for from := 0; ; from = (from + few) % len(inputs) {
		batch := inputs[from:min(from+few, len(inputs))]
		if err := pace.WaitN(ctx, len(batch)); err != nil {
			return nil // the user has seen enough
		}
		if _, err := streamBatch(ctx, session, r, batch); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}
