// Package calibrate makes finished policies of labelled passes, and states what can be guaranteed
// of them.
//
// [Run] takes a recording and an objective. It chooses the gate, the scores and their thresholds,
// and returns the policy, built and hashed, with a report. [LearnEarlyStop] completes a policy with
// an early-stopping rule; [FromOutcomes] calibrates one anew on what people found.
//
// # The way from passes to thresholds
//
// A candidate is a score alone, or the paper's gate: candidates.go. No candidate is best on every
// task.
//
//  1. The path (path.go) of a candidate leads from deferring everything to deferring nothing, along
//     the coverage. It rests on no label.
//  2. The choice (search.go) keeps the simplest candidate unless another misses clearly fewer
//     critical inputs. In scope all no candidate is chosen that can never defer an input called
//     critical, unless critical calls are said to be acted on.
//  3. The point on the path, by the objective: a coverage (coverage.go), a ratio of costs (cost.go),
//     or bounds by Learn-then-Test (certify.go, limits.go). It gives a choice (choice.go), which the
//     policy is drafted from. What a run finds on the way it writes into its report (reporter.go).
//
// # How an early-stopping rule is learned
//
// One half of the recording learns (early_stop.go):
//
//  1. Every input is followed through 40 random orders of its passes. After t of them the statistics of
//     package policy/earlystop are known, and so is the decision of all S passes. Each time the
//     thresholds move by a normal log-odds of deviation 0.2, so that more inputs lie near a threshold.
//  2. Two penalised logistic regressions, over all t at once, give the log-odds that the decision of t
//     passes to retain, or to defer, is overturned. Terms that move the log-odds by less than 0.1 are
//     left out.
//  3. For a price of a disagreement, in passes, backward induction finds the boundaries: stopping costs
//     the price of its disagreements, going on costs one pass and what comes after. They are smoothed
//     over t and kept after four numbers of passes.
//  4. 30 prices, from 6,000 passes for a disagreement down to 40, and four more cautious rules before
//     them, are the 34 rules.
//
// # How it is certified
//
// The other half tries the 34 rules from cautious to bold, with one random order of the passes of each
// input, since the exact bound needs counts. Of n inputs k are decided differently, and of d inputs that
// all passes defer r are retained. While the Clopper-Pearson bounds of k of n and of r of d are at most
// their targets at confidence P, the next rule is tried; the last that passed is taken. Two tests need
// no correction (intersection-union), nor does the sequence, which was fixed before (fixed sequence
// testing). What is certified are the targets; the bounds of the chosen rule took part in the choice.
// A certificate about misses is tested with each rule in the same sequence. The bound on critical inputs
// released divides 1 - P by the number of rules tried.
//
// A bad regression saves less and breaks no bound. Halved or doubled, none of the constants saves one
// percent more on the recordings at hand.
//
// # What is never done
//
// A figure that is reported was measured on inputs that chose neither candidate nor thresholds. For a
// coverage the whole procedure is repeated without each fold of a cross-validation. Bounds choose on
// one part of the recording and measure on the rest, which chooses the point on the path and nothing
// else. Certificates hold for inputs drawn as those of the recording were, and for one attempt on one
// recording: a second attempt on the same data is noticed by the policy that the new one completes or
// replaces (attempts.go), and voids the certificate. Inputs of one group (Options.Groups) never part.
//
// Stability: Run, Options and Report are meant to stay. Fields may be added. Which policy comes of
// a seed may change with a version, since better candidates may be compared.
package calibrate
