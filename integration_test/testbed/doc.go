// Package testbed runs, for tests, the programs that they are about: the built
// daemon, on free ports, and those that people use beside it. What it starts it
// stops at the end of the test.
package testbed
