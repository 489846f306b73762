// Package drift tells whether what a model says has moved away from what its
// calibration saw, without labels.
//
// A Reference is what calibration saw: for each class, the distribution of C_k and of
// the skewness ratio, and the share of inputs for which it was predicted. A Monitor
// compares live inputs with it, over the last 64, 256 and 1024 of them: windows are
// counted in inputs, as a model that is asked seldom drifts no slower.
//
//	calibration: Sample.Add of each input -> Sample.Reference, in the policy
//	live:        Ranks of each class -> Block -> Monitor.Add -> Alarms, Signals
//
// Invariants:
//   - An alarm is a signal that is beyond Alarm; Signals says the same of it.
//   - What is compared is ranks: no value, however extreme, decides by itself.
//   - Ties make a signal smaller, never larger.
package drift
