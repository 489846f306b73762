// Package eval turns labelled recordings into evidence: what a rule of
// deferral retains, what is wrong with what it retains, and what the per-class
// uncertainty says of the model.
//
// A recording is decomposed into a [Table], a column for each quantity. A
// ranking orders its inputs for deferral, by a score or by a gate over two.
// [Evaluate] walks every ranking from full deferral to none and puts the
// [Report] together. [Detect] compares recordings of known and of foreign
// inputs, [Disentangle] recordings of models trained under growing label noise.
//
// All information quantities are in nats. Equation names such as app-cfnr refer
// to the appendix "Complete Metric Reference" of Toure & Stephens, UAI 2026.
package eval
