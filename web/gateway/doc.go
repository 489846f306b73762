// Package gateway answers HTTP: it turns requests in JSON into gRPC calls of the daemon's own
// server, over a connection inside the process (Pipe), so that interceptors, limits, metrics and
// errors are the same for both.
//
// gateway.go checks the headers of a request and makes it a call (call.go). Requests under /v2 go
// to package oip/rest, those under /v1 to the generated handlers in ckd/v1, by the paths of
// proto/ckd/v1/rest.yaml. The generated handlers read the body (body.go) through a codec
// (codec.go); stream.go corrects what they would do wrong with streams. errors.go answers refused
// requests.
//
// Invariants:
//
//   - The gateway never half-closes a stream whose body breaks off, is too slow or does not
//     decode. It cancels the call, so that the server does not decide open inputs on the passes
//     that happened to arrive.
//   - It reads no more of a body than is allowed, and the bodies of all requests together stay
//     within a budget.
//   - Of the headers of a request only x-request-id, traceparent, tracestate and grpc-timeout
//     reach the server. The connection's own dial options say who the client is, and nothing that
//     the client sent.
//   - No goroutine outlives its request.
//
// Stability: experimental. The paths, bodies and status codes are stable; the Go API follows the
// daemon's needs and may change in any release.
package gateway
