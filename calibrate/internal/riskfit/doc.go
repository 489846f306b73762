// Package riskfit fits the model of risk of a policy on a labelled table: the probability that an
// input called safe is truly critical.
//
// # How a model is fitted
//
//  1. The rows are the inputs called safe, and the outcome is whether an input is truly critical. With
//     fewer than FewestMissed critical ones among them, or fewer than that of the others, there is no
//     model.
//  2. A logistic regression is penalised on the squares of its standardised weights, that of
//     p_critical on its distance from 1, which would take the means of the passes at their word.
//     Weights of features that rise as mass moves to critical classes are kept at or above 0. The
//     penalty keeps the fit finite where a feature separates the outcomes.
//  3. The form of two numbers has an intercept and p_critical. A larger form adds one feature at a
//     time, the one that the score test finds best, up to one number for each 10 critical inputs
//     called safe and at most MostNumbers. With two classes there is no larger form.
//  4. Cross-validation by groups repeats all of this without each fold. The size with the least log
//     loss on the inputs held out is compared with the form of two numbers, and taken if its log loss
//     is lower by at least one standard error of the paired difference.
//
// The choice of the size has seen the inputs held out, so the figures of reliability are a little too
// good where a larger form is taken: it is one choice among at most ten sizes.
//
// The result depends on its arguments alone, not on the machine or the number of processors.
package riskfit
