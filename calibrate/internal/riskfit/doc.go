// Package riskfit fits the model of risk of a policy on a labelled table: the probability that an
// input called safe is truly critical.
//
// The rows are the inputs called safe, and the outcome is whether an input is truly critical. With
// fewer than FewestMissed critical ones among them, or fewer than that of the others, there is no
// model. It has two numbers: an intercept, and the weight of the log-odds of p_critical, penalised on
// the square of its standardised distance from 1, which would take the means of the passes at their
// word. The weight is kept at or above 0, so that the risk rises as mass moves to critical classes.
// The penalty keeps the fit finite where p_critical separates the outcomes. More features were tried:
// on halves of eight recordings no form of them had a Brier score lower by a standard error.
//
// Cross-validation by groups repeats the fit without each fold. What the risks of the inputs held out
// are worth is reported.
//
// The result depends on its arguments alone, not on the machine or the number of processors.
package riskfit
