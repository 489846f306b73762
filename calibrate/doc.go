// Package calibrate makes finished policies of labelled passes, and states what can be guaranteed
// of them.
//
// [Run] takes a recording and an objective. It chooses the gate, the scores and their thresholds,
// and returns the policy, built and hashed, with a report. [LearnEarlyStop] completes a policy with
// an early-stopping rule; [FromOutcomes] calibrates one anew on what people found.
//
// # The way from passes to thresholds
//
// A candidate is a gate with the scores that it chooses between. candidates.go lists those that are
// compared. No candidate is best on every task, and nothing here assumes which one is. Each has a
// threshold curve: pairs of thresholds that lead from deferring everything to deferring nothing.
//
//  1. The curve (curve.go). A gate makes two groups of inputs, and each is ordered by its own
//     score. Isotonic regression of what retaining an input costs, on its place in that order, puts
//     the two groups on one scale without putting the two scores on one. The curve defers first
//     where the cost is highest. The cost of an input is [missed] - f [critical]: retaining it
//     raises the critical FNR m/c exactly if its cost at f = m/c is above 0.
//  2. The choice (search.go). Repeated 5-fold cross-validation makes curves on four folds and
//     counts on the fifth. It counts soft labels (labels.go), half of them the label and half the
//     prediction of a small logistic model: critical inputs are few, and a candidate should not win
//     because one of them fell to its side.
//  3. The point on the curve, by the objective: a coverage (coverage.go), Learn-then-Test
//     (certify.go, limits.go), or conformal risk control (miss.go). It gives a choice (choice.go),
//     which the policy is drafted from, and a report, which a reporter writes (reporter.go).
//
// # What is never done
//
// A figure that is reported was measured on inputs that chose neither candidate nor curve. For a
// coverage the whole procedure is repeated inside every training fold of an outer cross-validation.
// The other objectives choose on one part of the recording and measure on the rest, which chooses
// the point on the curve and nothing else. Certificates hold for inputs drawn as those of the
// recording were, and for one attempt on one recording: a second attempt on the same data is
// noticed by the policy that the new one completes or replaces (attempts.go), and voids the
// certificate. Inputs of one group (Options.Groups) never part.
//
// Stability: Run, Options and Report are meant to stay. Fields may be added. Which policy comes of
// a seed may change with a version, since better candidates may be compared.
package calibrate
