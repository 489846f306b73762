// Package server answers the RPCs: it turns messages into passes and outcomes into messages, keeps to
// the limits, and maps every fault to one status.
//
// An input's way through: stream.go receives a message, which internal/wire reads; open.go finds or
// opens the group of the block; block.go turns the block into what the engine takes; closing.go encodes
// what the engine closes, after answers.go has drawn, counted and logged it; sender.go sends the reply.
// streams.go accepts streams, and supervise.go ends what takes too long. unary.go answers whole
// tensors, decide.go calls of other protocols, both through decider.go. receipts.go issues receipts and
// issued.go counts them. receive.go wraps the handlers of calls, and interceptors.go both. account.go
// and budget.go charge connections for what they hold, and line.go weighs them.
//
// Invariants:
//   - A fault of one input fails that input alone. It counts among no decisions, and the stream goes
//     on.
//   - An error is never a retain.
//   - A label of a metric never carries what a client sent.
//   - Generated types stop here: engine, decomp and policy know nothing of them.
//
// Stability: experimental. Exported names may change with any minor version.
package server
