// Package rest speaks the REST form of the Open Inference Protocol, version 2: it turns its JSON into the messages of
// the protocol's gRPC form, calls a server of those, and turns the answer back.
//
// handler.go has the paths, request.go what requests say (read by the scanner of json.go), response.go how answers are
// written, tensor.go how elements look in JSON and in bytes. Triton's extension for binary tensor data is spoken too.
//
// Invariants:
//   - Nothing that a client wrote is passed over: a key that is unknown or occurs twice, a shape that the data does not
//     have, bytes that are left over are refused, and the message says where.
//   - Whatever else is wrong with a request is the server's to say, in the same words as over gRPC.
package rest
