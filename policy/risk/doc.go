// Package risk computes the probability that an input called safe is truly critical, by a logistic
// Model that a policy stores and that ckd calibrate fits.
//
//	calibration: labelled passes -> Model, in the policy
//	live:        mean and C_k of an input -> Model.LogOdds -> Probability
//
// # Invariants
//
// The risk depends on the mean and the C_k of one input alone. It takes time linear in the number of
// classes and of terms, and allocates nothing.
//
// The risk does not fall when mass moves towards the critical classes. Let every pass give the share
// t < 1 of each safe class to the critical classes, in proportion to what they have:
//
//	safe'     = (1-t) safe
//	critical' = critical (1 + t (sum of safe)/(sum of critical))
//
// A Feature either does not fall under this move, and then its weight is at least 0, or does not
// change, and then its weight is free. Model.Check holds a model to this. Changes by rounding, and by
// the Epsilon in C_k, are below 1e-6 of the size of the terms.
//
// The risk knows nothing of inputs unlike those that it was fitted on. A policy that decides by it
// needs a guard.
//
// Stability: the meaning of a Model is part of a policy's hash and stays. Features may be added.
package risk
