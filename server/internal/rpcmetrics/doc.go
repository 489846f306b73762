// Package rpcmetrics counts and times gRPC calls, and counts their messages, under the names and
// labels of go-grpc-middleware: grpc_server_started_total and its like.
//
// Unlike that library it counts only messages that were received and sent, and looks no series up for
// a message, which would cost as much as all else about a small one.
package rpcmetrics
