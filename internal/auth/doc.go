// Package auth works out who calls, and which models and pages a caller may use.
//
// An access file lists identities: the tokens, client certificates and claims of JWTs that identify
// each, and the models and pages that it may use. A Store keeps the file in force while it and the token files
// change. Its invariants:
//   - One whole file without fault is in force. A faulty file changes nothing.
//   - Only health checks and probes pass without a good credential. A refusal never says which part
//     of a credential is wrong.
//   - Withdrawing a credential or a model refuses further calls and ends the streams opened with
//     it.
//   - Tokens are looked up by their SHA-256, so that the time it takes tells nothing of them. No token appears in an
//     error, a log line or an Outcome.
//   - JWTs are verified by keys at hand: no call waits for their issuer. A stream does not outlive
//     its JWT.
//   - An identity passed on within the process is believed only there.
//
// Stability: the access file is stable. The Go API follows the daemon and may change between minor
// versions.
package auth

//go:generate go test -run ^TestGenerated$ -update .
