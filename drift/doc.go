// Package drift tells whether what a model says has moved away from what its
// calibration saw, without labels.
//
// A Reference is what calibration saw: for each class, the distribution of C_k and of
// the skewness ratio, and the share of inputs for which it was predicted. A Monitor
// compares live inputs with it, over the last 64, 256 and 1024 of them: windows are
// counted in inputs, as a model that is asked seldom drifts no slower.
//
//	calibration: NewQuantiles -> Reference, in the policy
//	live:        Ranks of a class -> Block -> Monitor.Add -> Monitor.Signals
package drift
