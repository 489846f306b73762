package main

import (
	"context"
	"math"
	"slices"
)

// rounds runs all turns once a round, each round beginning with another turn. It returns the
// measurements by turn and round; none of a nil turn.
func rounds[T any](ctx context.Context, n int, turns ...func() (T, error)) ([][]T, error) {
	measured := make([][]T, len(turns))
	for round := range n {
		for j := range turns {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			which := (round + j) % len(turns)
			if turns[which] == nil {
				continue
			}
			m, err := turns[which]()
			if err != nil {
				return nil, err
			}
			measured[which] = append(measured[which], m)
		}
	}
	return measured, nil
}

// ratio returns the median over the rounds of a/b.
func ratio(a, b []float64) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

// median returns the median, or NaN for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
