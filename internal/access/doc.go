// Package access says who calls, and what they may.
//
// An access file lists identities: the tokens and client certificates that each is
// known by, and the models and pages that it may use. A Store keeps the file in
// force while it and the token files change. Its invariants:
//   - What is in force is one whole file that was found without fault. A faulty one
//     changes nothing.
//   - A call without a good credential is refused, whatever it asks for, but for
//     health and probes. Which part of a credential is wrong is never told.
//   - A credential that is withdrawn is good for no further call, and ends the
//     streams that were opened with it. So does a model that is withdrawn.
//   - Tokens are compared by their SHA-256, all of them, in constant time. No token
//     is in an error, a log line or an Outcome.
//   - An identity that is passed on within the process is believed there alone.
package access

//go:generate go test -run TestDocumentedFields . -update
