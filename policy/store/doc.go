// Package store keeps the policies that are in force: it brings policy files from disk, notices when they
// change, and replaces the set as a whole.
//
// Load finds the files, reads them, and hands them all to policy.Parse at once, so that a set of files
// is loaded whole or not at all. It follows symbolic links and skips names that begin with a dot.
//
// A Store begins with a set that is good and never is without one. Its invariants:
//   - The set in force is one whole, valid set, as one Load found it.
//   - A reload that finds a fault, or whose set is refused, changes nothing. The next one that finds a
//     good set recovers.
//   - A set's hash, which is that of its meaning, tells whether it is new: files that were touched,
//     moved or commented are no change.
//   - Reloads are one after another, so sets are put in force in the order in which they were read.
//
// A load never mixes two states of its files: files that are replaced meanwhile make it begin again. It
// cannot recognise a writer that pauses where the files happen to be valid. Watch waits for quiet, which
// makes that unlikely; a file that is renamed over the old one makes it impossible.
//
// Stability: experimental. Exported names may change with any minor version.
package store
