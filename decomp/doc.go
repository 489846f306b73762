// Package decomp computes per-class epistemic uncertainty from the stochastic passes of an input.
//
// Notation: an input has S passes; pass s is a row p[s] of K class probabilities. mu is the mean
// row, Var the variance of each class over the passes, m3 the third central moment. All information
// quantities are in nats. Equation names such as app-Ck refer to the appendix "Complete Metric
// Reference" of Toure & Stephens, UAI 2026.
//
// There are two ways in:
//
//   - A Batch takes complete passes, laid out [S][N*K] or [N][S*K], and goes over them twice.
//   - An Accumulator takes the passes of some inputs as they arrive, in memory that does not depend
//     on S, and lets a Batch compute them.
//
// Their results agree to 1e-12 relative where the numbers are well conditioned and S is at most
// 1000, and to 1e-11 up to S = 1e5. Sums that cancel (third moments, correlations) agree to that
// share of the size of their terms. TestHardCases compares both with exact arithmetic.
//
// A Plan holds what is fixed for a model (classes, critical set, kind of rows); a Result holds the
// numbers of one input.
//
// Invariants:
//   - An input with a bad row gives no result, and does not affect other inputs. Accumulator.Add
//     then leaves the accumulator as it was.
//   - Arguments are never written to. They are not kept after the call, except the tensor of a
//     Batch, which is read until the next call of Reset.
//   - All arithmetic is float64. 0*log 0 = 0. Identical passes give exactly zero variance, C, M and
//     MI, whatever the values.
//   - Second and third moments, and divergences, are computed from differences to the mean, so that
//     their error scales with the spread of the passes and not with their size.
//   - In the steady state nothing is allocated.
//   - A Plan is immutable and may be shared. Batch, Accumulator and Result are for one goroutine at
//     a time.
//
// Stability: the API follows semantic versioning from version 1.0 on; until then a minor version
// may change it. Results change only in their last digits.
package decomp
