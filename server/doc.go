// Package server answers the RPCs: it turns messages into rows and outcomes
// into messages, keeps to the limits, and maps every fault to one status.
//
// An input's way through: stream.go receives a message; session.go finds the
// group and the rows that a block names and hands each row to the engine;
// convert.go writes the outcome as a result; errors.go writes what went wrong.
// The interceptors around it are in interceptors.go.
//
// Invariants:
//   - What is wrong with one input fails that input alone; nothing of it is
//     counted among the decisions, and the stream goes on.
//   - An error is never a retain.
//   - A label of a metric never carries what a client sent.
//   - Generated types stop here: engine, decomp and policy know nothing of them.
package server
