package replay

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/record"
)

// Stream sends batches as groups of one stream, pass by pass.
type Stream struct {
	Session *client.Session
	Passes  *record.Passes
	sent    atomic.Int64
}

// Sent returns the number of passes sent, counted for each input.
func (p *Stream) Sent() int { return int(p.sent.Load()) }

// Send sends a batch. Inputs that are answered early are left out of the passes that follow.
func (p *Stream) Send(ctx context.Context, from, end int) []Reply {
	group, err := p.Session.Open(ctx, ids(from, end))
	if err != nil {
		return failed(from, end, err)
	}
	var scratch []float32
	started := time.Now()
	for s := range p.Passes.S {
		rows := group.Rows()
		if len(rows) == 0 {
			break
		}
		values := passValues(&scratch, p.Passes, s, from, end)
		if err := group.SendRows(rows, pickRows(values, rows, p.Passes.K)); err != nil {
			return failed(from, end, err)
		}
		p.sent.Add(int64(len(rows)))
		if err := group.Sync(ctx); err != nil {
			return failed(from, end, err)
		}
	}
	answers := make([]Reply, end-from)
	for r := range group.Results() {
		answers[r.Row] = Reply{from + r.Row, r, time.Since(started)}
	}
	return answers
}

// pickRows returns some rows of the values of a pass. The rows ascend.
func pickRows(values []float32, rows []int, classes int) []float32 {
	if len(rows)*classes == len(values) {
		return values
	}
	picked := make([]float32, 0, len(rows)*classes)
	for _, row := range rows {
		picked = append(picked, values[row*classes:][:classes]...)
	}
	return picked
}

// Unary returns a Send that makes one call for a batch, on the given terms.
func Unary(daemon *client.Client, passes *record.Passes, terms client.Batch) func(context.Context, int, int) []Reply {
	return func(ctx context.Context, from, end int) []Reply {
		batch := terms
		batch.Passes, batch.Inputs, batch.IDs = passes.S, end-from, ids(from, end)
		batch.Values = batchValues(passes, from, end)
		started := time.Now()
		results, err := daemon.Decompose(ctx, batch)
		if err != nil {
			return failed(from, end, err)
		}
		latency := time.Since(started)
		answers := make([]Reply, len(results))
		for i, r := range results {
			answers[i] = Reply{from + i, r, latency}
		}
		return answers
	}
}

// ids returns the positions of inputs in the recording.
func ids(from, to int) []string {
	ids := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}

// failed returns replies for inputs that could not be sent.
func failed(from, to int, err error) []Reply {
	answers := make([]Reply, 0, to-from)
	for i := from; i < to; i++ {
		answers = append(answers, Reply{Index: i, Result: client.Result{Row: i - from, Err: err}})
	}
	return answers
}

// passValues returns one pass of the inputs from up to to, as [inputs][classes]. The result is a part
// of the recording where its layout allows, else of scratch.
func passValues(scratch *[]float32, p *record.Passes, s, from, end int) []float32 {
	if p.Layout == record.SNK && p.Float32 != nil {
		return p.Float32[p.Offset(s, from):][:(end-from)*p.K]
	}
	*scratch = (*scratch)[:0]
	for n := from; n < end; n++ {
		offset := p.Offset(s, n)
		if p.Float32 != nil {
			*scratch = append(*scratch, p.Float32[offset:offset+p.K]...)
			continue
		}
		for _, v := range p.Float64[offset : offset+p.K] {
			*scratch = append(*scratch, float32(v))
		}
	}
	return *scratch
}

// batchValues returns all passes of the inputs from up to to, as [passes][inputs][classes].
func batchValues(p *record.Passes, from, end int) []float32 {
	values := make([]float32, 0, p.S*(end-from)*p.K)
	var scratch []float32
	for s := range p.S {
		values = append(values, passValues(&scratch, p, s, from, end)...)
	}
	return values
}
