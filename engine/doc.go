// Package engine leads one input through its life: it takes passes, decomposes
// them and lets the model's policy decide. The same code runs behind the
// network and over recordings.
//
//	model.Open -> Inputs.Fill or Add, pass by pass -> Inputs.Finish -> Batch.Outcome
//	model.NewBatch -> Batch.Reset, with complete passes -> Batch.Outcome
//
// Invariants:
//   - Inputs keep the model, and so the policy, that they were opened under.
//   - An error is never a decision: an Outcome is filled only when every row was
//     accepted and there were enough passes.
//   - A Model may be shared; Inputs, a Batch and an Outcome are for one
//     goroutine at a time.
package engine
