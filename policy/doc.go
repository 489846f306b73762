// Package policy holds deferral policies: it parses, builds, checks and writes them, gives each a
// content hash, and decides by them.
//
// Parse makes policies of files. Build makes one of plain Go values, as of the file that
// says the same. Both report all faults at once.
//
// Its invariants:
//   - A *Policy that Build or Parse returned is complete, valid and never changes.
//   - Decide is pure: the same evidence under the same policy gives the same decision, and nothing is
//     read from files, clocks or other state.
//   - An input is retained exactly when its score <= its threshold. A score that cannot be compared
//     (NaN) defers: an error is never a retain.
//   - Two policies with equal hashes decide alike, and their outcomes are tested against the same lines.
//     Comments, layout and the spelling of defaults do not change the hash.
//   - Parse reads back what Marshal writes as an equal policy, and Build makes an equal policy of what
//     Policy.Draft returns.
//
// Stability: the fields of policy files, what they mean and the hash are stable. Go identifiers may
// change before version 1.0.
package policy
