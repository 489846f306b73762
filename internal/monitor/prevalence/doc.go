// Package prevalence estimates the share of critical inputs in live traffic from priorities alone,
// without labels.
//
// A priority q is the calibrated probability of being truly critical where a share p0 is. If traffic has
// another share p, and critical inputs look as critical ones did, and others as others, then an input is
// w = q/(1-q) * (1-p0)/p0 times as frequent among critical inputs as among others, and
//
//	sum of log(1 - p + p w)
//
// over live inputs is the log likelihood of p, which is concave. Its maximum is what expectation
// maximisation of the prior converges to (Saerens, Latinne & Decaestecker 2002).
package prevalence
