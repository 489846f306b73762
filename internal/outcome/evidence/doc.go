// Package evidence weighs outcomes: whether a risk is above its line, and between which limits it
// lies, at any moment and however often one looks.
//
// An outcome is a reviewed input whose true class is known. Reviews are drawn with known
// probabilities, the propensities, so that every outcome stands for 1/propensity inputs.
//
//	Estimate: the weighted share itself
//	Alarm:    evidence that the risk is above a line, now: a Shiryaev-Roberts e-detector
//	Sequence: limits of the risk since the beginning: a hedged betting confidence sequence
//
// With R an input is retained, C it is truly critical, M it is truly critical and predicted safe,
// and the weight W = 1/propensity of a reviewed input (0 of any other), the risks are
//
//	FNR       E[R M] / E[R C]   of the critical inputs among the retained, the share missed
//	MissRate  E[R M] / E[C]     of all critical inputs, the share retained and missed
//
// and each reviewed input bets on
//
//	Z(a) = W R (M - a C)        for FNR
//	Z(a) = W (R M - a C)        for MissRate
//
// whose mean, given the past, is at most 0 where the risk is at or below a, and 0 where it is a. A
// wealth that is multiplied by 1 + lambda Z(a) > 0 at each step, with lambda fixed before the step,
// is then not expected to grow.
//
// Invariants:
//   - Bets are fixed by BeginCohort, before an outcome of the cohort is observed. Before the first
//     BeginCohort nothing is bet.
//   - The same outcomes in the same order give the same bits, and a state that was saved and
//     restored goes on with the same bits.
//   - No figure is NaN but that of an Estimate which has seen no critical input.
//   - An Alarm that was raised stays raised.
//
// The package does arithmetic only: who reviews, which outcomes count and in which order is up to
// the ledger.
package evidence
