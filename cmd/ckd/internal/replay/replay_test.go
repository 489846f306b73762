package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/internal/record"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReplayKeepsOrderAndWindow expects every input to be sent once, no more under way than
// allowed, and answers in order, whatever the batches and the delays.
func TestReplayKeepsOrderAndWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := &Loop{
			Inputs: rapid.IntRange(0, 200).Draw(t, "inputs"),
			Batch:  rapid.IntRange(1, 20).Draw(t, "batch"),
			Pace:   Pacer(0, 1, func() error { return nil }),
		}
		p.InFlight = p.Batch * rapid.IntRange(1, 5).Draw(t, "batches in flight")
		seed := rapid.Uint64().Draw(t, "seed")
		var underway, most atomic.Int64
		p.Send = func(_ context.Context, from, end int) []Reply {
			now := underway.Add(int64(end - from))
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			defer underway.Add(int64(from - end))
			random := rand.New(rand.NewPCG(seed, uint64(from)))
			time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
			return failed(from, end, nil)
		}
		next := 0
		err := Run(context.Background(), p, func(answers []Reply) error {
			for _, a := range answers {
				if a.Index != next {
					t.Fatalf("the Reply of input %d comes where %d was expected", a.Index, next)
				}
				next++
			}
			return nil
		})
		if err != nil || next != p.Inputs {
			t.Fatalf("%d of %d inputs answered, error %v", next, p.Inputs, err)
		}
		if most.Load() > int64(p.InFlight) {
			t.Fatalf("%d inputs under way, expected at most %d", most.Load(), p.InFlight)
		}
	})
}

func TestReplayEndsEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	endless := &Loop{
		Inputs: math.MaxInt, Batch: 1, InFlight: 4, Pace: Pacer(0, 1, func() error { return nil }),
		Send: func(_ context.Context, from, to int) []Reply { return failed(from, to, nil) },
	}
	fault := errors.New("disk full")
	if err := Run(ctx, endless, func([]Reply) error { return fault }); !errors.Is(err, fault) {
		t.Errorf("error %v, expected %v", err, fault)
	}
	taken := 0
	err := Run(ctx, endless, func([]Reply) error {
		if taken++; taken == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || taken != 3 {
		t.Errorf("error %v after %d batches, expected %v after 3", err, taken, context.Canceled)
	}
	// A pacer that gives up must not look like the end of the recording.
	stuck := *endless
	stuck.Pace = func(context.Context, int) error { return fault }
	if err := Run(context.Background(), &stuck, func([]Reply) error { return nil }); !errors.Is(err, fault) {
		t.Errorf("error %v, expected %v", err, fault)
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	var broken error
	pace := Pacer(1e-3, 8, func() error { return broken }) // one batch, then nothing for hours
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	if err := pace(ctx, 8); err != nil {
		t.Errorf("the first Batch: %v", err)
	}
	if err := pace(ctx, 8); err == nil {
		t.Error("the second batch may begin at once")
	}
	broken = errors.New("gone")
	if err := pace(ctx, 8); err != nil {
		t.Errorf("after the stream broke: %v", err)
	}
	broken = nil
	cancel()
	if err := pace(ctx, 8); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, expected %v", err, context.Canceled)
	}
}

// TestValuesAreGathered expects the same values from every layout and width of the file.
func TestValuesAreGathered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6)
		passes, inputs, classes := n.Draw(t, "passes"), n.Draw(t, "inputs"), n.Draw(t, "classes")
		from := rapid.IntRange(0, inputs-1).Draw(t, "from")
		end := rapid.IntRange(from+1, inputs).Draw(t, "to")
		layout := rapid.SampledFrom([]record.Layout{record.SNK, record.NSK}).Draw(t, "layout")
		wide := rapid.Bool().Draw(t, "float64")

		p := &record.Passes{S: passes, N: inputs, K: classes, Layout: layout}
		value := func(s, n, k int) float32 { return float32(10000*s + 100*n + k) }
		if size := passes * inputs * classes; wide {
			p.Float64 = make([]float64, size)
		} else {
			p.Float32 = make([]float32, size)
		}
		for s := range passes {
			for n := range inputs {
				for k := range classes {
					if at := p.Offset(s, n) + k; wide {
						p.Float64[at] = float64(value(s, n, k))
					} else {
						p.Float32[at] = value(s, n, k)
					}
				}
			}
		}
		var scratch []float32
		var all []float32
		for s := range passes {
			var want []float32
			for n := from; n < end; n++ {
				for k := range classes {
					want = append(want, value(s, n, k))
				}
			}
			if got := passValues(&scratch, p, s, from, end); !slices.Equal(got, want) {
				t.Fatalf("pass %d: %v, expected %v", s, got, want)
			}
			all = append(all, want...)
		}
		if got := batchValues(p, from, end); !slices.Equal(got, all) {
			t.Fatalf("%v, expected %v", got, all)
		}
	})
}

func TestPercentileIsOfTheNearestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Millisecond
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{hundred, 50, 50 * time.Millisecond},
		{hundred, 99, 99 * time.Millisecond},
		{hundred, 100, 100 * time.Millisecond},
		{hundred[:10], 50, 5 * time.Millisecond},
		{hundred[:10], 90, 9 * time.Millisecond},
		{hundred[:10], 99, 10 * time.Millisecond},
		{hundred[:3], 50, 2 * time.Millisecond},
		{hundred[:1], 50, time.Millisecond},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("p%d of %d values: %v, expected %v", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestSummaryCounts(t *testing.T) {
	t.Parallel()
	o := NewOutput(&bytes.Buffer{}, client.Decision, false)
	decided := func(index int, a ckdv1.Action, latency time.Duration) Reply {
		return Reply{index, client.Result{Decomposition: &ckdv1.Decomposition{
			Passes: 30, Decision: &ckdv1.Decision{Action: a},
		}}, latency}
	}
	err := o.Add([]Reply{
		decided(0, ckdv1.Action_ACTION_RETAIN, 4*time.Millisecond),
		decided(1, ckdv1.Action_ACTION_DEFER, 1*time.Millisecond),
		failed(2, 3, errors.New("gone"))[0],
		decided(3, ckdv1.Action_ACTION_RETAIN, 2*time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	o.Summary(&text, 2*time.Second)
	want := "ckd: 3 inputs decided, 1 not, in 2.000 s: 2 inputs/s, 45 passes/s\n" +
		"ckd: latency p50 2ms, p90 4ms, p99 4ms, max 4ms\n" +
		"ckd: retain 2, defer 1, observe 0\n"
	if text.String() != want {
		t.Errorf("%s\nexpected\n%s", text.String(), want)
	}
}

// TestAnswerRefusal expects the daemon's words for an input without an answer, or else those of the
// connection.
func TestAnswerRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err             error
		reason, message string
	}{
		{status.Error(codes.DeadlineExceeded, "too slow"), "deadline_exceeded", "no answer: too slow"},
		{fmt.Errorf("wrapped: %w", status.Error(codes.Unavailable, "gone")), "unavailable", "no answer: gone"},
		{client.ErrClosed, "unknown", "no answer: the session is closed"},
	} {
		got := refuse(Reply{Index: 7, Result: client.Result{Err: c.err}})
		if want := (answer.Refusal{Index: 7, Error: answer.Reason{Reason: c.reason, Message: c.message}}); *got != want {
			t.Errorf("%v: %v, expected %v", c.err, *got, want)
		}
	}
}

// TestPickRows expects each row that is left to keep its values.
func TestPickRows(t *testing.T) {
	t.Parallel()
	values := []float32{0, 1, 10, 11, 20, 21}
	for _, c := range []struct {
		rows []int
		want []float32
	}{
		{[]int{0, 1, 2}, values},
		{[]int{0, 2}, []float32{0, 1, 20, 21}},
		{[]int{1}, []float32{10, 11}},
	} {
		if got := pickRows(values, c.rows, 2); !slices.Equal(got, c.want) {
			t.Errorf("rows %v: %v, expected %v", c.rows, got, c.want)
		}
	}
}
