package demo

import (
	_ "embed"
	"math/rand/v2"
	"slices"
)

// policyText is the demo's policy, with thresholds, a drift reference and an early-stopping rule from the
// inputs that tune it: see TestGenerated.
//
//go:embed policy.yaml
var policyText []byte

const (
	modelName = "fetal-health"
	// coverage is the share of inputs that each threshold retains of those
	// tuning inputs that the gate routes to its score.
	coverage = 0.8
	// The permutation whose first half is for tuning.
	seed1, seed2 = 2026, 1
)

// split divides the inputs into those that tune the thresholds and those shown. It shuffles them
// first: neighbours in the recording often come from one patient, and would look like drift.
func split(n int) (tuning, shown []int) {
	perm := rand.New(rand.NewPCG(seed1, seed2)).Perm(n)
	tuning, shown = perm[:n/2], perm[n/2:]
	slices.Sort(tuning)
	return tuning, shown
}
