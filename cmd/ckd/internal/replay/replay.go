package replay

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/client"
)

// Loop holds the inputs to send and how.
type Loop struct {
	Inputs   int
	Batch    int // inputs that are sent together
	InFlight int // inputs under way at one time, at least Batch
	// Pace waits until n inputs may begin. It fails only when ctx does.
	Pace func(ctx context.Context, n int) error
	// Send sends the inputs from up to to, and returns a reply for each, in order. Run calls it from
	// many goroutines at once.
	Send func(ctx context.Context, from, to int) []Reply
}

// Reply is the answer to an input.
type Reply struct {
	Index int
	client.Result
	// Latency from the moment when the first pass was sent.
	Latency time.Duration
}

// Run sends batch after batch, several at a time, and calls handle with their replies in the order of
// the inputs. It ends early when ctx does or handle fails.
func Run(ctx context.Context, l *Loop, handle func([]Reply) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// The batches under way, in order. The one that Run waits for is out of the channel already.
	underway := make(chan chan []Reply, max(l.InFlight/l.Batch, 1)-1)
	go func() {
		defer close(underway)
		for from := 0; from < l.Inputs; from += l.Batch {
			end := min(from+l.Batch, l.Inputs)
			if err := l.Pace(ctx, end-from); err != nil {
				cancel(err)
				return
			}
			replies := make(chan []Reply, 1)
			select {
			case underway <- replies:
			case <-ctx.Done():
				return
			}
			go func() { replies <- l.Send(ctx, from, end) }()
		}
	}()
	for replies := range underway {
		batch := <-replies
		if ctx.Err() != nil {
			break // replies of a broken batch say nothing more
		}
		if err := handle(batch); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// Pacer returns a function that paces inputs to inputsPerSecond; 0 means no limit. Once broken
// returns an error, all inputs may begin at once: sending them fails anyway.
func Pacer(inputsPerSecond float64, batch int, broken func() error) func(context.Context, int) error {
	limit := rate.Inf
	if inputsPerSecond > 0 {
		limit = rate.Limit(inputsPerSecond)
	}
	// Up to a tenth of a second that was slept too long is caught up later, except at the beginning.
	burst := batch
	if inputsPerSecond > 0 {
		burst = max(batch, int(inputsPerSecond/10))
	}
	limiter := rate.NewLimiter(limit, burst)
	limiter.AllowN(time.Now(), burst-batch)
	return func(ctx context.Context, n int) error {
		if broken() != nil {
			return ctx.Err()
		}
		return limiter.WaitN(ctx, n)
	}
}
