// Package rest serves the REST form of the Open Inference Protocol, version 2: it turns JSON into
// the messages of the protocol's gRPC form, calls a server with them, and turns the answer back.
//
// handler.go has the paths, request.go reads requests, response.go writes answers, and tensor.go
// converts elements between JSON and bytes. The package also supports Triton's extension for binary
// tensor data.
//
// Invariants:
//   - A request is refused, with the place, if it has a key that is unknown or occurs twice, data
//     that does not fit its shape, or bytes that are left over.
//   - The server refuses all else, in the same words as over gRPC.
//
// Stability: experimental. The protocol is stable; the Go API follows the daemon's needs and may
// change in any release.
package rest
