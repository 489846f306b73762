// Package oip serves the Open Inference Protocol, so that clients of model servers can ask ckd for
// decisions. Every policy appears as a model: its input is the tensor of passes, its outputs are
// what the passes say.
//
// The package only translates tensors. Package server checks, computes, decides and counts, as it
// does for ckd.v1, and returns the same errors.
//
// Stability: experimental. The protocol and the tensors are stable; the Go API follows the daemon's
// needs and may change in any release.
package oip
