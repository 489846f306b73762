// Package eval turns labelled recordings into evidence: what a rule of deferral retains, which
// errors remain among what it retains, and what the per-class uncertainty says about the model.
//
// [NewTable] decomposes a [Recording] into a [Table], with a column for each quantity. A ranking
// orders the inputs for deferral, by a score or by a gate between two scores. [Evaluate] walks
// every ranking from full deferral to none and returns the [Report]. [Detect] compares recordings
// of known and of foreign inputs, [Disentangle] recordings of models trained under growing label
// noise.
//
// All information quantities are in nats. Equation names such as app-cfnr refer to the appendix
// "Complete Metric Reference" of Toure & Stephens, UAI 2026.
//
// Stability: experimental. Go names may change with any minor version. The JSON names of reports
// are those of ckd evaluate and stay.
package eval
