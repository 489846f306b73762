// Package earlystop decides inputs before their last pass: while the passes arrive, a Rule says when it
// is certain enough what all S passes would decide.
//
// A Rule is what a policy stores. It decides what t passes would decide if that is unlikely to be
// overturned: if the log-odds of that, a quadratic form of five Statistics, are low enough. There is
// one for inputs that would be retained, and one for those that would be deferred. A Form is a Rule in
// few numbers, for all numbers of passes at once:
//
//	live:        the engine follows an input -> Statistics -> Rule.Settled
//	calibration: calibrate.LearnEarlyStop learns and certifies -> Rule, in the policy
//
// # How a rule decides
//
// After each pass the daemon has the running moments of an open input, and from these what the policy
// would decide if no further pass came. Five statistics, each limited to [-14, 14], say how firmly:
//
//	own     log((s + e) / (t + e))               s: the score that would decide, t: its threshold, e = 1e-12
//	other   the same for the other score         0 if the gate can never choose it
//	peak    log((m + 1e-6) / (1 - m + 1e-6))     m: largest critical probability in a single pass
//	doubt   log(1 - p + 1e-6)                    p: largest mean probability of a class
//	margin  log((c + 1e-6) / (o + 1e-6))         c: largest mean of a critical class, o: of the others
//
// Peak and margin are 0 without critical classes. In scope predicted-safe own is at most -margin, since
// an input predicted critical is retained. The logarithm of 2^n (1 + x), with 0 <= x < 1, is taken as
// ln 2 (n + x + 0.34655539 (x - x^2)), which is within 0.006 of the natural one. Rules are learned with
// the logarithm that they are used with.
//
// A sum of terms gives the log-odds that the remaining passes overturn the decision. A term is a weight
// times one statistic or the product of two. The sum retain serves inputs that would be retained, the
// sum defer those that would be deferred (own above 0). An input is decided after t passes if its sum is
// at most the boundary B(t), which is given after a few numbers of passes and between two of them, a
// and b, is
//
//	B(t) = B(a) + (B(b) - B(a)) log(t/a) / log(b/a)
//
// Weights move between the first boundary and the last in the same way. Nothing is decided before the
// first boundary, after the last, or on fewer than two passes or the policy's fewest.
//
// An input whose log-odds are d above their boundary after t passes is looked at again after
// t + max(1, floor(t min(d/patience, 1))) passes. Patience is part of the rule, which is certified with
// it: of 30 passes some ten are looked at. All is computed in float64, so that another implementation
// may decide an input within rounding of a boundary one pass later.
//
// # Why not an existing method
//
// Early-exit networks leave a single forward pass, and adaptive ensembles stop when the predicted class
// is clear. A policy of deferral asks whether a person has to see the input: a very uncertain input can
// be decided early, and one with a clear class may lie just below its threshold. At 1% of changed
// decisions the rule uses 2.1 to 6.2 times fewer passes on recordings of fetal heart traces; giving
// every input fewer passes saves 1.05 to 1.26 times at the same share. The daemon pays 35 to 91 ns a
// pass for it with up to ten classes: see BENCHMARKS.md. When models give their uncertainty in a single
// pass, there is nothing left to save.
//
// # Invariants
//
// Settled allocates nothing, and its result depends on its arguments alone. An input whose passes so
// far are all identical is not decided early: a model server whose dropout is off sends such passes.
// Statistics that are not finite decide nothing. After S passes the rule decides nothing either,
// because then the policy does.
//
// The order of passes must be exchangeable, as it is for draws of one posterior. The members of an
// ensemble are not exchangeable: their rules are learned and used in their one order.
//
// Stability: the meaning of a Rule is part of a policy's hash and stays. Functions may be added.
package earlystop
