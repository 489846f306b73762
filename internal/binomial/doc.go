// Package binomial has the exact probabilities of counts, and the exact bounds on the
// shares that they come from.
package binomial
