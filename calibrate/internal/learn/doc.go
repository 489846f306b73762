// Package learn learns early-stopping rules from recorded passes, certifies one, and draws what it
// saves against what it costs.
//
// # How a rule is learned
//
//  1. Every input of the learning part is followed through many random orders of its passes. After
//     t of them it has Statistics, and what all S passes decide is known. The members of an
//     ensemble keep their one order. Each time the thresholds are a little lower or higher, so that
//     more inputs are near one than those that happen to be.
//  2. One logistic regression, over all t at once, on the samples that t passes would retain gives
//     the log-odds that all S overturn that, and another one on those that they would defer. The
//     score's ratio to its threshold and its square are left free; other terms are shrunk a little,
//     products more. The weights of the statistics and of that square move with log(t); terms that
//     hardly matter are left out.
//  3. For a price lambda of a disagreement, in passes, boundaries follow from the last pass
//     backwards: stopping costs lambda times the disagreements that it makes, and going on costs
//     one pass and what follows. Boundaries are made smooth over t, and kept after four numbers of
//     passes only: a rule is a Form of at most 60 numbers.
//  4. Lambdas from high to low make a Sequence of rules from cautious to bold. The first of them
//     keep a margin to the boundaries of the highest lambda.
//
// # What is certified
//
// Certify goes along the sequence, on inputs that were not used for learning, with one order of
// passes each, for as long as two exact binomial bounds hold: that on the disagreements, a share of
// all inputs, and that on the released inputs, a share of those that all passes defer. This is
// fixed-sequence testing: the order of the rules was fixed before, and the first that fails ends it.
// So the last rule that passed holds with the stated confidence, without a correction for having
// tried several. Nor is there one for the two tests, since both must pass (intersection-union).
//
// A risk, the critical FNR of what is retained with the rule in force, can be part of the same
// sequence; it then holds with its own confidence. The share of critical deferred inputs that are
// retained instead does not choose the rule. Its bound holds for all rules of the sequence at once,
// hence for the one chosen.
//
// A disagreement is a different action, or the same retain with the predicted class on the other
// side of the critical boundary.
package learn
