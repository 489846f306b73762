// Package spec says what a daemon must answer, and what it must have counted, for tests that drive
// one at random. It is written from the comments of uncertainty.proto, docs/errors.md and docs/metrics.md and shares no
// code with the server. Its numbers come from package engine, which has tests of its own.
//
// A Server follows a daemon through every message, reload and end of a stream. Each step is told
// what the daemon answered, and returns an error where that is not what the protocol says. Where the
// protocol leaves the daemon a choice (whether there is room in a budget that is nearly full, or
// where an input without an id is audited) the step checks that the answer is one of those allowed,
// and follows it.
package spec
