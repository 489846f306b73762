// Package receipt keeps a decision until its outcome is known: in a sealed record that
// travels with the result, so that the daemon keeps nothing.
//
// Whoever learns the true class of an input sends it with the input's receipt. The receipt says what
// was decided, with what scores, and with what probability a person was to look at the input, which
// no count without its weight could tell.
//
//	a key file:     ParseKeys -> Keys
//	a daemon:       NewSealer(Keys) -> Sealer.Seal, Sealer.DrawKey
//	a ledger:       Keys.Open -> Receipt, ID
//
// Invariants:
//   - Open returns what Seal was given, or an error: receipts that were forged, truncated or changed
//     in any bit do not open.
//   - All receipts have the same size, and nothing in one can be told from outside, not even whether
//     the input was audited.
//   - No two receipts have the same ID, however many processes share a key file.
//   - A receipt names no input: identifiers and groups are in it only as keyed hashes.
//   - Sealing does not allocate where dst has room for Size bytes.
//
// A receipt is sealed by AES-256-GCM. Every Sealer derives a key of its own from the first key of
// the file and a random salt, which stands in the receipt, and counts its nonces. So processes need
// no coordination and no nonce comes twice.
//
// All types may be used by several goroutines.
//
// Stability: receipts that were sealed by a released version can be opened by all later ones, as
// long as their key is in the key file.
package receipt
