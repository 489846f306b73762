// Package rpcmetrics counts and times gRPC calls, and counts their messages, under the names and
// labels of go-grpc-middleware: grpc_server_started_total and its like.
//
// It looks the series of a method up once per call, so that counting a call or a message
// allocates nothing, and so that a stream may count messages that bypass the interceptors.
package rpcmetrics
