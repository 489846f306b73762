package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// streamInputs sends the passes of some inputs of the recording, batch by batch and pass by pass,
// with many batches in flight. It returns the results in the order of the inputs.
func streamInputs(
	ctx context.Context, c *client.Client, r *recordings.Recording, inputs []int, ids []string, progress func(answered, inputs int),
) ([]client.Result, error) {
	session, err := c.Session(ctx, sessionOf(r))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	results := make([]client.Result, len(inputs))
	var answered atomic.Int64
	passes := make([]int, r.Passes.S)
	for s := range passes {
		passes[s] = s
	}
	batches, batchCtx := errgroup.WithContext(ctx)
	batches.SetLimit(workers)
	for from := 0; from < len(inputs); from += batchInputs {
		end := min(from+batchInputs, len(inputs))
		batches.Go(func() error {
			got, err := streamBatch(batchCtx, session, r, inputs[from:end], ids[from:end], passes)
			copy(results[from:end], got)
			if n := answered.Add(int64(end - from)); progress != nil && err == nil {
				progress(int(n), len(inputs))
			}
			return err
		})
	}
	return results, batches.Wait()
}

func sessionOf(r *recordings.Recording) client.SessionConfig {
	return client.SessionConfig{
		Model: modelName, Classes: r.Classes, Passes: r.Passes.S, Detail: client.Full, InFlight: batchInputs * workers,
		Receipts: client.ReceiptsReviewed,
	}
}

// streamBatch does what a model server does with a batch: it runs pass after pass over the inputs that
// still need one, sends each, and waits for the answers. Passes are taken in the given order.
func streamBatch(ctx context.Context, session *client.Session, r *recordings.Recording, inputs []int, ids []string, passes []int) ([]client.Result, error) {
	sent := 0
	results, err := session.DoRows(ctx, ids, func(rows []int) ([]float32, error) {
		left := make([]int, len(rows))
		for i, row := range rows {
			left[i] = inputs[row]
		}
		s := passes[sent%len(passes)]
		sent++
		return pass(r, s, left), nil
	})
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

func idsOf(inputs []int) []string {
	ids := make([]string, len(inputs))
	for i, input := range inputs {
		ids[i] = "ctg-" + strconv.Itoa(input)
	}
	return ids
}

// pass returns the values of pass s for some inputs, laid out [inputs][classes].
func pass(r *recordings.Recording, s int, inputs []int) []float32 {
	values := make([]float32, 0, len(inputs)*r.Passes.K)
	for _, input := range inputs {
		at := r.Passes.Offset(s, input)
		values = append(values, r.Passes.Float32[at:at+r.Passes.K]...)
	}
	return values
}

// leftOnPage says that readers leave one in this many reviews to a user of the triage page: few
// enough that outcomes are not overdue.
const leftOnPage = 50

// keep streams a population of inputs over and over, slowly and in random order, until ctx ends, so
// that dashboards have something to show. It accepts early answers: an input that is decided gets
// no further passes, as with a model server that saves them.
func (t *trial) keep(ctx context.Context, population []int, perSecond float64) error {
	r := t.readers.recording
	order := rand.New(rand.NewPCG(seed2, seed1))
	inputs := slices.Clone(population)
	order.Shuffle(len(inputs), func(i, j int) { inputs[i], inputs[j] = inputs[j], inputs[i] })
	config := sessionOf(r)
	config.AcceptSettled = true
	session, err := t.client.Session(ctx, config)
	if err != nil {
		return err
	}
	defer session.Close()
	t.readers.leave = leftOnPage
	const few = keepRate / 8
	pace := rate.NewLimiter(rate.Limit(perSecond), few)
	for from := 0; ; from = (from + few) % len(inputs) {
		batch := inputs[from:min(from+few, len(inputs))]
		if err := pace.WaitN(ctx, len(batch)); err != nil {
			return nil // the user has seen enough
		}
		// A model server draws new passes each time; the recording has them in a new order.
		results, err := streamBatch(ctx, session, r, batch, t.ids(batch), order.Perm(r.Passes.S))
		if err == nil {
			err = t.readers.read(ctx, batch, results)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}
