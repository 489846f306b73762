package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// latencyRow holds the figures of a server on a shape under a load.
type latencyRow struct {
	daemonCase
	Server   string
	Capacity float64 // groups a second with a full window
	Of       string  // server whose capacity Share is a share of
	Share    float64
	Rate     float64 // groups a second that were asked for
	P50, P99 float64 // seconds, medians over the rounds
}

// shares lists the offered shares of the capacity.
var shares = []float64{0.5, 0.9}

func (o comparison) measureLatency(ctx context.Context) ([]latencyRow, error) {
	policy, err := writePolicy(o.Folder, "policy.yaml", policyText([]int{4, 10, 100, 1000}, ""))
	if err != nil {
		return nil, err
	}
	ckd, err := startCKD(ctx, o.Folder, o.Binary, policy, "ckd")
	if err != nil {
		return nil, err
	}
	defer ckd.stop()
	sink, err := startServer(ctx, o.Folder, kindSink, kindSink)
	if err != nil {
		return nil, err
	}
	defer sink.stop()
	var all []latencyRow
	for _, c := range o.Cases {
		progress("latency: %s", c.shape())
		rows, err := o.offerShares(ctx, c, ckd, sink)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// offerShares offers both servers shares of their own capacities, and the sink those of ckd's.
func (o comparison) offerShares(ctx context.Context, c daemonCase, ckd, sink *process) ([]latencyRow, error) {
	p := newPayload(c.shape(), batched, window(c.shape()), true)
	ours, err := newLoad(ckd, p, 1)
	if err != nil {
		return nil, err
	}
	defer ours.close()
	theirs, err := newLoad(sink, p, 1)
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	reply, err := ours.verify(ctx)
	if err != nil {
		return nil, err
	}
	if err := tell(ctx, theirs, 1, len(reply)); err != nil {
		return nil, err
	}
	m, err := rounds(ctx, o.Rounds,
		func() (sample, error) { return ours.drive(ctx, o.Turn) },
		func() (sample, error) { return theirs.drive(ctx, o.Turn) })
	if err != nil {
		return nil, err
	}
	capacity := median(of(m[0], sample.rate))
	sinkCapacity := median(of(m[1], sample.rate))

	var rows []latencyRow
	var turns []func() ([]time.Duration, error)
	for _, share := range shares {
		for _, r := range []latencyRow{
			{Server: "ckd", Capacity: capacity, Of: "its own", Rate: share * capacity},
			{Server: kindSink, Capacity: sinkCapacity, Of: "its own", Rate: share * sinkCapacity},
			{Server: kindSink, Capacity: sinkCapacity, Of: "ckd's", Rate: share * capacity},
		} {
			l := theirs
			if r.Server == "ckd" {
				l = ours
			}
			r.daemonCase, r.Share = c, share
			rows = append(rows, r)
			turns = append(turns, func() ([]time.Duration, error) { return l.offer(ctx, r.Rate, o.Turn) })
		}
	}
	measured, err := rounds(ctx, o.Rounds, turns...)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].P50 = median(of(measured[i], quantile(0.5)))
		rows[i].P99 = median(of(measured[i], quantile(0.99)))
	}
	return rows, nil
}

// quantile returns a function that computes a quantile of latencies, in seconds.
func quantile(q float64) func([]time.Duration) float64 {
	return func(latencies []time.Duration) float64 {
		sorted := slices.Sorted(slices.Values(latencies))
		return sorted[int(q*float64(len(sorted)-1))].Seconds()
	}
}

// offer sends groups by a fixed schedule, however the server keeps up, and returns how long after
// their time on the schedule they were answered. What comes in the first tenth is not counted.
func (l *load) offer(ctx context.Context, rate float64, d time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*d+30*time.Second)
	defer cancel()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // the one that sleeps must not hold up the others
	stream, err := openStream(ctx, l.conn, l.payload.shape)
	if err != nil {
		return nil, err
	}
	n := len(l.payload.groups)
	free := make(chan int, n)
	for i := range n {
		free <- i
	}
	due := make([]atomic.Int64, n) // when the group under way was to be sent, ns
	total := max(20, int(rate*d.Seconds()))
	begun := time.Now()
	sent := make(chan error, 1)
	go func() {
		defer exactSleeps()()
		for i := range total {
			at := time.Duration(float64(i) / rate * 1e9)
			for early := at - time.Since(begun); early > 0; early = at - time.Since(begun) {
				sleep(early)
			}
			group, more := <-free
			if !more {
				break
			}
			due[group].Store(int64(at))
			if err := l.send(stream, group, firstGroup+uint64(i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	defer close(free)
	latencies := make([]time.Duration, 0, total)
	var r receipt
	for next := 0; ; next = (next + 1) % n {
		if err := stream.RecvMsg(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", l.server.name, err)
		}
		latencies = append(latencies, time.Since(begun)-time.Duration(due[next].Load()))
		if err := l.check(next, r.length); err != nil {
			return nil, err
		}
		select {
		case free <- next:
		default:
			return nil, fmt.Errorf("%s: %w", l.server.name, errUnasked)
		}
	}
	if err := <-sent; err != nil {
		return nil, err
	}
	if len(latencies) != total {
		return nil, fmt.Errorf("%s: %d answers, expected %d", l.server.name, len(latencies), total)
	}
	return latencies[total/10:], nil
}
