// Package engine leads one input through its life: it takes passes, decomposes
// them and lets the model's policy decide. The same code runs behind the
// network and over recordings.
//
//	model.Open -> Input.Add, pass by pass -> Input.Finish   (streaming)
//	model.NewBatch -> Batch.Reset -> Batch.Outcome          (complete passes)
//
// Invariants:
//   - An input keeps the model, and so the policy, that it was opened under.
//   - An error is never a decision: an Outcome is filled only when every row was
//     accepted and there were enough passes.
//   - A Model may be shared; an Input, a Batch and an Outcome are for one
//     goroutine at a time.
package engine
