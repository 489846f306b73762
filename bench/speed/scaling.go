package main

import (
	"context"
	"time"
)

// scalingOptions are what a process that varies the shape is told.
type scalingOptions struct {
	Binary, Folder string
	Rounds         int
	Turn           time.Duration
	Quick          bool
}

// scalingRow is ckd on one shape.
type scalingRow struct {
	Varied                           string
	Passes, Classes, Inputs, Streams int
	Rate                             float64 // inputs a second
	CPU                              float64 // seconds an input
}

// scalingCases vary one thing at a time.
func scalingCases() []scalingRow {
	var cases []scalingRow
	for _, s := range []int{5, 10, 30, 100, 300} {
		cases = append(cases, scalingRow{"S", s, 4, 64, 1, 0, 0})
	}
	for _, n := range []int{1, 4, 16, 64, 256} {
		cases = append(cases, scalingRow{"N", 30, 4, n, 1, 0, 0})
	}
	for _, k := range []int{2, 4, 10, 32, 100, 1000} {
		cases = append(cases, scalingRow{"K", 30, k, 8, 1, 0, 0})
	}
	for _, streams := range []int{1, 2, 4, 8} {
		cases = append(cases, scalingRow{"streams", 30, 4, 8, streams, 0, 0})
	}
	return cases
}

func (o scalingOptions) measureAll(ctx context.Context) ([]scalingRow, error) {
	policy, err := writePolicy(o.Folder, []int{2, 4, 10, 32, 100, 1000})
	if err != nil {
		return nil, err
	}
	ckd, err := startCKD(ctx, o.Folder, o.Binary, policy, "ckd")
	if err != nil {
		return nil, err
	}
	defer ckd.stop()
	cases := scalingCases()
	if o.Quick {
		cases = []scalingRow{cases[0], cases[len(cases)-1]}
	}
	var turns []func() (sample, error)
	for _, c := range cases {
		s := shape{c.Passes, c.Classes, c.Inputs}
		turns = append(turns, func() (sample, error) {
			progress("scaling: %s, %d streams", s, c.Streams)
			// Made for the turn: all of them together would not fit.
			l, err := newLoad(ckd, newPayload(s, batched, max(c.Streams, window(s)), true), c.Streams, 1)
			if err != nil {
				return sample{}, err
			}
			defer l.close()
			if _, err := l.verify(ctx); err != nil {
				return sample{}, err
			}
			return l.drive(ctx, o.Turn)
		})
	}
	m, err := rounds(ctx, o.Rounds, turns...)
	if err != nil {
		return nil, err
	}
	for i := range cases {
		inputs := float64(cases[i].Inputs)
		cases[i].Rate = inputs * median(of(m[i], sample.rate))
		cases[i].CPU = median(of(m[i], sample.cpu)) / inputs
	}
	return cases, nil
}
