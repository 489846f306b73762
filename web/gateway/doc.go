// Package gateway answers HTTP: it turns requests in JSON into gRPC calls of the daemon's own
// server, over a connection inside the process (Pipe), so that interceptors, limits, metrics and
// errors are the same for both.
//
// gateway.go reads a request, within its limits, and passes it on: requests under /v2 to package
// oip/rest, those under /v1 to grpc-gateway, by the paths of proto/ckd/v1/rest.yaml. codec.go and
// answer.go convert the JSON of /v1. server.go has the HTTP server and the connection inside the
// process.
//
// Invariants:
//
//   - A body is read to its end, and within its limit, before it becomes a call.
//   - Of the headers of a request only x-request-id, traceparent, tracestate and grpc-timeout mean
//     anything to the server. The connection inside the process says who the client is, and nothing
//     that the client sent.
//
// Stability: experimental. The paths, bodies and status codes are stable; the Go API follows the
// daemon's needs and may change in any release.
package gateway
