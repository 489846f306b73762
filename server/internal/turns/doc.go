// Package turns lets work that takes long give way to other connections.
//
// Go looks for network events when a processor has nothing else to run, and otherwise every ten
// milliseconds. While messages that take long keep all processors busy, everybody else waits for as
// long, however small their calls. So such work is cut into pieces: a Turn says when a piece is over,
// and then lets everything go first that is ready by then, on the network too.
//
// Invariants:
//   - Between two turns lies about a fifth of a millisecond of work while other connections are read,
//     and ten times that otherwise, but never less than one piece that its owner does not cut.
//   - When a turn is due depends on the work and on reads of connections alone, and on no clock.
//   - However much such work there is, whoever becomes ready waits for about one piece on each processor.
//   - Giving turns loses no processor time: who gives one goes on at once if nothing else is ready.
package turns
