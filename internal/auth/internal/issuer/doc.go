// Package issuer verifies the tokens (JWTs) of a token issuer by keys that it keeps at hand.
//
// An Issuer fetches the public keys of one issuer in the background. Its invariants:
//   - Verify never waits for the network. Without keys it says so, and asks for them.
//   - Only asymmetric signatures count, each by a key of its own kind. A token without an end, or
//     for another audience, is refused.
//   - A failed fetch changes nothing: the keys fetched last stay in use.
//   - A key that the issuer has withdrawn is trusted no more, whatever was verified by it before. An
//     empty set withdraws all keys, but only after five minutes: one that is published by mistake, in
//     the midst of a rotation, locks nobody out.
//   - No error repeats a token or a claim.
package issuer
