// Package store keeps the policies that are in force: it brings policy files
// from disk, notices when they change, and replaces the set as a whole.
//
// Load finds the files, reads them, and hands them all to policy.Parse at once,
// so that a set of files is loaded whole or not at all. It follows symbolic
// links and skips names that begin with a dot. A mounted Kubernetes ConfigMap is
// an ordinary directory of policies.
//
// A Store begins with a set that is good and never is without one. Its
// invariants:
//   - The set in force is one whole, valid set, as one Load found it.
//   - A reload that finds a fault, or whose set is refused, changes nothing. The
//     next one that finds a good set recovers.
//   - A set's hash, which is that of its meaning, tells whether it is new: files
//     that were touched, moved or commented are no change.
//   - Reloads are one after another, so sets are put in force in the order in
//     which they were read.
//
// A load never mixes two states of its files. Files that are replaced while it
// reads them, as by the swap of a ConfigMap's ..data link, make it begin again.
// It cannot recognise a writer that pauses halfway, at a place where
// the files happen to be valid: a file cut after its first model, or one taken
// away before its new version is there. Watch waits for quiet, which makes that
// unlikely; a file that is written beside the old one and renamed over it makes
// it impossible.
//
// Stability: experimental. Exported names may change with any minor version.
package store
