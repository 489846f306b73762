// Package drift detects, without labels, that what a model says has moved away from its
// calibration.
//
// A policy.Reference holds what calibration saw: for each class, the distribution of C_k and of the
// skewness ratio, and the share of inputs for which the class was predicted. A Monitor compares the
// last 64, 256 and 1024 live inputs with it. Windows are counted in inputs, so that a model which
// is asked seldom needs no more of them to show drift.
//
//	calibration: Sample.Add of each input -> Sample.Reference, in the policy
//	live:        Ranks of each class -> Block -> Monitor.Add -> Alarms, Signals
//
// Invariants:
//   - A signal is an alarm if its |z| is above Alarm, in Alarms as in Signals.
//   - Only ranks are compared: no value, however extreme, decides by itself.
//   - Ties make a signal smaller, never larger.
package drift
