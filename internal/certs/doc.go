// Package certs keeps the TLS certificates that are in force, and lets a server
// speak TLS with them while they rotate.
//
// A Source is loaded from files: the server's certificate and key, the CAs of
// client certificates, and lists of those that were revoked. Its invariants:
//   - All of it was in the files at one time, and fits together. A half-written
//     pair, or one that is not valid now, changes nothing: what was in force stays.
//   - Every handshake uses what is in force when it begins. Connections that are
//     open go on, but those whose client certificate is not trusted any more are
//     closed.
//   - No session is resumed, so none outlives the CA or the list by which its
//     certificate was judged.
//
// One gRPC server may listen on several addresses: its Credentials take connections
// of unix sockets and of the process itself as they come, in plaintext, and say of
// each connection which it is.
package certs
