// Package gateway answers HTTP: it turns requests of JSON into calls of gRPC, which go to the daemon's own server over
// a connection inside the process (Pipe), so that interceptors, limits, metrics and errors are the same for all.
//
// A request's way through: gateway.go looks at its headers and makes a call of it (call.go); /v2 is package
// inference/rest, /v1 the generated handlers in ckd/v1, by the paths of proto/ckd/v1/rest.yaml. Those read the body
// (body.go) through the codec of codec.go; stream.go stands between them and gRPC where they would go wrong. What is
// refused is told by errors.go.
//
// Invariants:
//   - A stream's body that breaks off, is too slow or does not decode is never half-closed: it is cancelled, so that
//     nothing that was open is decided on the passes that happened to arrive.
//   - No more of a body is read than is allowed, and the bodies of all requests together stay within a budget.
//   - Of a request's headers only x-request-id, traceparent, tracestate and grpc-timeout reach the server. Who the
//     client is, the connection's own dial options say, and nothing that the client sent.
//   - No goroutine outlives its request.
package gateway
