// Package settle says, while the passes of an input arrive, when its decision is
// settled: when that of all S passes is certain enough not to wait for.
//
// A Rule is what a policy stores. What t passes decide is settled when it is unlikely to
// be overturned: when the log-odds of that, a quadratic form of five Statistics, are so
// low. There is one for inputs that would be retained, and one for those that would be
// deferred:
//
//	live:        follow.Inputs.Add -> Statistics -> Rule.Settled
//	calibration: learn.Learn -> learn.Certify -> Rule, in the policy
//
// # Invariants
//
// Settled allocates nothing, and what it says depends on nothing but its arguments.
// An input whose passes so far are all identical is not settled, and never to retain:
// that is what a model server whose dropout is off sends. Statistics that are not finite
// settle nothing. After S passes nothing is settled either: the policy decides.
//
// The order of passes must be exchangeable, as draws of one posterior are. The members
// of an ensemble are not: their rules are learned and used in their one order.
package settle
