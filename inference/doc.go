// Package inference speaks the Open Inference Protocol, with which clients of
// model servers ask ckd for decisions: every policy is a model, whose input is the
// tensor passes and whose outputs are what the passes say.
//
// It translates tensors, and nothing else: package server checks, computes,
// decides and counts, as it does for ckd.v1, and its errors are the same.
package inference
