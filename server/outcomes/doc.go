// Package outcomes serves ckd.v1.OutcomeService on a ledger: it checks what comes, asks for rights, and
// turns what the ledger answers into messages.
//
// Invariants:
//   - An outcome is answered as counted only when it is durable.
//   - What is wrong with one outcome fails that outcome alone, and its status names it.
//   - Nobody learns anything about a model that they may not use: not even whether a receipt is of it.
//
// Stability: experimental. Exported names may change with any minor version.
package outcomes
