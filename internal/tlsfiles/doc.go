// Package tlsfiles keeps TLS certificates in force while their files rotate.
//
// A Source is loaded from files: the server's certificate and key, the CAs of client certificates,
// and lists of revoked certificates. Its invariants:
//   - Everything in force was in the files at one time and fits together. A half-written pair, or
//     one that is not valid now, changes nothing.
//   - Every handshake uses what is in force when it begins. Open connections go on, except that
//     those whose client certificate is no longer trusted are closed.
//   - No session is resumed, so that none outlives the CA or the list by which its certificate was
//     judged.
//
// A gRPC server may listen on several addresses. Credentials takes connections of unix sockets and
// of the process itself in plaintext, and tells of each connection which kind it is.
package tlsfiles
