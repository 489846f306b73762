// Package calibrate chooses the gate, the scores and the thresholds of a policy
// from labelled passes, and states what can be guaranteed of it.
//
// # The way from passes to a policy
//
// A rule is a gate, the scores that it chooses between, and a path: a list of
// pairs of thresholds from deferring everything to deferring nothing. Which
// rules are compared stands in rules.go; no rule is best on every task, and
// nothing here assumes which one is.
//
//  1. The path (path.go). Each of the two groups of inputs that a gate makes is
//     ordered by its own score. Isotonic regression of what retaining an input
//     costs, on its rank, puts the two groups on one scale without putting the
//     two scores on one. The path defers first where the cost is highest. The
//     cost of an input is [missed] - f [critical]: retaining it raises the
//     critical FNR m/c exactly if its cost at f = m/c is above 0.
//  2. The choice (search.go). Repeated 5-fold cross-validation: paths are made
//     on four folds and counted on the fifth. What is counted are half the
//     labels, half the predictions of a small logistic model of them
//     (outcome.go): critical inputs are few, and a rule should not win because
//     one of them fell to its side.
//  3. The point on the path, by the objective: [Coverage] (coverage.go),
//     [ConformalRiskControl] (miss.go), [LearnThenTest] (fnr.go).
//
// # What is never done
//
// A figure that is reported was measured on inputs that chose neither rule nor
// path: under Coverage the whole procedure is repeated inside every training
// fold of an outer cross-validation; the other two choose on one part of the
// recording and measure on the rest, which chose the point on the path and
// nothing else. Certificates hold for inputs drawn
// as those of the recording were, and for one attempt on one recording.
package calibrate
