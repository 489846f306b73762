// Package policy says what a deferral policy is: it parses, checks and
// writes policy files, gives each policy a content hash, and decides.
//
// Its invariants:
//   - A *Policy that Parse returned is complete, valid and never changes.
//   - Decide is pure: the same evidence under the same policy gives the same
//     decision, and nothing is read from files, clocks or other state.
//   - An input is retained exactly when its score <= its threshold. A score
//     that cannot be compared (NaN) defers: an error is never a retain.
//   - Two policies with equal hashes decide alike; comments, layout and the
//     spelling of defaults do not change the hash.
//   - What Marshal writes of a policy, Parse reads back as an equal policy.
package policy
