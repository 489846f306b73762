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
