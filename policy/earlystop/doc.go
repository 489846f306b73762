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
