// Package server answers the RPCs: it turns messages into passes and outcomes
// into messages, keeps to the limits, and maps every fault to one status.
//
// An input's way through: stream.go receives a message, which internal/wire reads;
// session.go takes it up; block.go finds or opens the block's group and gives its
// rows their passes; group.go lets the engine finish those that have all theirs,
// with a worker (worker.go), which puts the outcome into words; errors.go says
// what went wrong. unary.go is the same for whole tensors. Interceptors are in
// interceptors.go, and how messages pass them by in messages.go.
//
// Invariants:
//   - What is wrong with one input fails that input alone; nothing of it is
//     counted among the decisions, and the stream goes on.
//   - An error is never a retain.
//   - A label of a metric never carries what a client sent.
//   - Generated types stop here: engine, decomp and policy know nothing of them.
package server
