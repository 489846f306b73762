// Package binomial computes exact probabilities of counts, and exact bounds on the shares behind
// them.
package binomial
