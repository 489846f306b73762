// Package decomp turns the stochastic passes of an input into per-class
// epistemic uncertainty.
//
// Notation: an input has S passes; pass s is a row p[s] of K class
// probabilities. mu is the mean row, Var the variance of each class over the
// passes, m3 the third central moment. All information quantities are in nats.
// Equation names such as app-Ck refer to the appendix "Complete Metric
// Reference" of Toure & Stephens, UAI 2026.
//
// There are two ways in. Their results agree to 1e-12 relative where the numbers
// are well conditioned and S is at most 1000, and to 1e-11 up to S = 1e5; sums
// that cancel (third moments, correlations), to that of their terms. TestHardCases
// holds both against exact arithmetic.
//
//   - A Batch takes complete passes, laid out [S][N*K] or [N][S*K], and goes
//     over them twice.
//   - An Accumulator takes the passes of some inputs as they come, in memory that
//     does not depend on S, and lets a Batch compute them.
//
// A model's fixed facts (classes, critical set, kind of rows, ...) are a Plan;
// an input's numbers are a Result.
//
// Invariants:
//   - An input with a row that is refused gives no result, and does not touch
//     those of others. Accumulator.Add leaves the accumulator as it was.
//   - Inputs are never written to, and never kept beyond the call or, for a
//     Batch, the next call of Reset.
//   - All arithmetic is float64. 0*log 0 = 0. Identical passes give exactly
//     zero variance, C, M and MI, whatever the values.
//   - Second and third moments, and divergences, are computed from differences
//     to the mean, so that their error scales with the spread of the passes and
//     not with their size.
//   - In the steady state nothing is allocated.
//   - Plans are immutable and may be shared. Batch, Accumulator and Result are
//     for one goroutine at a time.
package decomp
