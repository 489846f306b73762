// Package pressure decides from measured memory when the daemon refuses new work and when it ends
// connections.
//
// The pressure is the memory that lives above the idle baseline, as a share of what the memory
// limit leaves above that baseline. A Manager turns readings of it into a Level. It reads no clock
// and no memory itself, so that the same readings always give the same levels.
//
// Invariants:
//   - The level rises only by memory that a garbage collection has found alive, and the manager asks
//     for a collection at most once a second.
//   - The level is Calm while clients hold less than a tenth of their budget: refusing them would
//     free nothing.
//   - A level is left only well below the share at which it began, so that it does not flap.
package pressure
