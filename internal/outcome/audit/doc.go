// Package audit says which inputs a person looks at, and with what probability: the deferred ones,
// and a random sample of those that the model kept.
//
// A Plan gives the propensity of an input from its stratum and its risk. An Auditor draws audits by
// a Plan, under a cap, after the decision and before any label is known.
//
//	stratum           propensity pi
//	deferred          1: reviewed anyway
//	called critical   rate, or 1 where the workflow works up all of them (free)
//	called safe       rate * (m + (1-m) sqrt(risk) / mean sqrt(risk)), at most 1, times the cap's factor
//
// The latter two are of retained inputs. A policy without thresholds retains everything.
//
// Invariants:
//   - The propensity in a Drawn is exactly the number that the draw was compared with, and it depends
//     on nothing that is known only later.
//   - It is at least LeastPropensity, whatever the risk and the cap.
//   - An input with an id is drawn by a keyed hash of the policy, its id and its passes: a retry
//     draws alike in every process with the same key, and nobody without the key can tell which
//     inputs are audited. Other passes under the same id draw anew, so that clients which call
//     their inputs "0", "1", ... in every batch do not have the same rows audited for ever.
//   - Draw does not allocate.
//
// A Plan is immutable. An Auditor may be used by several goroutines.
package audit
